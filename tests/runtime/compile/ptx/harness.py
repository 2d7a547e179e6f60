"""Compile a kernel's CUDA C, launch it on the CPU with numpy arrays, and compare with a numpy reference."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from kgrun.runtime.compile.nvrtc import compile_cuda
from kgrun.runtime.compile.ptx.launch import BufferInfo
from kgrun.runtime.compile.ptx.module import LaunchResult, PtxModule, load_ptx
from kgrun.runtime.compile.ptx.syntax import align_up

ALL_CHECKS = frozenset(("bounds", "race", "init", "barrier"))
Value = Any  # a numpy array (passed by address), a numpy scalar or bytes (passed by value)


@dataclass(frozen=True)
class Case:
    """One kernel with its arguments; `expect` maps argument positions to the arrays that must be there after."""

    name: str
    source: str
    args: Callable[[], list[Value]]
    expect: Callable[..., dict[int, Any]]
    grid: Any = 1
    block: Any = 32
    shared: int = 0
    rtol: float = 0.0
    atol: float = 0.0
    entry: str = "k"
    options: tuple[str, ...] = ()
    outputs: tuple[int, ...] = ()  # arguments that hold no data before the launch


@dataclass(frozen=True)
class Bug:
    """A kernel with a planted fault: its kind, and the words on the source line that must be named."""

    name: str
    source: str
    kind: str
    line: str
    args: Callable[[], list[Value]]
    grid: Any = 1
    block: Any = 32
    shared: int = 0
    readonly: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    thread: tuple[int, int, int] | None = None
    block_index: tuple[int, int, int] | None = None
    also: frozenset[str] = field(default_factory=frozenset)


@cache
def compiled(source: str, options: tuple[str, ...], checks: frozenset[str]) -> PtxModule:
    ptx = compile_cuda(source, name="kernel.cu", arch="sm_80", options=options, kind="ptx").image.decode()
    return load_ptx(ptx, name="kernel.cu", checks=checks)


def dims(value: Any) -> tuple[int, int, int]:
    given = (value,) if isinstance(value, int) else tuple(value)
    return (*given, 1, 1, 1)[:3]  # type: ignore[return-value]


def pack(args: Sequence[Value]) -> bytes:
    """The packed argument buffer."""
    data = b""
    for arg in args:
        if isinstance(arg, np.ndarray):
            piece, align = struct.pack("<Q", arg.ctypes.data), 8
        elif isinstance(arg, bytes):
            piece, align = arg, 8
        else:
            piece, align = arg.tobytes(), arg.itemsize
        data = data.ljust(align_up(len(data), align), b"\0") + piece
    return data


def launch(
    source: str,
    args: Sequence[Value],
    *,
    grid: Any = 1,
    block: Any = 32,
    shared: int = 0,
    entry: str = "k",
    options: tuple[str, ...] = (),
    checks: frozenset[str] = frozenset(),
    schedule: str = "forward",
    readonly: tuple[int, ...] = (),
    outputs: tuple[int, ...] = (),
    threads: int | None = None,
    timeout_s: float | None = 30,
) -> LaunchResult:
    """Launch on `args` in place."""
    module = compiled(source, options, checks)
    if entry not in module.entries and len(module.entries) == 1:
        entry = module.entries[0]
    buffers = [
        BufferInfo(f"arg{place}", arg.ctypes.data, arg.nbytes, place in readonly, place not in outputs)
        for place, arg in enumerate(args)
        if isinstance(arg, np.ndarray)
    ]
    return module.kernel(entry).launch(
        dims(grid),
        dims(block),
        shared,
        pack(args),
        buffers=buffers,
        schedule=schedule,
        threads=threads,
        timeout_s=timeout_s,
    )


def check_case(
    case: Case, checks: frozenset[str] = frozenset(), schedule: str = "forward", threads: int | None = None
) -> LaunchResult:
    """Run a case and compare; integers must be equal, floats within the case's tolerance."""
    args = case.args()
    before = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args]
    result = launch(
        case.source,
        args,
        grid=case.grid,
        block=case.block,
        shared=case.shared,
        entry=case.entry,
        options=case.options,
        checks=checks,
        schedule=schedule,
        outputs=case.outputs,
        threads=threads,
    )
    assert [str(fault) for fault in result.faults] == []
    for place, want in case.expect(*before).items():
        got = args[place]
        if got.dtype.kind in "iub":
            np.testing.assert_array_equal(got, want, err_msg=f"{case.name}, argument {place}")
        else:
            np.testing.assert_allclose(
                got.astype(np.float64), np.asarray(want, np.float64), case.rtol, case.atol, err_msg=case.name
            )
    return result


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def floats(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return rng(seed).standard_normal(shape).astype(np.float32)


def ints(*shape: int, low: int = -1000, high: int = 1000, seed: int = 0) -> np.ndarray[Any, Any]:
    return rng(seed).integers(low, high, shape, dtype=np.int32)
