"""One embedding cache at work: before each run its batch's rows are on the device, and the ids are their indices."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.bound import BoundCache, BoundGraph
from kgrun.graphs.data import numpy_dtype
from kgrun.runtime.embedding.index import Lookup, RowIndex
from kgrun.runtime.embedding.rows import HostRows, Rows
from kgrun.runtime.embedding.tables import open_table
from kgrun.runtime.host_memory import check_room

if TYPE_CHECKING:
    from kgrun.graphs.operators.base import TensorType
    from kgrun.runtime.devices.base import Device

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class EmbeddingReport:
    """What an embedding cache did during a run.

    Attributes:
        ids: the queue item that is looked up; `tables`, what it looks up in.
        rows: cached at once, of `vocabulary` in each table.
        lookups: ids of all batches: `hits` were cached, `outside` are no rows of the table and got zeros.
        loaded, evicted, written: rows brought to the device, turned out of the cache, and brought home to the tables;
            `loaded_bytes` and `written_bytes` are those of all tables.
        prepare_ns: what the host took to look up and to gather, all together; `lookup_ns` of it to look up.
        place_ns: what the host took between two runs to start the rows' moves.
        direct: whether the device reads and writes the tables itself, in pinned memory.
        ahead: batches that were prepared while the run before them went on.
    """

    ids: str
    tables: tuple[str, ...]
    rows: int
    vocabulary: int
    batches: int
    lookups: int
    hits: int
    outside: int
    loaded: int
    evicted: int
    written: int
    loaded_bytes: int
    written_bytes: int
    prepare_ns: int
    lookup_ns: int
    place_ns: int
    direct: bool
    ahead: int


_COUNTS = ("batches", "lookups", "hits", "outside", "loaded", "evicted", "written")
_TIMES = ("prepare_ns", "lookup_ns", "place_ns", "ahead")


class EmbeddingCache:
    """The cache of the tables that one queue item looks up.

    `prepare` finds slots for a batch, `place` has its rows and indices where the graph reads them. While the run before
    still goes on, all but the indices may be issued: evicted rows leave, and missing ones enter, in the order of the
    steps.
    """

    def __init__(
        self, bound: BoundGraph, cache: BoundCache, device: Device, given: Mapping[str, Array], seed: int
    ) -> None:
        self.cache = cache
        self._tables = {table.name: open_table(bound, table, given, seed) for table in cache.tables}
        self._vocabulary = cache.tables[0].shape[0]
        self._updated = any(table.updated for table in cache.tables)
        self._rows: Rows
        self._direct = False
        if device.info.kind == "cpu":
            self._rows = HostRows(device, cache, self._tables)
        else:
            self._rows = self._lane_rows(device, bound.tensors[cache.ids].type)
        self._counts = dict.fromkeys((*_COUNTS, *_TIMES), 0)
        self._reset()

    def _lane_rows(self, device: Device, ids: TensorType) -> Rows:
        """Where the tables can lie in pinned memory the GPU moves rows by itself; else the host gathers them."""
        from kgrun.runtime.embedding.direct_rows import DirectRows, pin_tables
        from kgrun.runtime.embedding.lane_rows import LaneRows

        pinned = pin_tables(device, self.cache, self._tables)
        self._direct = pinned is not None
        if pinned is None:
            return LaneRows(device, self.cache, self._tables, ids)
        return DirectRows(device, self.cache, *pinned, ids)

    def _reset(self) -> None:
        self._index = RowIndex(self._vocabulary, self.cache.rows)
        self._dirty = np.zeros(self.cache.rows, bool)
        self._next: Lookup | None = None  # prepared
        self._committed = False  # its rows are in place

    @property
    def overlaps(self) -> bool:
        """Whether a batch can be prepared while a run goes on."""
        return self._rows.overlaps

    @property
    def prepared(self) -> bool:
        """Whether the next batch is."""
        return self._next is not None

    def attach(self, places: Mapping[str, int], ids: int | None) -> None:
        """Start with an empty cache at these addresses; what it held and did not write home is lost."""
        self._rows.settle()
        self._reset()
        self._rows.attach(places, ids)

    def prepare(self, ids: Array, ahead: bool = False) -> None:
        """Look a batch up, unless that was done. DoesNotFit KG408 where it alone has more rows than the cache."""
        if self._next is not None:
            return
        started = time.perf_counter_ns()
        lookup = self._index.lookup(ids)
        looked_up = time.perf_counter_ns()
        self._rows.stage(lookup)
        self._next, self._committed = lookup, False
        if ahead:
            self._commit(lookup)  # its moves follow the run that goes on
        counts = self._counts
        counts["batches"] += 1
        counts["lookups"] += lookup.slots.size
        counts["hits"] += lookup.hits
        counts["outside"] += lookup.outside
        counts["loaded"] += len(lookup.missing)
        counts["evicted"] += len(lookup.evicted)
        counts["ahead"] += ahead
        counts["lookup_ns"] += looked_up - started
        counts["prepare_ns"] += time.perf_counter_ns() - started

    def place(self) -> None:
        """Have the prepared batch's rows and indices in place for the next run."""
        assert self._next is not None, "place without prepare"
        started = time.perf_counter_ns()
        self._commit(self._next)
        self._rows.put_ids(self._next)
        self._next = None
        self._counts["place_ns"] += time.perf_counter_ns() - started

    def table(self, name: str) -> Array | None:
        """The whole table of that name, with what is cached written home; None for another tensor."""
        if name not in self._tables:
            return None
        self.write_home()
        return self._tables[name]

    def write_home(self) -> None:
        """Write updated rows that are cached to the tables on the host."""
        if self._next is not None:
            self._commit(self._next)
        self._rows.settle()
        ids, slots = self._index.resident()
        chosen = self._dirty[slots]
        if not chosen.any():
            return
        for table in self.cache.tables:
            if table.updated:
                kept = np.empty((self.cache.rows + 1, *table.shape[1:]), numpy_dtype(table.dtype))
                check_room(kept.nbytes, f"the cached rows of {table.name!r}")
                self._rows.read(table, kept)
                self._tables[table.name][ids[chosen]] = kept[slots[chosen]]
        self._dirty[:] = False
        if self._next is not None:
            self._dirty[self._next.used] = self._updated

    def close(self, failed: bool = False) -> None:
        """Write home what is to persist, then give memory back."""
        try:
            if not failed and any(table.persist for table in self.cache.tables):
                self.write_home()
        finally:
            self._rows.close()

    def report(self) -> EmbeddingReport:
        """What was done since the last call."""
        counts, self._counts = self._counts, dict.fromkeys(self._counts, 0)
        all_bytes = {table.name: int(self._tables[table.name][:1].nbytes) for table in self.cache.tables}
        home_bytes = sum(all_bytes[table.name] for table in self.cache.tables if table.updated)
        return EmbeddingReport(
            ids=self.cache.ids,
            tables=tuple(all_bytes),
            rows=self.cache.rows,
            vocabulary=self._vocabulary,
            loaded_bytes=counts["loaded"] * sum(all_bytes.values()),
            written_bytes=counts["written"] * home_bytes,
            direct=self._direct,
            **counts,
        )

    def _commit(self, lookup: Lookup) -> None:
        if self._committed:
            return
        dirty = self._dirty[lookup.freed]
        self._counts["written"] += int(np.count_nonzero(dirty))
        self._rows.commit(lookup, dirty)
        self._dirty[lookup.places] = False
        self._dirty[lookup.used] |= self._updated
        self._committed = True
