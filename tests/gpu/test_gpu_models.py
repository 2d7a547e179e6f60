"""Real ONNX models on a GPU: as on the CPU device, which tests/graphs/importers/onnx holds to ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from kgrun.graphs.importers.onnx import onnx_graph
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.session import Session
from tests.graphs.importers.onnx.test_onnx_models import PATHS, bound_dims, feeds

pytest.importorskip("onnx")


@pytest.mark.parametrize("name", PATHS)
def test_a_model_computes_what_the_cpu_does(device: CudaDevice, name: str) -> None:
    inputs = feeds(name)
    scalars = {key: array for key, array in inputs.items() if array.ndim == 0}
    graph = onnx_graph(PATHS[name], dims=bound_dims(name), values=scalars)
    outputs = []
    for where in ("cpu", device):
        with Session(graph, device=where, values=inputs) as session:
            assert session.plan.dynamic_bytes == session.plan.lower_bound_bytes
            outputs.append(session.run(inputs, poison=True).outputs)
    for key, wanted in outputs[0].items():
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(outputs[1][key], wanted, rtol=1e-3, atol=1e-4 * scale, err_msg=key)
