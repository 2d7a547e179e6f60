"""The runtime of the CPU device: its CUDA C, compiled to PTX by NVRTC once and kept in the compile cache."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable
from functools import cache
from importlib import resources

from kgrun.graphs.errors import KgrunError
from kgrun.runtime.compile.cache import default_cache
from kgrun.runtime.compile.nvrtc import compile_cuda
from kgrun.runtime.compile.ptx import context, jit, lower
from kgrun.runtime.compile.ptx.layout import c_text
from kgrun.runtime.compile.ptx.parse import Module, parse_module

_parsing = threading.Lock()
_loading = threading.Lock()
_loaded: list[jit.LoadedCode] = []
_PARTS = (
    "numerics.cu",
    "mbarrier.cu",
    "matrix.cu",
    "collect.cu",
    "heap.cu",
    "checks.cu",
    "quick.cu",
    "warps.cu",
    "together.cu",
    "scheduler.cu",
)
# No contraction: error terms need each rounding. Relocatable: `kg_region` and `kg_step` are defined elsewhere.
_ONCE = '#define ONCE _Pragma("unroll 1")\n'  # the loops are short of time for nobody; unrolled they cost LLVM seconds
_OPTIONS = ("-fmad=false", "-rdc=true", "-std=c++17")


def source() -> str:
    """All of the runtime's CUDA C, the shared records first."""
    folder = resources.files("kgrun.runtime.compile.ptx")
    return c_text() + _ONCE + "".join((folder / name).read_text("utf-8") for name in _PARTS)


def module() -> Module:
    """The runtime, parsed; raises `DeviceUnavailable` where NVRTC is not installed."""
    with _parsing:
        return _module()


@cache
def _module() -> Module:
    compiled = compile_cuda(source(), name="kgrun-cpu-runtime.cu", arch="sm_80", options=_OPTIONS, kind="ptx")
    return parse_module(compiled.image.decode(), "kgrun-cpu-runtime")


_Worker = Callable[[int, int, int], int]


def worker() -> _Worker:
    """`worker(launch, blocks, slots)` runs blocks on the calling thread, without the GIL; see scheduler.cu."""
    return _callable(addresses(context.CORE_CODE)["kg_run"])


def merger() -> _Worker:
    """`merger(request, first, count)` compares the stamps that workers left; see quick.cu."""
    return _callable(addresses(context.MERGING_CODE)["kg_merge"])


def _callable(address: int) -> _Worker:
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32)(address)


def addresses(names: tuple[str, ...]) -> dict[str, int]:
    """Where the functions of one part of the runtime lie; code that is loaded from now on can call them by name."""
    with _loading:
        return _addresses(names)


def prepare_ahead() -> None:
    """`worker` for a thread that runs beside others: a failure is left to whoever needs the result."""
    with contextlib.suppress(KgrunError):
        worker()


@cache
def _addresses(names: tuple[str, ...]) -> dict[str, int]:
    code = jit.LoadedCode(jit.compile_ir(lower.lower_runtime(module(), names), default_cache()))
    _loaded.append(code)
    found = {name: code.address(name) for name in names}
    for name, address in found.items():
        jit.share(name, address)
    return found
