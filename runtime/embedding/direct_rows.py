"""Rows of a GPU's cache where the tables fit into pinned host memory: one kernel moves them, over the bus.

Lookups lie in pinned memory too, and nothing is sent: the kernel reads a batch's lookup, takes the rows out of the
cache that leave and writes them to their tables, puts those in that are missing, and fetches the batch's indices. It
goes on beside the run of the batch before, on a lane, once the run before that has ended; only the indices are put
where the graph reads ids between the two runs. So the bus is busy while the GPU computes.

No row that the run uses may leave meanwhile. Those leave first that were used longest ago; so none that the batch
before uses does as long as its rows and those of this batch fit into the cache together. Where they do not, or where
ids lie outside the table, whose zeros an update may have written to, the kernel waits for the run's end. A row that
leaves and comes back is whole, since a lane's kernels run in order.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.bound import BoundCache, BoundTable
from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.errors import DoesNotFit, KgrunError
from kgrun.graphs.operators.base import TensorType
from kgrun.graphs.records import dataclass
from kgrun.runtime.embedding.index import Block, Lookup
from kgrun.runtime.embedding.moves import exchange_step, fixed, row_bytes
from kgrun.runtime.host_copies import HostCopies
from kgrun.runtime.host_memory import available_memory
from kgrun.runtime.queues.base import UNDER_WAY

if TYPE_CHECKING:
    from kgrun.runtime.devices.base import CopyLane, Device, PreparedStep

Array = np.ndarray[Any, Any]

SHARE = 0.25  # of the host's free memory that tables may take for good
_ALIGNMENT = 512


@dataclass(frozen=True, slots=True)
class Pinned:
    """Host memory that the device reaches, for as long as the lane is open.

    Attributes:
        tables: addresses on the device, by name.
        blocks: one row of bytes for each lookup; the first is at `address` on the device.
    """

    lane: CopyLane
    tables: Mapping[str, int]
    blocks: Array
    address: int


def pin_tables(
    device: Device, cache: BoundCache, tables: dict[str, Array], ids: TensorType, blocks: int
) -> Pinned | None:
    """Put the tables into pinned memory, `tables` itself changed, and make pinned blocks for so many lookups.

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
    stride = Block.offsets(ids.size)["end"]
    name, copies, found = f"the tables of cache {cache.ids!r}", HostCopies(), None
    pinned: dict[str, Array] = {}
    try:
        device.host.hold(name, nbytes + blocks * stride)
        # Pages of its own: memory is pinned by the page, and each page once.
        memory = np.frombuffer(mmap.mmap(-1, blocks * stride), np.uint8).reshape(blocks, stride)
        addresses = {}
        for table, array in zip(cache.tables, wanted, strict=True):
            pinned[table.name] = np.empty(array.shape, array.dtype)
            copies.copy(pinned[table.name], array)
            addresses[table.name] = lane.map_host(pinned[table.name])
        at = lane.map_host(memory)
        mapped = {name: address for name, address in addresses.items() if address is not None}
        if at is not None and len(mapped) == len(wanted):
            found = Pinned(lane, mapped, memory, at)
    except DoesNotFit:
        pass
    finally:
        copies.close()
    if found is None:
        lane.close()
        device.host.drop(name)
        return None
    tables.update(pinned)
    return found


