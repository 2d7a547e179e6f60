"""Where steps run. `open_device` picks one by name, `device_for` takes one that is open, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgrun.graphs.errors import UsageError
from kgrun.runtime.devices.base import Device

if TYPE_CHECKING:
    from contextlib import ExitStack

    from kgrun.runtime.devices.cuda_libraries import Precision


def open_device(name: str = "auto", *, precision: Precision = "float32") -> tuple[Device, str | None]:
    """The device called `name`: "cpu", "cuda", "cuda:N", or "auto": CUDA where it can be used, else the CPU.

    Args:
        precision: of products of float32 on a GPU; "tf32" lets tensor cores round their inputs to 10 bits.

    Returns:
        The device, and for "auto" on the CPU the reason why CUDA was not taken.

    Raises:
        UsageError: a name that is none, or an ordinal that does not exist.
        DeviceUnavailable: CUDA was asked for and cannot be used.
    """
    kind, _, ordinal = name.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (ordinal and (kind != "cuda" or not ordinal.isdigit())):
        raise UsageError(f"unknown device {name!r}", code="KG202", help="devices: auto, cpu, cuda, cuda:N")
    reason = None
    if kind == "auto":
        from kgrun.runtime.devices.cuda import gpu_status

        usable, reason, _ = gpu_status()
        kind = "cuda" if usable else "cpu"
        reason = None if usable else reason
    if kind == "cuda":
        from kgrun.runtime.devices.cuda import CudaDevice

        return CudaDevice(int(ordinal or 0), precision=precision), None
    from kgrun.runtime.devices.cpu import CpuDevice

    return CpuDevice(), reason


def device_for(device: str | Device, undo: ExitStack, *, precision: Precision = "float32") -> tuple[Device, str | None]:
    """As `open_device`, closed by `undo`; a device that is open already is taken as it is, and stays open."""
    if not isinstance(device, str):
        return device, None
    opened, reason = open_device(device, precision=precision)
    undo.callback(opened.close)
    return opened, reason
