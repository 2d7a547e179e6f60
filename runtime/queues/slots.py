"""Where a queue's batches lie until a run takes them: host memory, or pinned memory and a copy of it on the device.

What one core copies is a fraction of what the bus moves. So batches that are slices of arrays which stay in memory are
not copied on the host at all: those arrays are pinned where they lie.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.host_copies import HostCopies
from kgrun.runtime.host_memory import total_memory
from kgrun.runtime.queues.picked import Picked, put

if TYPE_CHECKING:
    from kgrun.runtime.devices.base import CopyLane, Device

Array = np.ndarray[Any, Any]
ALIGNMENT = 512
WORTH_PINNING, MOST_PINNED = 1 << 20, 4 << 30  # bytes of an array; pinning takes 0.7 s a GiB


class Slots(Protocol):
    """The slots of one ring. A producer fills, the consumer takes; never both the same slot at once."""

    capacity: int
    filled_ns: int  # what `fill` took to copy on the host

    def fill(self, slot: int, arrays: Sequence[Array | Picked]) -> None:
        """Copy a batch in; the arrays may be reused afterwards."""
        ...

    def arrays(self, slot: int) -> tuple[Array, ...]:
        """The batch as host arrays."""
        ...

    def take(self, slot: int, targets: Mapping[int, int]) -> None:
        """Copy items to their addresses (item index: address), in order with steps; the slot may then be filled."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...


class _Layout:
    """Items of a batch in one block, each at a multiple of ALIGNMENT."""

    def __init__(self, types: Sequence[TensorType]) -> None:
        self.types = types
        self.offsets: list[int] = []
        self.nbytes = 0
        for kind in types:
            self.offsets.append(self.nbytes)
            self.nbytes += -(-kind.nbytes // ALIGNMENT) * ALIGNMENT

    def views(self, block: Array) -> tuple[Array, ...]:
        """The items as arrays over a block of bytes."""
        return tuple(
            block[start : start + kind.nbytes].view(numpy_dtype(kind.dtype)).reshape(kind.shape)
            for start, kind in zip(self.offsets, self.types, strict=True)
        )


class HostSlots:
    """Slots for a device that steps through host memory."""

    def __init__(self, device: Device, types: Sequence[TensorType], capacity: int) -> None:
        self.capacity, self.filled_ns = capacity, 0
        self._device, self._copies = device, HostCopies()
        self._slots = [tuple(np.empty(t.shape, numpy_dtype(t.dtype)) for t in types) for _ in range(capacity)]

    def fill(self, slot: int, arrays: Sequence[Array | Picked]) -> None:
        """Copy a batch in."""
        started = time.perf_counter_ns()
        for place, array in zip(self._slots[slot], arrays, strict=True):
            put(self._copies, place, array)
        self.filled_ns += time.perf_counter_ns() - started

    def arrays(self, slot: int) -> tuple[Array, ...]:
        """The batch."""
        return self._slots[slot]

    def take(self, slot: int, targets: Mapping[int, int]) -> None:
        """Copy items to their addresses."""
        for item, address in targets.items():
            self._device.upload(address, self._slots[slot][item])

    def close(self) -> None:
        """End the copying threads."""
        self._copies.close()


class LaneSlots:
    """Slots of a GPU: a block of pinned memory and one on the device each; the copy between runs beside the steps.

    Slot i is filled again only when its earlier copy to the device ended (its block is then free), and copied again
    only after the steps that took it from there.

    Args:
        held: arrays that keep their values while the queue lives: their parts are sent from where they lie.
        sent: which items go to the device at all; None: each.
    """

    def __init__(
        self,
        device: Device,
        lane: CopyLane,
        types: Sequence[TensorType],
        capacity: int,
        held: Sequence[Array] = (),
        sent: Sequence[bool] | None = None,
    ) -> None:
        self.capacity, self.filled_ns = capacity, 0
        self._device, self._lane, self._layout = device, lane, _Layout(types)
        self._sent = [True] * len(types) if sent is None else list(sent)
        self._sends = any(self._sent)
        self._stride = max(self._layout.nbytes, ALIGNMENT)
        self._base = device.allocate(self._stride * capacity)
        self._copies = HostCopies()
        self._blocks = [lane.host_block(self._stride) for _ in range(capacity)]
        self._views = [self._layout.views(block) for block in self._blocks]
        self._batches = list(self._views)
        self._pinned = [_extent(array) for array in held if _can_be_pinned(array) and lane.map_host(array) is not None]
        self._copied = [lane.new_mark() for _ in range(capacity)]
        self._taken = [lane.new_mark() for _ in range(capacity)]

    def fill(self, slot: int, arrays: Sequence[Array | Picked]) -> None:
        """Copy a batch in, or what of it is not pinned already, and start its way to the device."""
        views, address = self._views[slot], self._base + slot * self._stride
        direct = [self._is_pinned(array) for array in arrays]
        if not all(direct):
            if self._sends:
                self._lane.wait(self._copied[slot])
            started = time.perf_counter_ns()
            for place, array, pinned in zip(views, arrays, direct, strict=True):
                if not pinned:
                    put(self._copies, place, array)
            self.filled_ns += time.perf_counter_ns() - started
        after, mark = self._taken[slot], self._copied[slot]
        if not any(direct):
            self._batches[slot] = views
            if all(self._sent):
                self._lane.upload(address, self._blocks[slot], after, mark)
                return
        else:
            chosen = zip(views, arrays, direct, strict=True)
            self._batches[slot] = tuple(cast("Array", item) if pinned else view for view, item, pinned in chosen)
        if not self._sends:
            return
        # The last copy sets the mark for all: nobody waits for it before this returns.
        for offset, array, sent in zip(self._layout.offsets, self._batches[slot], self._sent, strict=True):
            if sent:
                self._lane.upload(address + offset, array.reshape(-1).view(np.uint8), after, mark)

    def arrays(self, slot: int) -> tuple[Array, ...]:
        """The batch, in pinned memory."""
        return self._batches[slot]

    def take(self, slot: int, targets: Mapping[int, int]) -> None:
        """Let steps wait for the copy, then move the items on the device."""
        if not self._sends:
            return
        self._lane.steps_wait(self._copied[slot])
        for item, address in targets.items():
            kind, offset = self._layout.types[item], self._layout.offsets[item]
            self._lane.move(address, self._base + slot * self._stride + offset, kind.nbytes)
        self._lane.mark_steps(self._taken[slot])

    def close(self) -> None:
        """Free the slots on the device, after the copies."""
        self._copies.close()
        self._lane.close()
        self._device.free(self._base)
        self._views.clear()
        self._batches.clear()
        self._blocks.clear()

    def _is_pinned(self, array: Array | Picked) -> bool:
        if not self._pinned or isinstance(array, Picked):
            return False
        start, end = _extent(array)
        return array.flags.c_contiguous and any(first <= start and end <= last for first, last in self._pinned)


def _extent(array: Array) -> tuple[int, int]:
    start = int(array.ctypes.data)
    return start, start + array.nbytes


def _can_be_pinned(array: Array) -> bool:
    """Ordinary memory of numpy's that may be written: pinning a mapped file would read, or copy, all of it."""
    owner: Any = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    flags, fits = array.flags, WORTH_PINNING <= array.nbytes <= min(MOST_PINNED, total_memory() // 4)
    return owner.flags.owndata and flags.c_contiguous and flags.writeable and fits