class DirectRows:
    """Implements `rows.Rows` over tables and lookups that the device reaches.

    Args:
        pinned: of `pin_tables`.
        ids: the type of the queue item, whose size bounds the rows that a batch can miss.
    """

    overlaps = True

    def __init__(self, device: Device, cache: BoundCache, pinned: Pinned, ids: TensorType) -> None:
        self._device, self._cache, self._pinned, self._type = device, cache, pinned, ids
        self._lane = pinned.lane
        dtype = numpy_dtype(ids.dtype)
        self._blocks = [Block.over(memory, ids.size, dtype, turn) for turn, memory in enumerate(pinned.blocks)]
        self._read = [self._lane.new_mark() for _ in self._blocks]  # the device is through with it
        self._last = self._read[0]
        # Each block's indices, on their way to where the graph reads them.
        self._stride = -(-ids.nbytes // _ALIGNMENT) * _ALIGNMENT
        self._staged = device.allocate(self._stride * len(self._blocks))
        self._ids: int | None = None
        self._free, self._ended = self._lane.new_mark(), self._lane.new_mark()
        self._rows_before = 0  # that the batch before uses
        self._numbers = [-1] * len(self._blocks)  # of the batches in them
        self._issued = self._through = -1  # the last batch that the device was told to move, and is known to be through
        self._places: Mapping[str, int] = {}
        self._moves: list[list[PreparedStep]] = []

    def attach(self, places: Mapping[str, int], ids: int | None) -> None:
        """Prepare the kernels for these addresses, and clear the caches."""
        self._places, self._ids, self._rows_before = places, ids, 0
        self._moves = [[] for _ in self._blocks]
        at = Block.offsets(self._type.size)
        for table in self._cache.tables:
            if table.name not in places:
                continue
            self._device.fill(places[table.name], 0, (self._cache.rows + 1) * row_bytes(table))
            words = 0 if ids is None else self._type.nbytes // 4  # the first table's kernel fetches them
            for turn, moves in enumerate(self._moves):
                start = self._pinned.address + turn * at["end"]
                parts = {name: start + offset for name, offset in at.items()}
                cached, home = places[table.name], self._pinned.tables[table.name]
                staged = self._staged + turn * self._stride if words else 0
                step = exchange_step(table, cached, home, parts, staged, words, self._cache.rows, self._type.size)
                moves.append(self._lane.prepare(step, fixed))
            ids = None
        self._lane.mark_steps(self._free)

    def block(self, number: int) -> Block:
        """They are taken in turn; the device was through with it long ago, unless it is far behind.

        Asking the driver gives the interpreter away, and takes long to get it back. So it is asked about as late a
        batch as is over in all likelihood: the one before all runs that may be under way.
        Its mark is set next for batch `number` or a later one, so that it means this one still.
        """
        turn, before = number % len(self._blocks), number - len(self._blocks)
        if before > self._through:
            last = max(before, self._issued - UNDER_WAY - 1)
            self._lane.wait(self._read[last % len(self._blocks)])
            self._through = last
        self._numbers[turn] = number
        return self._blocks[turn]

    def move(self, lookup: Lookup) -> None:
        """Issue a kernel for each table, beside the run that goes on if it may be."""
        turn, rows = lookup.block.turn, lookup.hit + lookup.missed
        after = self._free
        if lookup.outside or self._rows_before + rows > self._cache.rows:
            after = self._ended
            self._lane.mark_steps(after)
        self._last, self._rows_before = self._read[turn], rows
        self._lane.start(self._moves[turn], after, self._last)
        self._issued = self._numbers[turn]

    def put_ids(self, lookup: Lookup) -> None:
        """Move them in the order of the steps, once the rows are there; the runs before have then ended."""
        turn = lookup.block.turn
        self._lane.steps_wait(self._read[turn])
        if self._ids is not None:
            self._lane.move(self._ids, self._staged + turn * self._stride, self._type.nbytes)
        self._lane.mark_steps(self._free)

    def settle(self) -> None:
        """Wait for the kernels."""
        self._lane.wait(self._last)

    def read(self, table: BoundTable, out: Array) -> None:
        """Download them."""
        self._device.download(self._places[table.name], out)

    def close(self) -> None:
        """After what is on its way, the tables are ordinary memory again."""
        with contextlib.suppress(KgrunError):  # a device that is lost, or closed, moves nothing
            self._device.synchronize()
        self._lane.close()
        self._device.free(self._staged)
        self._device.host.drop(f"the tables of cache {self._cache.ids!r}")
        self._blocks.clear()
