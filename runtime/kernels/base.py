"""How a builtin operator becomes work: one table a device, from operator name to lowering.

A CPU kernel is a function `OpCall -> HostFunction`; a CUDA kernel is `OpCall -> Lowered`. An operator whose output
shapes depend on its inputs' elements (`OpSchema.dynamic`) has a kernel `OpCall -> DynamicFunction` besides, which
returns its results instead of filling given arrays. Families register theirs on import; `cpu_kernel`, `cuda_kernel` and
`dynamic_kernel` import the family that the operator's schema names, so nothing else is loaded.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kgrun.graphs.bound import Dim3
from kgrun.graphs.errors import DeviceUnavailable
from kgrun.graphs.operators import all_schemas
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.records import dataclass
from kgrun.runtime.program import KernelCode, Value

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

HostFunction = Callable[[Sequence["Array | None"], Sequence["Array"]], None]
# Host arrays of the inputs in, one fresh array an output asked for out, each of its exact shape.
DynamicFunction = Callable[[Sequence["Array | None"]], "list[Array]"]


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of an operator by role and position; `offset` in bytes."""

    role: Literal["input", "output", "workspace"]
    index: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One kernel launch of a lowered operator."""

    code: KernelCode
    args: tuple[Operand | Value | None, ...]
    grid: Dim3
    block: Dim3
    shared: int = 0


@dataclass(frozen=True, slots=True)
class LibraryRoutine:
    """One library call of a lowered operator; `config` holds plain values; `otherwise` stands in for it."""

    library: str
    routine: str
    config: Mapping[str, Any]
    args: tuple[Operand | None, ...]
    otherwise: KernelCall | None = None


@dataclass(frozen=True, slots=True)
class ClearOperand:
    """Zero an operand before what follows."""

    target: Operand
    nbytes: int


@dataclass(frozen=True, slots=True)
class CopyOperand:
    """Copy bytes between operands."""

    target: Operand
    source: Operand
    nbytes: int


LoweredWork = KernelCall | LibraryRoutine | ClearOperand | CopyOperand


@dataclass(frozen=True, slots=True)
class Lowered:
    """What an operator does on a device: work in order, and the scratch blocks (bytes) it needs meanwhile."""

    work: tuple[LoweredWork, ...]
    workspace: tuple[int, ...] = ()


CpuKernel = Callable[[OpCall], HostFunction]
CudaKernel = Callable[[OpCall], Lowered]
DynamicKernel = Callable[[OpCall], DynamicFunction]
_T = TypeVar("_T")
_CPU: dict[str, CpuKernel] = {}
_CUDA: dict[str, CudaKernel] = {}
_DYNAMIC: dict[str, DynamicKernel] = {}


def on_cpu(*ops: str) -> Callable[[CpuKernel], CpuKernel]:
    """Register the CPU kernel of operators."""

    def add(kernel: CpuKernel) -> CpuKernel:
        _CPU.update(dict.fromkeys(ops, kernel))
        return kernel

    return add


def on_cuda(*ops: str) -> Callable[[CudaKernel], CudaKernel]:
    """Register the CUDA lowering of operators."""

    def add(kernel: CudaKernel) -> CudaKernel:
        _CUDA.update(dict.fromkeys(ops, kernel))
        return kernel

    return add


def on_dynamic(*ops: str) -> Callable[[DynamicKernel], DynamicKernel]:
    """Register the kernel of operators whose output shapes depend on their inputs' elements.

    Where the shapes turn out to be known at bind time, the operator runs as any other: its CPU kernel is the same
    function, copied into the outputs.
    """

    def add(kernel: DynamicKernel) -> DynamicKernel:
        _DYNAMIC.update(dict.fromkeys(ops, kernel))
        _CPU.update(dict.fromkeys(ops, lambda call: _filling(kernel(call))))
        return kernel

    return add


def _filling(function: DynamicFunction) -> HostFunction:
    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        for target, result in zip(outputs, function(inputs), strict=True):
            target[...] = result

    return run


def cpu_kernel(op: str) -> CpuKernel:
    """The CPU kernel of `op`; DeviceUnavailable when it has none."""
    return _find(op, "cpu", _CPU)


def cuda_kernel(op: str) -> CudaKernel:
    """The CUDA lowering of `op`; DeviceUnavailable when it has none."""
    return _find(op, "cuda", _CUDA)


def dynamic_kernel(op: str) -> DynamicKernel:
    """The kernel of dynamic operator `op`, over host arrays whatever the device; DeviceUnavailable when it has none."""
    return _find(op, "cpu", _DYNAMIC)


def _find(op: str, target: str, table: dict[str, _T]) -> _T:
    if op not in table:
        importlib.import_module(f"kgrun.runtime.kernels.{target}.{all_schemas()[op].family}")
    if op not in table:
        raise DeviceUnavailable(f"operator {op} has no {target} kernel", code="KG710")
    return table[op]
