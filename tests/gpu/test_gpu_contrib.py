"""ONNX Runtime's own operators on a GPU: as on the CPU device, which other tests hold to ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kgrun.graphs.importers.onnx import onnx_graph
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.sessions import open_session
from tests.graphs.importers.onnx.contrib_models import Case, save
from tests.graphs.importers.onnx.test_onnx_contrib import BY_FORMULA
from tests.graphs.importers.onnx.test_onnx_contrib import CASES as PLAIN
from tests.graphs.importers.onnx.test_onnx_contrib_attention import CASES as ATTENTION
from tests.graphs.importers.onnx.test_onnx_contrib_attention import GROUPED_CASES
from tests.graphs.importers.onnx.test_onnx_contrib_lstm import CASES as RECURRENT
from tests.graphs.importers.onnx.test_onnx_contrib_quantized import CASES as QUANTIZED

pytest.importorskip("onnx")

CASES: dict[str, Case] = {
    **{f"plain: {name}": case for name, case in PLAIN.items()},
    **{f"by formula: {name}": case for name, (case, _) in BY_FORMULA.items()},
    **{f"attention: {name}": case for name, case in ATTENTION.items()},
    **{f"grouped: {name}": case for name, case in GROUPED_CASES.items()},
    **{f"recurrent: {name}": case for name, case in RECURRENT.items()},
    **{f"quantised: {name}": case for name, case in QUANTIZED.items()},
}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_computes_what_the_cpu_does(device: CudaDevice, name: str, tmp_path: Path) -> None:
    inputs = save(tmp_path / "m.onnx", CASES[name])
    graph = onnx_graph(tmp_path / "m.onnx")
    outputs = []
    for where in ("cpu", device):
        with open_session(graph, device=where, values=inputs) as session:
            outputs.append(session.run(inputs).outputs)
    for key, wanted in outputs[0].items():
        found = outputs[1][key]
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4, err_msg=key)
        else:  # a quotient may lie between two bytes
            apart = np.abs(found.astype(np.int64) - wanted.astype(np.int64)).max(initial=0)
            assert apart <= int(wanted.dtype.itemsize == 1), key
