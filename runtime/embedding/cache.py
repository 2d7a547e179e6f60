"""One embedding cache at work: before each run its batch's rows are on the device, and the ids are their indices."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Condition, Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.bound import BoundCache, BoundGraph
from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.errors import KgrunError
from kgrun.graphs.records import dataclass
from kgrun.runtime.embedding.index import Lookup, RowIndex
from kgrun.runtime.embedding.rows import HostRows, Rows
from kgrun.runtime.embedding.tables import open_table
from kgrun.runtime.host_memory import check_room

if TYPE_CHECKING:
    from kgrun.graphs.operators.base import TensorType
    from kgrun.runtime.devices.base import Device

Array = np.ndarray[Any, Any]
Batches = Callable[[int], "Array | None"]


@dataclass(frozen=True, slots=True)
class EmbeddingReport:
    """What an embedding cache did during a run.

    Attributes:
        ids: the queue item that is looked up; `tables`, what it looks up in.
        rows: cached at once, of `vocabulary` in each table.
        lookups: ids of all batches: `hits` were cached, `outside` are no rows of the table and got zeros.
        loaded, evicted, written: rows brought to the device, turned out of the cache, and brought home to the tables;
            `loaded_bytes` and `written_bytes` are those of all tables.
        prepare_ns: what the host took to look up and to have rows moved, all together; `lookup_ns` of it to look up.
        place_ns: what the host took between two runs.
        direct: whether the device reads and writes the tables itself, in pinned memory.
        ahead: batches whose rows were on their way while the run before them went on.
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

    Three things are done for each batch, in the batches' order. It is looked up, in whatever thread has the time:
    nothing on the device is needed for that. Its rows are moved: beside the run before it or right after that, or at
    the latest just before its own. And its indices are put where the graph reads ids, in order with the steps.

    Args:
        depth: how many batches may have been looked up and not been taken.
    """

    def __init__(
        self, bound: BoundGraph, cache: BoundCache, device: Device, given: Mapping[str, Array], seed: int, depth: int
    ) -> None:
        self.cache = cache
        self._place = bound.source.place("tensors", cache.tables[0].name, "cache")
        self._tables = {table.name: open_table(bound, table, given, seed) for table in cache.tables}
        self._vocabulary = cache.tables[0].shape[0]
        self._updated = any(table.updated for table in cache.tables)
        self._direct = False
        # One more: what the device reads of the batch in hand.
        self._rows: Rows = self._open_rows(device, bound.tensors[cache.ids].type, depth + 1)
        self._counts = dict.fromkeys((*_COUNTS, *_TIMES), 0)
        self._lock = Lock()  # of the index, and of adding to what it found
        self._told = Condition()  # that it is free
        self._closed = False
        self._reset(0)

    def _open_rows(self, device: Device, ids: TensorType, blocks: int) -> Rows:
        """Where the tables can lie in pinned memory the GPU moves rows by itself; else the host gathers them."""
        if device.info.kind == "cpu":
            return HostRows(device, self.cache, self._tables, ids, blocks)
        from kgrun.runtime.embedding.direct_rows import DirectRows, pin_tables
        from kgrun.runtime.embedding.lane_rows import LaneRows

        pinned = pin_tables(device, self.cache, self._tables, ids, blocks)
        self._direct = pinned is not None
        if pinned is None:
            return LaneRows(device, self.cache, self._tables, ids, blocks)
        return DirectRows(device, self.cache, pinned, ids)

    def _reset(self, first: int) -> None:
        self._index = RowIndex(self._vocabulary, self.cache.rows)
        self._found: deque[Lookup | KgrunError] = deque()  # of the next batches
        self._number = first  # of the batch that is looked up next
        self._moved = False  # the rows of the first of them

    @property
    def looked_up(self) -> int:
        """How many of the next batches are looked up."""
        return len(self._found)

    def attach(self, places: Mapping[str, int], ids: int | None, first: int = 0) -> None:
        """Start with an empty cache at these addresses; what it held and did not write home is lost.

        Args:
            first: the number of the batch that the next run takes.
        """
        with self._locked():
            self._rows.settle()
            self._reset(first)
            self._rows.attach(places, ids)

    def look_ahead(self, batch: Batches) -> None:
        """Look up all batches that are there, in their order. Any thread may do it at any time.

        Args:
            batch: the ids of a batch by its number; None where it is not there yet.
        """
        while self._look_up_next(batch):
            pass

    def _look_up_next(self, batch: Batches) -> bool:
        with self._locked():
            return self._look_up_one(batch)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        finally:
            with self._told:
                self._told.notify_all()

    def _look_up_one(self, batch: Batches) -> bool:
        ids = None if self._closed else batch(self._number)
        if ids is not None:
            self._found.append(self._look_up(ids))
            self._number += 1
        return ids is not None

    def _have_next(self, batch: Batches) -> bool:
        """See to it that the next batch is looked up; False where it is not there.

        Whoever else is at it looks further batches up right afterwards: this waits for the first of them, and not
        until the other's lock is free.
        """
        while not self._found:
            if self._lock.acquire(blocking=False):
                try:
                    return bool(self._found) or self._look_up_one(batch)
                finally:
                    self._lock.release()
            with self._told:
                self._told.wait_for(lambda: self._found or not self._lock.locked())
        return True

    def _look_up(self, ids: Array) -> Lookup | KgrunError:
        try:
            return self._index.lookup(ids, self._rows.block(self._number))
        except KgrunError as error:
            return error  # for the run that would have taken the batch

    def move_ahead(self, batch: Batches) -> None:
        """Have the next batch's rows moved once the run that goes on has ended, if it is there.

        Who calls this would wait for that run next: so it rather waits for the lookup, or makes it.
        """
        if not self._rows.overlaps or self._moved or not self._have_next(batch):
            return
        if isinstance(self._found[0], Lookup):
            self._move(self._found[0])
            self._counts["ahead"] += 1

    def place(self, batch: Batches) -> None:
        """Have the next batch's rows and indices in place for the next run.

        Raises:
            DoesNotFit: KG408 where it alone has more rows than the cache.
        """
        started = time.perf_counter_ns()
        self._have_next(batch)
        found = self._found[0]
        if not isinstance(found, Lookup):
            raise found.at(self._place)
        before = self._counts["prepare_ns"]
        self._move(found)
        moving = self._counts["prepare_ns"] - before
        self._rows.put_ids(found)
        self._found.popleft()  # without the lock: others only append, and may be looking up for long
        self._moved = False
        self._count(found)
        self._counts["place_ns"] += time.perf_counter_ns() - started - moving

    def _move(self, lookup: Lookup) -> None:
        if self._moved:
            return
        started = time.perf_counter_ns()
        self._rows.move(lookup)
        self._moved = True
        self._counts["prepare_ns"] += time.perf_counter_ns() - started

    def _count(self, lookup: Lookup) -> None:
        counts, evicted = self._counts, lookup.missed - lookup.fresh
        counts["batches"] += 1
        counts["lookups"] += lookup.block.found.size
        counts["hits"] += lookup.hits
        counts["outside"] += lookup.outside
        counts["loaded"] += lookup.missed
        counts["evicted"] += evicted
        counts["written"] += evicted if self._updated else 0
        counts["lookup_ns"] += lookup.took_ns
        counts["prepare_ns"] += lookup.took_ns

    def table(self, name: str) -> Array | None:
        """The whole table of that name, with what is cached written home; None for another tensor."""
        if name not in self._tables:
            return None
        self.write_home()
        return self._tables[name]

    def write_home(self) -> None:
        """Write updated rows that are cached to the tables on the host."""
        if not self._updated:
            return
        with self._locked():
            ids = self._index.rows_of_slots()
            ahead = list(self._found)[1 if self._moved else 0 :]
        for lookup in reversed(ahead):  # whose rows the device does not have yet
            if isinstance(lookup, Lookup):
                ids[lookup.places] = -1
                ids[lookup.freed] = lookup.evicted
        self._rows.settle()
        slots = np.flatnonzero(ids >= 0)
        for table in self.cache.tables:
            if table.updated and len(slots):
                kept = np.empty((self.cache.rows + 1, *table.shape[1:]), numpy_dtype(table.dtype))
                check_room(kept.nbytes, f"the cached rows of {table.name!r}")
                self._rows.read(table, kept)
                self._tables[table.name][ids[slots]] = kept[slots]

    def close(self, failed: bool = False) -> None:
        """Write home what is to persist, then give memory back."""
        try:
            if not failed and any(table.persist for table in self.cache.tables):
                self.write_home()
        finally:
            with self._locked():
                self._closed = True
                self._found.clear()
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
