"""Whether a GPU can be used, and why not: for `doctor` and `--device auto`. Imports nothing heavy at first."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from typing import NamedTuple

from kgrun.graphs.errors import DeviceUnavailable
from kgrun.graphs.records import dataclass


@dataclass(frozen=True, slots=True)
class StatusRow:
    """One part: `ok`, what was found, and what to do where it is missing. `needed`: without it no GPU is usable."""

    name: str
    ok: bool
    found: str
    help: str | None = None
    needed: bool = True


class GpuStatus(NamedTuple):
    """Whether a GPU can be used; `reason` is one line, empty when it can."""

    usable: bool
    reason: str
    rows: tuple[StatusRow, ...]


_INSTALL = "pip install 'kgrun[cuda]'"


def gpu_status() -> GpuStatus:
    """What is there and what is missing, in the order in which a run needs it. Makes no context."""
    rows = [_package("PyCUDA", "pycuda", "pycuda", _INSTALL)]
    rows.append(_package("cuda-bindings (NVRTC, graphs)", "cuda.bindings", "cuda-bindings", _INSTALL))
    rows += _devices(rows[0].ok)
    help = "pip install 'nvmath-python[cu13]' for cuBLAS; kgrun's own kernels are used without it"
    rows.append(_package("cuBLAS through nvmath-python", "nvmath", "nvmath-python", help, needed=False))
    broken = [row for row in rows if row.needed and not row.ok]
    reason = f"{broken[0].name}: {broken[0].found}" if broken else ""
    return GpuStatus(not broken, reason, tuple(rows))


def _package(name: str, module: str, distribution: str, help: str, needed: bool = True) -> StatusRow:
    try:
        there = importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        there = False
    if not there:
        return StatusRow(name, False, "not installed", help, needed)
    try:
        return StatusRow(name, True, metadata.version(distribution), None, needed)
    except metadata.PackageNotFoundError:
        return StatusRow(name, True, "version unknown", None, needed)


def _devices(pycuda: bool) -> list[StatusRow]:
    if not pycuda:
        return [_driver_library()]
    from kgrun.runtime.devices.cuda_pycuda import load_pycuda

    try:
        cuda = load_pycuda()
    except DeviceUnavailable as error:
        return [StatusRow("GPU", False, error.message, error.help)]
    version = cuda.get_driver_version()
    rows = [StatusRow("NVIDIA driver", True, f"CUDA {version // 1000}.{version % 1000 // 10}")]
    for index in range(cuda.Device.count()):
        device = cuda.Device(index)
        capability = "{}.{}".format(*device.compute_capability())
        memory = device.total_memory() / 2**30
        rows.append(StatusRow(f"cuda:{index}", True, f"{device.name()}, {memory:.0f} GiB, capability {capability}"))
    return rows


def _driver_library() -> StatusRow:
    import ctypes
    import sys

    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        ctypes.CDLL(name)
    except OSError:
        return StatusRow("NVIDIA driver", False, f"{name} was not found", "install NVIDIA's driver")
    return StatusRow("NVIDIA driver", True, name)
