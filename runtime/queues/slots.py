"""Where a queue's batches lie until a run takes them: host memory, or pinned memory and a copy of it on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.host_copies import HostCopies

if TYPE_CHECKING:
    from kgrun.runtime.devices.base import CopyLane, Device

Array = np.ndarray[Any, Any]
ALIGNMENT = 512


class Slots(Protocol):
    """The slots of one ring. A producer fills, the consumer takes; never both the same slot at once."""

    capacity: int

    def fill(self, slot: int, arrays: Sequence[Array]) -> None:
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
        self.capacity = capacity
        self._device = device
        self._slots = [tuple(np.empty(t.shape, numpy_dtype(t.dtype)) for t in types) for _ in range(capacity)]

    def fill(self, slot: int, arrays: Sequence[Array]) -> None:
        """Copy a batch in."""
        for place, array in zip(self._slots[slot], arrays, strict=True):
            np.copyto(place, array)

    def arrays(self, slot: int) -> tuple[Array, ...]:
        """The batch."""
        return self._slots[slot]

    def take(self, slot: int, targets: Mapping[int, int]) -> None:
        """Copy items to their addresses."""
        for item, address in targets.items():
            self._device.upload(address, self._slots[slot][item])

    def close(self) -> None:
        """Nothing to give back."""


class LaneSlots:
    """Slots of a GPU: a block of pinned memory and one on the device each; the copy between runs beside the steps.

    Slot i is filled again only when its earlier copy to the device ended (its block is then free), and copied again
    only after the steps that took it from there.
    """

    def __init__(self, device: Device, lane: CopyLane, types: Sequence[TensorType], capacity: int) -> None:
        self.capacity = capacity
        self._device, self._lane, self._layout = device, lane, _Layout(types)
        self._stride = max(self._layout.nbytes, ALIGNMENT)
        self._base = device.allocate(self._stride * capacity)
        self._copies = HostCopies()
        self._blocks = [lane.host_block(self._stride) for _ in range(capacity)]
        self._views = [self._layout.views(block) for block in self._blocks]
        self._copied = [lane.new_mark() for _ in range(capacity)]
        self._taken = [lane.new_mark() for _ in range(capacity)]

    def fill(self, slot: int, arrays: Sequence[Array]) -> None:
        """Copy a batch in and start its way to the device."""
        self._lane.wait(self._copied[slot])
        for place, array in zip(self._views[slot], arrays, strict=True):
            self._copies.copy(place, array)
        address = self._base + slot * self._stride
        self._lane.upload(address, self._blocks[slot], after=self._taken[slot], mark=self._copied[slot])

    def arrays(self, slot: int) -> tuple[Array, ...]:
        """The batch, in pinned memory."""
        return self._views[slot]

    def take(self, slot: int, targets: Mapping[int, int]) -> None:
        """Let steps wait for the copy, then move the items on the device."""
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
        self._blocks.clear()
