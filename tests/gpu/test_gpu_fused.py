"""Elementwise calls in a row as one kernel, on a GPU: the same results as apart, in fewer steps and no more memory."""

from __future__ import annotations

import numpy as np
import pytest

from kgrun.graphs.errors import UsageError
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.session import Session
from tests.runtime.lower.test_fused import gelu, op, tensors


def of(rows: list[dict[str, object]], dtype: str) -> KernelGraph:
    record = {"kgrun": 1, "name": "g", "nodes": rows, "tensors": tensors(dtype), "outputs": ["y"]}
    return KernelGraph.model_validate(record)


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 2e-6), ("float16", 0), ("bfloat16", 0), ("float64", 1e-14)])
@pytest.mark.parametrize("ends", ["row", "softmax"])
def test_a_row_gives_what_its_calls_give(device: CudaDevice, dtype: str, rtol: float, ends: str) -> None:
    rows = gelu() if ends == "row" else [*gelu()[:-1], op("z", "Mul", ["times", "two"]), op("y", "Softmax", ["z"])]
    graph = of(rows, dtype)
    with Session(graph, device=device) as apart, Session(graph, device=device, fuse=True) as fused:
        right, found = (session.run(iterations=3) for session in (apart, fused))
        assert found.not_replayed is None
        assert len(right.steps) - len(found.steps) == 5
        assert fused.plan.peak_bytes <= apart.plan.peak_bytes
        a, b = (report.outputs["y"].astype(np.float64) for report in (right, found))
        np.testing.assert_allclose(b, a, rtol=rtol, atol=rtol)
        with pytest.raises(UsageError, match="is computed inside"):
            fused.output("erf")
