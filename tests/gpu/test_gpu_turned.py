"""Products that read through Transposes on a GPU: with cuBLAS and without, in every memory mode, in one CUDA graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.eager.session import EagerSession
from kgrun.runtime.kernels.base import cuda_kernel
from kgrun.runtime.kernels.cuda import linear
from kgrun.runtime.session import Session
from tests.gpu.gpu_run import run_operator
from tests.runtime.kernels.cuda.emulation import array_dtype, compare, expected, inputs_for
from tests.runtime.kernels.cuda.test_turned_operands import label, products
from tests.support import graph, node, tensor

UNITS = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-14}
MODES: tuple[dict[str, Any], ...] = ({}, {"memory": "none"}, {"memory": "pool"}, {"graph_replay": False})


@pytest.fixture(params=["cuBLAS", "own kernels"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "own kernels":
        monkeypatch.setattr(linear, "blas_available", lambda: False)
    elif not linear.blas_available():
        pytest.skip("cuBLAS bindings are not installed")
    return str(request.param)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("found", list(products()), ids=label)
def test_turned_operands_agree_with_the_cpu(device: CudaDevice, found: Any) -> None:
    inputs = inputs_for(found)
    compare(found, run_operator(device, found, cuda_kernel(found.op)(found), inputs), expected(found, inputs))


def decoder(dtype: str) -> KernelGraph:
    """Scores of a query with its keys, and a head that multiplies by the embedding: the two that decoders turn."""
    nodes = [
        node("fresh", ["k", "k"], ["keys"], op="Add"),
        node("turn_keys", ["keys"], ["kt"], op="Transpose", attributes={"perm": [0, 1, 3, 2]}),
        node("scores", ["q", "kt"], ["s"], op="MatMul"),
        node("turn_table", ["table"], ["tt"], op="Transpose"),
        node("logits", ["x", "tt"], ["l"], op="MatMul"),
    ]
    tensors = {
        "q": tensor("input", [2, 12, 1, 64], dtype, init={"normal": [0, 1], "seed": 1}),
        "k": tensor("input", [2, 12, 133, 64], dtype, init={"normal": [0, 1], "seed": 2}),
        "x": tensor("input", [1, 768], dtype, init={"normal": [0, 1], "seed": 3}),
        "table": tensor("parameter", [50257, 768], dtype, init={"normal": [0, 1], "seed": 4}),
    }
    return graph(nodes, tensors, ["s", "l"])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("dtype", list(UNITS))
def test_scores_and_the_head_of_a_decoder(device: CudaDevice, library: str, dtype: str) -> None:
    made, held = decoder(dtype), device.memory_in_use()
    found = []
    for options in MODES:
        with Session(made, device=device, **options) as session:
            report = session.run(iterations=2, poison=True)
            assert {step.name for step in report.steps} == {"fresh", "scores", "logits"}
            found.append({name: array.tobytes() for name, array in report.outputs.items()})
            arrays = {name: session.output(name).astype(np.float64) for name in ("q", "k", "x", "table")}
            outputs = report.outputs
    assert all(each == found[0] for each in found)
    keys = (arrays["k"] + arrays["k"]).astype(array_dtype(dtype)).astype(np.float64)
    wanted = {"s": arrays["q"] @ keys.swapaxes(-1, -2), "l": arrays["x"] @ arrays["table"].T}
    for name, reference in wanted.items():
        depth = 64 if name == "s" else 768
        apart = np.abs(outputs[name].astype(np.float64) - reference).max()
        assert apart <= UNITS[dtype] * np.sqrt(depth) * np.abs(reference).max()
    with EagerSession(made, device=device) as session:  # runs the Transposes
        single = session.run().outputs
    for name, reference in wanted.items():
        if library == "own kernels":
            assert single[name].tobytes() == found[0][name]
        else:  # cuBLAS chooses by layout how to add up
            apart = np.abs(single[name].astype(np.float64) - reference).max()
            assert apart <= UNITS[dtype] * np.sqrt(768) * np.abs(reference).max()
    assert device.memory_in_use() == held
