"""Steps that a device cannot run: what counts as such, and what stands in for them."""

from __future__ import annotations

from collections.abc import Sequence

from kgrun.graphs.errors import KgrunError
from kgrun.runtime.devices.base import Device

# What a run leaves in memory that nothing wrote: NaN in every float type, so that an unwritten element cannot pass.
POISON = 0xFF
_CANNOT = ("KG703", "KG711")  # an operation without a meaning on the CPU; machine code of a GPU


def cannot_run(error: KgrunError) -> bool:
    """Whether `error` says that a kernel cannot run on the device at all, whatever is installed."""
    return error.code in _CANNOT


class SkippedStep:
    """Poisons what the step was to write: nothing stale may pass for its result.

    Args:
        ranges: (address, bytes) of what it writes.
    """

    method = "skipped"

    def __init__(self, device: Device, ranges: Sequence[tuple[int, int]]) -> None:
        self._device, self._ranges = device, ranges

    def launch(self) -> None:
        """Poison."""
        for address, nbytes in self._ranges:
            self._device.fill(address, POISON, nbytes)
