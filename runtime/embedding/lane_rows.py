"""Rows of a GPU's cache: gathered into pinned blocks while a run goes on, moved into place between two runs.

While run k goes on, the host gathers the rows that run k+1 misses into a pinned block and sends it on a lane. Between
the runs, in the order of the steps, a kernel takes the evicted rows out of the cache and another puts the missing ones
in; so no row leaves or changes while a run may use it. The evicted rows go home on a second lane while run k+1 goes on,
and are in their table before anything is gathered from it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.bound import BoundCache, BoundTable
from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.embedding.index import Block, Lookup
from kgrun.runtime.embedding.moves import fixed, move_step, row_bytes
from kgrun.runtime.embedding.rows import host_blocks
from kgrun.runtime.host_copies import HostCopies

if TYPE_CHECKING:
    from kgrun.runtime.devices.base import CopyLane, Device, PreparedStep

Array = np.ndarray[Any, Any]

_ALIGNMENT = 512
_BLOCKS = 1_024
_IN_COUNT, _OUT_COUNT = 0, 4  # bytes into the header


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


class _Side:
    """Blocks of one table for one direction: on the device and pinned, each for as many rows as a batch has ids."""

    def __init__(self, device: Device, lane: CopyLane, table: BoundTable, rows: int) -> None:
        self.row_bytes = row_bytes(table)
        self.address = device.allocate(_aligned(rows * self.row_bytes))
        self.block = lane.host_block(_aligned(rows * self.row_bytes))
        self.rows: Array = (
            self.block[: rows * self.row_bytes].view(numpy_dtype(table.dtype)).reshape(rows, *table.shape[1:])
        )


class LaneRows:
    """Implements `rows.Rows` over two lanes.

    Args:
        ids: the type of the queue item, whose size bounds the rows that a batch can miss.
    """

    overlaps = True

    def __init__(
        self, device: Device, cache: BoundCache, tables: Mapping[str, Array], ids: TensorType, blocks: int
    ) -> None:
        inward, outward = device.copy_lane(), device.copy_lane()
        assert inward is not None
        assert outward is not None
        self._device, self._cache, self._tables, self._ids_type = device, cache, tables, ids
        self._inward, self._outward = inward, outward
        self._copies = HostCopies()
        most = min(ids.size, cache.rows)
        # The header: two counts, slots to fill, slots to empty, ids.
        self._slots_at = _ALIGNMENT
        self._freed_at = self._slots_at + _aligned(4 * most)
        self._ids_at = self._freed_at + _aligned(4 * most)
        self._header_bytes = self._ids_at + _aligned(ids.nbytes)
        self._header = inward.host_block(self._header_bytes)
        self._header_address = device.allocate(self._header_bytes)
        self._in = {table.name: _Side(device, inward, table, most) for table in cache.tables}
        self._out = {table.name: _Side(device, outward, table, most) for table in cache.tables if table.updated}
        self._sent, self._taken, self._placed, self._home = (inward.new_mark() for _ in range(4))
        self._blocks = host_blocks(ids, blocks)
        self._ids: int | None = None
        self._places: Mapping[str, int] = {}
        self._moves: dict[tuple[str, bool], PreparedStep] = {}
        self._leaving: tuple[Array, int] | None = None  # row numbers on their way home, and how many

    def attach(self, places: Mapping[str, int], ids: int | None) -> None:
        """Prepare the kernels for these addresses, and clear the caches."""
        self._places, self._ids = places, ids
        self._moves.clear()
        for table in self._cache.tables:
            if table.name not in places:
                continue
            nbytes = (self._cache.rows + 1) * self._in[table.name].row_bytes
            self._device.fill(places[table.name], 0, nbytes)
            for inward in (True, False) if table.updated else (True,):
                self._moves[table.name, inward] = self._move(table, inward)
        self._inward.mark_steps(self._placed)

    def block(self, number: int) -> Block:
        """They are taken in turn; the device never reads them."""
        return self._blocks[number % len(self._blocks)]

    def move(self, lookup: Lookup) -> None:
        """Gather and send, the lane's work; then rows out and rows in, in the order of the steps."""
        self._send(lookup)
        self._exchange(lookup)

    def _send(self, lookup: Lookup) -> None:
        self.settle()
        self._inward.wait(self._sent)  # the blocks are free again
        header, count = self._header, len(lookup.missing)
        header[_IN_COUNT : _IN_COUNT + 4].view(np.int32)[0] = count
        self._put(self._slots_at, lookup.places.astype(np.int32))
        self._put(self._ids_at, np.ascontiguousarray(lookup.slots).reshape(-1))
        for name in self._places:
            side = self._in[name]
            self._copies.gather(self._tables[name], lookup.missing, side.rows[:count])
        # What the lane overwrites on the device was read by the steps of the exchange before.
        self._put_freed(lookup)
        self._inward.upload(self._header_address, header, self._placed, self._sent)
        if count:
            for name in self._places:
                side = self._in[name]
                self._inward.upload(side.address, side.block[: count * side.row_bytes], self._placed, self._sent)

    def _exchange(self, lookup: Lookup) -> None:
        self._inward.steps_wait(self._sent)
        leaving, count = lookup.evicted, len(lookup.evicted)
        if count and self._out:
            for name in self._out:
                if name in self._places:
                    self._moves[name, False].launch()
            self._outward.mark_steps(self._taken)
            for name, side in self._out.items():
                if name in self._places:
                    block = side.block[: count * side.row_bytes]
                    self._outward.download(block, side.address, self._taken, self._home)
            self._leaving = leaving, count
        if len(lookup.missing):
            for name in self._places:
                self._moves[name, True].launch()
        if lookup.outside:
            for name in self._places:
                row = self._in[name].row_bytes
                self._device.fill(self._places[name] + self._cache.rows * row, 0, row)
        self._inward.mark_steps(self._placed)

    def put_ids(self, lookup: Lookup) -> None:
        """Move them from the header, in the order of the steps."""
        if self._ids is not None:
            self._inward.move(self._ids, self._header_address + self._ids_at, self._ids_type.nbytes)
            self._inward.mark_steps(self._placed)

    def settle(self) -> None:
        """Wait for the rows on the way home, and write them to the tables."""
        if self._leaving is None:
            return
        ids, count = self._leaving
        self._outward.wait(self._home)
        for name, side in self._out.items():
            if name in self._places:
                self._copies.scatter(self._tables[name], ids, side.rows[:count])
        self._leaving = None

    def read(self, table: BoundTable, out: Array) -> None:
        """Download them."""
        self._device.download(self._places[table.name], out)

    def close(self) -> None:
        """Free blocks, after what is on its way."""
        self._copies.close()
        for lane in (self._inward, self._outward):
            lane.close()
        for side in (*self._in.values(), *self._out.values()):
            self._device.free(side.address)
        self._device.free(self._header_address)
        self._in.clear()
        self._out.clear()
        self._header = np.empty(0, np.uint8)

    def _put(self, at: int, values: Array) -> None:
        self._header[at : at + values.nbytes].view(values.dtype)[:] = values

    def _put_freed(self, lookup: Lookup) -> None:
        self._header[_OUT_COUNT : _OUT_COUNT + 4].view(np.int32)[0] = len(lookup.freed)
        self._put(self._freed_at, lookup.freed.astype(np.int32))

    def _move(self, table: BoundTable, inward: bool) -> PreparedStep:
        side = (self._in if inward else self._out)[table.name]
        slots, count = (self._slots_at, _IN_COUNT) if inward else (self._freed_at, _OUT_COUNT)
        entry, at = "kg_rows_in" if inward else "kg_rows_out", self._header_address
        addresses = self._places[table.name], side.address, at + slots, at + count
        return self._device.prepare(move_step(table, entry, addresses, _BLOCKS), fixed)
