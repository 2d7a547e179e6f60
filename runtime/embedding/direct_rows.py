"""Rows of a GPU's cache where the tables fit into pinned host memory: kernels read and write them over the bus.

The host looks ids up and sends row numbers; no row passes through it. While run k goes on, a lane brings the rows home
that left before it, then fetches those that run k+1 misses, in this order, so that a row that leaves and comes back is
whole. Between the runs two kernels take the evicted rows out of the cache and put the missing ones in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.bound import BoundCache, BoundTable
from kgrun.graphs.errors import DoesNotFit
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.embedding.index import Lookup
from kgrun.runtime.embedding.moves import fixed, move_step, row_bytes
from kgrun.runtime.host_copies import HostCopies
from kgrun.runtime.host_memory import available_memory

if TYPE_CHECKING:
    from kgrun.runtime.devices.base import CopyLane, Device, PreparedStep

Array = np.ndarray[Any, Any]

SHARE = 0.25  # of the host's free memory that tables may take for good
_ALIGNMENT = 512
_BLOCKS, _BUS_BLOCKS = 264, 64  # blocks of kernels between runs, and of those beside a run
_IN_COUNT, _OUT_COUNT = 0, 4  # bytes into the header


def pin_tables(device: Device, cache: BoundCache, tables: dict[str, Array]) -> tuple[CopyLane, dict[str, int]] | None:
    """Put the tables into pinned memory, `tables` itself changed, and give their addresses on the device.

    None, and nothing changed, where a table is to persist in its file, where they would take more than SHARE of the
    host's free memory or what the run may hold, or where the system pins no more.
    """
    wanted = [tables[table.name] for table in cache.tables]
    nbytes = sum(array.nbytes for array in wanted)
    if any(table.persist for table in cache.tables) or nbytes > SHARE * available_memory():
        return None
    lane = device.copy_lane()
    if lane is None:
        return None
    name, copies = f"the tables of cache {cache.ids!r}", HostCopies()
    try:
        device.host.hold(name, nbytes)
        addresses, pinned = {}, {}
        for table, array in zip(cache.tables, wanted, strict=True):
            pinned[table.name] = np.empty(array.shape, array.dtype)
            copies.copy(pinned[table.name], array)
            address = lane.map_host(pinned[table.name])
            if address is None:
                break
            addresses[table.name] = address
    except DoesNotFit:
        addresses = {}
    finally:
        copies.close()
    if len(addresses) < len(wanted):
        lane.close()
        device.host.drop(name)
        return None
    tables.update(pinned)
    return lane, addresses


class DirectRows:
    """Implements `rows.Rows` over one lane and tables that the device reaches.

    Args:
        lane, addresses: of `pin_tables`.
        ids: the type of the queue item, whose size bounds the rows that a batch can miss.
    """

    overlaps = True

    def __init__(
        self, device: Device, cache: BoundCache, lane: CopyLane, addresses: Mapping[str, int], ids: TensorType
    ) -> None:
        self._device, self._cache, self._lane, self._tables, self._ids_type = device, cache, lane, addresses, ids
        most = min(ids.size, cache.rows)
        # The header: two counts, slots to fill, slots to empty, row numbers of both, ids.
        at = _ALIGNMENT
        self._parts: dict[str, tuple[int, Any]] = {}
        widths = {"places": 4, "freed": 4, "missing": 8, "evicted": 8}
        for part, width in widths.items():
            self._parts[part] = at, np.dtype(f"i{width}")
            at += -(-width * most // _ALIGNMENT) * _ALIGNMENT
        self._ids_at = at
        self._header = lane.host_block(at + -(-ids.nbytes // _ALIGNMENT) * _ALIGNMENT)
        self._held: list[int] = []
        self._header_address = self._allocate(self._header.nbytes)
        self._in = {table.name: self._allocate(most * row_bytes(table)) for table in cache.tables}
        self._out = {t.name: self._allocate(most * row_bytes(t)) for t in cache.tables if t.updated}
        self._read, self._sent, self._taken, self._placed, self._home = (lane.new_mark() for _ in range(5))
        self._ids: int | None = None
        self._places: Mapping[str, int] = {}
        self._moves: dict[str, list[PreparedStep]] = {}

    def attach(self, places: Mapping[str, int], ids: int | None) -> None:
        """Prepare the kernels for these addresses, and clear the caches."""
        self._places, self._ids = places, ids
        self._moves = {entry: [] for entry in ("kg_rows_fetch", "kg_rows_in", "kg_rows_out", "kg_rows_home")}
        for table in self._cache.tables:
            name = table.name
            if name not in places:
                continue
            self._device.fill(places[name], 0, (self._cache.rows + 1) * row_bytes(table))
            self._move(table, "kg_rows_fetch", self._tables[name], self._in[name], "missing", _IN_COUNT)
            self._move(table, "kg_rows_in", places[name], self._in[name], "places", _IN_COUNT)
            if table.updated:
                self._move(table, "kg_rows_out", places[name], self._out[name], "freed", _OUT_COUNT)
                self._move(table, "kg_rows_home", self._tables[name], self._out[name], "evicted", _OUT_COUNT)
        self._lane.mark_steps(self._placed)

    def stage(self, lookup: Lookup) -> None:
        """Send row numbers, and fetch: the lane's work until the steps of `commit` wait for it."""
        self._lane.wait(self._read)  # the header on the host is free again
        header = self._header
        header[:8].view(np.int32)[:] = len(lookup.missing), len(lookup.freed)
        for part, (at, dtype) in self._parts.items():
            values = getattr(lookup, part)
            header[at : at + len(values) * dtype.itemsize].view(dtype)[:] = values
        header[self._ids_at : self._ids_at + lookup.slots.nbytes].view(lookup.slots.dtype)[:] = lookup.slots.reshape(-1)
        # What the lane overwrites on the device was read by the steps of the commit before.
        self._lane.upload(self._header_address, header, self._placed, self._read)
        fetch = self._moves["kg_rows_fetch"] if len(lookup.missing) else ()
        self._lane.start(fetch, None, self._sent)

    def commit(self, lookup: Lookup, dirty: Array) -> None:
        """Rows out, rows in, in the order of the steps."""
        self._lane.steps_wait(self._sent)
        if dirty.any():
            for move in self._moves["kg_rows_out"]:
                move.launch()
            self._lane.mark_steps(self._taken)
            self._lane.start(self._moves["kg_rows_home"], self._taken, self._home)
        if len(lookup.missing):
            for move in self._moves["kg_rows_in"]:
                move.launch()
        if lookup.outside:
            for table in self._cache.tables:
                if table.updated and table.name in self._places:  # an update may have written to it
                    row = row_bytes(table)
                    self._device.fill(self._places[table.name] + self._cache.rows * row, 0, row)
        if self._ids is None:
            self._lane.mark_steps(self._placed)

    def put_ids(self, lookup: Lookup) -> None:
        """Move them from the header, in the order of the steps."""
        if self._ids is not None:
            self._lane.move(self._ids, self._header_address + self._ids_at, self._ids_type.nbytes)
            self._lane.mark_steps(self._placed)

    def settle(self) -> None:
        """Wait for the rows on the way home."""
        self._lane.wait(self._home)

    def read(self, table: BoundTable, out: Array) -> None:
        """Download them."""
        self._device.download(self._places[table.name], out)

    def close(self) -> None:
        """Free blocks, after what is on its way; the tables are ordinary memory again."""
        self._lane.close()
        for address in self._held:
            self._device.free(address)
        self._held.clear()
        self._device.host.drop(f"the tables of cache {self._cache.ids!r}")
        self._header = np.empty(0, np.uint8)

    def _allocate(self, nbytes: int) -> int:
        address = self._device.allocate(-(-nbytes // _ALIGNMENT) * _ALIGNMENT)
        self._held.append(address)
        return address

    def _move(self, table: BoundTable, entry: str, rows: int, block: int, part: str, count: int) -> None:
        numbers, header = self._parts[part][0], self._header_address
        if entry in ("kg_rows_fetch", "kg_rows_home"):
            step = move_step(table, entry, (rows, block, header + numbers, header + count), _BUS_BLOCKS)
            self._moves[entry].append(self._lane.prepare(step, fixed))
        else:
            step = move_step(table, entry, (rows, block, header + numbers, header + count), _BLOCKS)
            self._moves[entry].append(self._device.prepare(step, fixed))
