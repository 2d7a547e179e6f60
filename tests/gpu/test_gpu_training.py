"""What training needs of a GPU beyond single calls: updates in place, the same bits at every run, larger networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.graphs.operators.optimizers import results_of, tensors_of
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.kernels.base import cuda_kernel
from tests.gpu.gpu_run import Arena, run_lowered, run_operator
from tests.runtime.kernels.cuda.emulation import compare, expected, inputs_for
from tests.runtime.kernels.cuda.operator_calls import calls_of

Ints = tuple[int, ...]


def typed(dtype: str, *shapes: Ints) -> list[TensorType]:
    """Types of one dtype."""
    return [TensorType(dtype, shape) for shape in shapes]


@pytest.mark.parametrize("op", ["SGD", "Momentum", "Adagrad", "Adam"])
def test_S39_optimizers_update_their_parameters_in_place(device: CudaDevice, op: str) -> None:
    for call in calls_of(op):
        inputs = inputs_for(call)
        want = expected(call, inputs)
        places = {("input", index): index for index in range(len(inputs))}
        for sources, results in zip(tensors_of(call), results_of(call), strict=True):
            kept = (sources[0], *sources[2:])
            places |= {("output", result): source for result, source in zip(results, kept, strict=True)}
        arena = Arena(device, [0 if array is None else array.nbytes for array in inputs])
        try:
            for index, array in enumerate(inputs):
                if array is not None:
                    arena.write(index, array)
            run_lowered(device, cuda_kernel(op)(call), places, arena, op)
            device.synchronize()
            arena.check_guards()
            got = [arena.read(places["output", index], np.empty_like(array)) for index, array in enumerate(want)]
        finally:
            arena.close()
        compare(call, got, want)


def _large_calls() -> list[OpCall]:
    image, filters, result = (8, 16, 30, 30), (32, 16, 3, 3), (8, 32, 28, 28)
    labels = TensorType("int64", (3_000,))
    indices = TensorType("int64", (2_000,))
    known: TensorType = TensorType("int64", (2,), (50, 64))
    lstm = typed("float32", (24, 8, 48), (2, 4 * 96, 48), (2, 4 * 96, 96), (2, 8 * 96))
    attention = typed("float32", (2, 8, 130, 64), (2, 2, 300, 64), (2, 2, 300, 64))
    calls: list[tuple[str, list[TensorType], dict[str, Any], int]] = [
        ("ConvGrad", typed("float32", result, image, filters), {}, 3),
        ("SoftmaxCrossEntropyLoss", [TensorType("float32", (3_000, 100)), labels], {}, 2),
        ("GatherGrad", [known, indices, TensorType("float32", (2_000, 64))], {}, 1),
        ("LayerNormalizationGrad", typed("float32", (4_000, 96), (4_000, 96), (96,), (4_000, 1), (4_000, 1)), {}, 3),
        ("LSTM", lstm, {"direction": "bidirectional"}, 3),
        ("Attention", attention, {"is_causal": 1}, 1),
        ("Attention", typed("float32", (1, 8, 1, 64), (1, 8, 2_000, 64), (1, 8, 2_000, 64)), {}, 1),
        ("MatMulInteger", typed("int8", (300, 700), (700, 500)), {}, 1),
        ("RandomNormal", [], {"shape": [300_000]}, 1),
    ]
    return [infer(op, f"large_{op}_{n}", types, more, outputs) for n, (op, types, more, outputs) in enumerate(calls)]


@pytest.mark.parametrize("call", _large_calls(), ids=lambda call: str(call.node))
def test_larger_calls_agree_with_the_cpu_and_with_themselves(device: CudaDevice, call: OpCall) -> None:
    inputs = inputs_for(call)
    first = run_operator(device, call, cuda_kernel(call.op)(call), inputs)
    for index, (a, b) in enumerate(zip(first, expected(call, inputs), strict=True)):
        slack = 3e-5 * float(np.abs(b.astype(np.float64)).max())
        np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), 2e-4, slack, err_msg=f"output {index}")
    again = run_operator(device, call, cuda_kernel(call.op)(call), inputs)
    assert [array.tobytes() for array in first] == [array.tobytes() for array in again]
