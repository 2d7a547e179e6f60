"""Every operator's generated CUDA source compiles to a cubin: one call each in the normal run, all when slow."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kgrun.graphs.cubin import read_cubin
from kgrun.graphs.errors import CompileError, KgrunError
from kgrun.graphs.limits import check_launch, limits_of
from kgrun.graphs.operators import FAMILIES, all_schemas, infer
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.runtime.compile.nvrtc import compile_cuda
from kgrun.runtime.devices.cuda_arguments import layout
from kgrun.runtime.kernels.base import ClearOperand, CopyOperand, KernelCall, Lowered, Operand, cuda_kernel
from kgrun.runtime.kernels.cuda import linear
from kgrun.runtime.program import Pointer, Value
from tests.runtime.kernels.cuda.operator_calls import calls_of

pytest.importorskip("cuda.bindings")
OPS = sorted(all_schemas())
# Their shapes come from attributes or values, or they have an output whatever they are given.
NEVER_EMPTY = {
    "AffineGrid", "BlackmanWindow", "Constant", "ConstantOfShape", "ConvGrad", "DynamicQuantizeLinear", "Expand",
    "GatherGrad", "HammingWindow", "HannWindow", "LayerNormalizationGrad", "MelWeightMatrix", "RandomNormal",
    "RandomUniform", "Range", "Reshape", "Shape", "Size", "Unique",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _own_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "blas_available", lambda: False)


def lowered(call: OpCall) -> Lowered:
    return cuda_kernel(call.op)(call)


def kernels_of(calls: Iterable[OpCall]) -> list[tuple[OpCall, KernelCall]]:
    """One launch a distinct source."""
    found: dict[str, tuple[OpCall, KernelCall]] = {}
    for call in calls:
        for work in lowered(call).work:
            if isinstance(work, KernelCall):
                found.setdefault(str(work.code.text), (call, work))
    return list(found.values())


def fault_of(pair: tuple[OpCall, KernelCall], arch: str) -> str | None:
    """Why a launch cannot work: its source, its arguments, its limits; None when it can."""
    call, work = pair
    try:
        compiled = compile_cuda(str(work.code.text), name=work.code.label, arch=arch, options=work.code.options)
    except CompileError as error:
        return f"{call.op} {call.node}: {error.message}"
    facts = read_cubin(compiled.image)[work.code.entry]
    args = [Pointer(0) if isinstance(arg, Operand) else arg for arg in work.args]
    if tuple(layout(args)) != facts.parameters:
        return f"{call.op} {call.node}: {layout(args)} for {facts.parameters}"
    found = check_launch(limits_of(arch), work.grid, work.block, facts.static_shared, work.shared, facts.registers)
    return f"{call.op} {call.node}: {found}" if found else None


def faults(pairs: list[tuple[OpCall, KernelCall]], arch: str = "sm_90") -> list[str]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [fault for fault in pool.map(lambda pair: fault_of(pair, arch), pairs) if fault]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_of_every_operator_compiles(family: str) -> None:
    ops = [op for op in OPS if all_schemas()[op].family == family]
    pairs = kernels_of(call for op in ops for call in list(calls_of(op))[:1])
    assert pairs or family in ("views", "collectives")
    assert faults(pairs) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_call_compiles(family: str) -> None:
    ops = [op for op in OPS if all_schemas()[op].family == family]
    assert faults(kernels_of(call for op in ops for call in calls_of(op))) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_120"])
def test_other_architectures_compile(arch: str) -> None:
    wanted = ("Add", "Softmax", "ReduceSum", "MatMul", "Conv", "Transpose", "MaxPool", "Gather")
    assert faults(kernels_of(call for op in wanted for call in list(calls_of(op))[:4]), arch) == []


@pytest.mark.parametrize("op", OPS)
def test_every_operand_is_inside_the_call(op: str) -> None:
    for call in calls_of(op):
        result = lowered(call)
        for work in result.work:
            operands = (
                [arg for arg in work.args if isinstance(arg, Operand)]
                if isinstance(work, KernelCall)
                else [work.target, *([work.source] if isinstance(work, CopyOperand) else [])]
                if isinstance(work, CopyOperand | ClearOperand)
                else []
            )
            for operand in operands:
                if operand.role == "input":
                    assert call.input(operand.index).nbytes > operand.offset
                elif operand.role == "output":
                    assert call.outputs[operand.index].nbytes > operand.offset
                else:
                    assert result.workspace[operand.index] > operand.offset


def emptied(call: OpCall) -> Iterator[OpCall]:
    """The call as it is, and without elements along an axis of all operands, or of the first one.

    Operands whose values count stay as they are.
    """
    yield call
    for axis, first in itertools.product((0, 1, -1), (False, True)):
        types = [
            kind if kind is None or kind.value is not None or (first and position) else without_elements(kind, axis)
            for position, kind in enumerate(call.inputs)
        ]
        with contextlib.suppress(KgrunError):  # as the operator's rules forbid
            yield infer(call.op, call.node, types, call.attributes, len(call.outputs))


def without_elements(kind: TensorType, axis: int) -> TensorType:
    place = axis % max(len(kind.shape), 1)
    return TensorType(kind.dtype, tuple(0 if at == place else extent for at, extent in enumerate(kind.shape)))


@pytest.mark.parametrize("op", [op for op in OPS if all_schemas()[op].family != "collectives"])
def test_nothing_is_launched_for_an_empty_result(op: str) -> None:
    calls = [each for call in calls_of(op) for each in emptied(call)]
    works = [lowered(call).work for call in calls if all(out.size == 0 for out in call.outputs)]
    assert works == [()] * len(works)
    assert works or op in NEVER_EMPTY


def test_a_source_is_shared_by_shapes_of_one_rank() -> None:
    def text(*shape: int) -> str:
        x = TensorType("float32", shape)
        work = lowered(infer("Add", "n", [x, TensorType("float32", shape[-1:])], {})).work[0]
        assert isinstance(work, KernelCall)
        assert all(not isinstance(arg, Value) or len(arg.data) % 8 == 0 for arg in work.args)
        return str(work.code.text)

    assert text(3, 5) == text(70, 901)
    assert text(70, 900) == text(2, 3, 4)  # four elements at once
