"""Checks from outside on a GPU: planted bugs are named, correct graphs are left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.load import load_graph
from kgrun.runtime import Session
from kgrun.runtime.devices.cuda import CudaDevice
from tests.support import graph, node, tensor

F = "float32"
EXAMPLES = Path(__file__).parents[2] / "examples"
BODIES = {
    "never wrote": ("if (i < 300) y[i] = x[i];", "init", "y", 300),
    "one behind": ("y[i] = x[i]; if (i == 0) y[512] = 1;", "redzone", "y", None),
    "one before": ("y[i] = x[i]; if (i == 0) y[-1] = 1;", "redzone", "y", None),
    "changed its input": ("y[i] = x[i]; if (i == 9) ((float*)x)[i] = 7;", "readonly", "x", 9),
    "made a NaN": ("y[i] = i == 17 ? sqrtf(-x[i]) : x[i];", "nan", "y", 17),
}


def run(device: CudaDevice, body: str, checks: tuple[str, ...] = ("all",)) -> Any:
    source = f'extern "C" __global__ void k(const float* x, float* y) {{ int i = threadIdx.x; {body} }}'
    good = 'extern "C" __global__ void k(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }'
    tensors = {"x": tensor("input", (512,), F, init={"uniform": [1, 2]})}
    tensors |= {name: tensor(None, (512,), F) for name in ("a", "y", "z")}
    nodes = [node("first", ["x"], ["a"]), node("second", ["x"], ["y"]), node("third", ["y"], ["z"])]
    nodes = [
        {**row, "kernel": kernel, "block": [512]} for row, kernel in zip(nodes, ("good", "bad", "good"), strict=True)
    ]
    kernels = {"good": {"source": good, "entry": "k"}, "bad": {"source": source, "entry": "k"}}
    made = graph(nodes, tensors, ["a", "z"], kernels=kernels)
    with Session(made, device=device, checks=checks) as session:
        return session.run()


@pytest.mark.parametrize("name", BODIES)
def test_a_planted_bug_names_kernel_and_tensor(device: CudaDevice, name: str) -> None:
    body, check, tensor_name, element = BODIES[name]
    (found,) = run(device, body).findings
    assert (found.check, found.node, found.tensor, found.element) == (check, "second", tensor_name, element)


def test_a_correct_graph_has_no_findings(device: CudaDevice) -> None:
    report = run(device, "y[i] = x[i];")
    assert report.findings == ()
    assert report.checked == ("init", "nan", "readonly", "redzone")
    assert np.isfinite(report.outputs["z"]).all()


@pytest.mark.parametrize("name", ["saxpy", "digits", "encoder"])
def test_examples_have_no_findings(device: CudaDevice, name: str) -> None:
    with Session(load_graph(EXAMPLES / f"{name}.yaml"), device=device, checks=["all"]) as session:
        assert session.run().findings == ()
