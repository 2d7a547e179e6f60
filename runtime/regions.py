"""The regions of a plan on a device: allocated, filled so that nothing stale passes for a result, and addressed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from contextlib import ExitStack
from itertools import accumulate

from kgrun.graphs.errors import DoesNotFit
from kgrun.runtime.checks.skipped import POISON
from kgrun.runtime.devices.base import Device
from kgrun.runtime.host_memory import HostMemory
from kgrun.runtime.memory.plan_types import MemoryPlan, Placement
from kgrun.runtime.out_of_memory import add_rows


def limit_memory(device: Device, limit: int | None, host_limit: int | None) -> Callable[[], None]:
    """Let the device itself keep the limits of a session, on its memory and on the host's; the call that lifts them."""
    before, device.host = device.host, HostMemory(host_limit)
    device.limit_memory(limit)

    def lift() -> None:
        device.limit_memory(None)
        device.host = before

    return lift


def headroom(device: Device) -> int:
    """Bytes of a GPU that a pool leaves alone: 128 MiB, a 64th of a small one; none of the CPU's (U2)."""
    from kgrun.runtime.memory.pool import HEADROOM

    return 0 if device.info.kind == "cpu" else min(HEADROOM, device.info.total_memory // 64)


def plan_limit(device: Device, mode: str, limit: int | None) -> int | None:
    """Most bytes a plan may take: a pool never plans for more than the device has free now."""
    if mode != "pool":
        return limit
    free = device.free_memory(headroom(device))[0]
    return free if limit is None else min(limit, free)


class Regions:
    """Device memory of one plan: the static region, and the pieces of the dynamic one.

    Args:
        undo: gets what frees it.
        arena: where the dynamic region lies; None allocates it.

    Attributes:
        anywhere: an address inside, for buffers of no bytes; 0 where the plan has none.

    Raises:
        DoesNotFit: the device has no room; what was allocated is in `undo`.
    """

    def __init__(self, device: Device, plan: MemoryPlan, undo: ExitStack, arena: int | None = None) -> None:
        self._device, self._plan, self._undo = device, plan, undo
        self._static = self._allocate(plan.static_bytes) if plan.static_bytes else 0
        self._starts = list(accumulate(plan.blocks, initial=0))[:-1]
        if arena is None:
            self._blocks = [self._allocate(nbytes) for nbytes in plan.blocks]
        else:
            self._blocks = [arena + start for start in self._starts]
        self.anywhere = self._static or next(iter(self._blocks), 0)

    def _allocate(self, nbytes: int) -> int:
        try:
            address = self._device.allocate(nbytes)
        except DoesNotFit as error:
            add_rows(error, self._plan)
            raise
        self._undo.callback(self._device.free, address)
        self._device.fill(address, POISON, nbytes)
        return address

    def address(self, place: Placement) -> int:
        """Where a placement lies on the device."""
        if place.space == "static":
            return self._static + place.offset
        block = bisect_right(self._starts, place.offset) - 1
        return self._blocks[block] + place.offset - self._starts[block]
