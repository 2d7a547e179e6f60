"""CUDA operator kernels, run as PTX on the CPU engine, give what the CPU kernels give: no GPU is needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.operators import FAMILIES, all_schemas, infer
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.runtime.kernels.base import cuda_kernel
from kgrun.runtime.kernels.cuda import linear
from tests.runtime.kernels.cuda import emulation
from tests.runtime.kernels.cuda.call_basics import known
from tests.runtime.kernels.cuda.emulation import compare, expected, inputs_for, run_lowered
from tests.runtime.kernels.cuda.operator_calls import calls_of

pytest.importorskip("llvmlite")
pytest.importorskip("cuda.bindings")
ALL_CHECKS = frozenset(("bounds", "race", "init", "barrier"))
# One for each generated kernel: linear and strided loops, copies, tiles, groups of 1, 32 and 256 threads, windows.
OFTEN = ("Add", "Cast", "Where", "Transpose", "Slice", "Gather", "Pad", "ReduceSum", "Softmax", "ArgMax", "MatMul")
OFTEN += ("LayerNormalization", "Gemm", "Conv", "MaxPool", "AveragePool", "Range")
OFTEN += (
    "SoftmaxCrossEntropyLoss",
    "ConvGrad",
    "GatherGrad",
    "QuantizeLinear",
    "LSTM",
    "BatchNormalization",
    "Attention",
)

RACED = ("Softmax", "ReduceSum", "ArgMax", "LayerNormalization", "Transpose", "MatMul", "Conv")
RACED += ("SoftmaxCrossEntropyLoss", "ConvGrad", "LayerNormalizationGrad", "GatherGrad", "LSTM", "Attention")


@pytest.fixture(autouse=True)
def _own_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "blas_available", lambda: False)


def check(call: OpCall, checks: frozenset[str] = frozenset()) -> None:
    inputs = inputs_for(call)
    got = run_lowered(cuda_kernel(call.op)(call), call, inputs, checks)
    compare(call, got, expected(call, inputs))


@pytest.mark.parametrize("op", OFTEN)
def test_the_first_call_of_each_kind_agrees(op: str) -> None:
    check(next(iter(calls_of(op))))


def _odd_calls() -> Iterator[OpCall]:
    yield infer("Softmax", "wide", [TensorType("float32", (3, 1_100))], {})
    yield infer("ReduceSum", "parts", [TensorType("float32", (9_000,))], {"keepdims": 0})
    yield infer("CumSum", "wide", [TensorType("float32", (2, 1_100)), known(1)], {"exclusive": 1})
    yield infer("TopK", "chunks", [TensorType("float32", (1, 2_100)), known(40)], {}, 2)
    yield infer("TopK", "inside", [TensorType("int64", (3, 50)), known(9)], {"largest": 0}, 2)
    yield infer(
        "GroupNormalization",
        "wide",
        [TensorType("float32", (1, 2, 600)), *[TensorType("float32", (2,))] * 2],
        {"num_groups": 1},
    )
    yield infer("Add", "packs", [TensorType("float32", (3, 40)), TensorType("float32", (40,))], {})
    yield infer("MatMul", "halves", [TensorType("float16", (33, 40)), TensorType("float16", (40, 70))], {})


@pytest.mark.parametrize("call", list(_odd_calls()), ids=lambda call: str(call.node))
def test_groups_parts_and_tensor_tiles_have_no_races(call: OpCall) -> None:
    check(call, ALL_CHECKS)


@pytest.mark.parametrize("shapes", [((3, 40), (40,)), ((3, 40), (3, 40)), ((2, 3, 8), (3, 1))])
def test_tensors_may_start_where_16_bytes_do_not(monkeypatch: pytest.MonkeyPatch, shapes: Any) -> None:
    aligned = emulation._aligned

    def shifted(data: emulation.Array) -> emulation.Array:
        return aligned(np.concatenate([np.zeros(4, np.uint8), data]))[4:]

    monkeypatch.setattr(emulation, "_aligned", shifted)
    check(infer("Add", "shifted", [TensorType("float32", shape) for shape in shapes], {}), ALL_CHECKS)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values_reach_softmax_and_maxima(value: float) -> None:
    x = np.array([[1.0, value, 3.0, -2.0]], np.float32)
    for op in ("Softmax", "ReduceMax", "ReduceLogSumExp", "ArgMax", "Relu"):
        call = infer(op, "special", [TensorType("float32", x.shape)], {})
        compare(call, run_lowered(cuda_kernel(op)(call), call, [x]), expected(call, [x]))


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_call_agrees(family: str) -> None:
    faults = []
    for op in sorted(all_schemas()):
        if all_schemas()[op].family != family:
            continue
        for call in calls_of(op):
            try:
                check(call)
            except AssertionError as error:
                faults.append(f"{op} {call.node}: {error}")
    assert faults == []


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("op", RACED)
def test_no_kernel_races_or_leaves_its_tensors(op: str) -> None:
    for call in calls_of(op):
        check(call, ALL_CHECKS)
