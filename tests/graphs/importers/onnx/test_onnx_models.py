"""Real models: imported, planned to the lower bound, and as ONNX Runtime computes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.importers import import_source
from kgrun.graphs.importers.onnx import onnx_graph
from kgrun.graphs.load import load_graph
from kgrun.graphs.operators import all_schemas
from kgrun.runtime.session import Session

from .models import Array, ops

pytest.importorskip("onnx")

ROOT = Path(__file__).resolve().parents[4]
MODELS = ROOT / "tests" / "data" / "models"
PATHS = {path.stem: path for path in (*sorted(MODELS.glob("*.onnx")), ROOT / "examples" / "data" / "basic_pitch.onnx")}
# Shapes of the inputs, and the number of nodes that are left when these are bound.
SHAPES: dict[str, tuple[dict[str, tuple[int, ...]], int]] = {
    "basic_pitch": ({"serving_default_input_2:0": (1, 43_844, 1)}, 250),
    "ppocr_cls": ({"x": (1, 3, 48, 192)}, 240),
    "ppocr6_rec_tiny": ({"x": (1, 3, 48, 320)}, 250),
    "silero_16k_op15": ({"input": (1, 512), "state": (2, 1, 128), "sr": ()}, 60),
}


def feeds(name: str) -> dict[str, Array]:
    """Random inputs; what is called `sr` is a sampling rate."""
    rng = np.random.default_rng(0)
    shapes, _ = SHAPES[name]
    found = {key: rng.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}
    return found | ({"sr": np.array(16_000)} if "sr" in found else {})


def bound_dims(name: str) -> dict[str, int]:
    """The values that the inputs' shapes give the model's dimensions."""
    from kgrun.graphs.bind.dims import dims_from_shapes

    return dims_from_shapes(onnx_graph(PATHS[name]), {key: array.shape for key, array in feeds(name).items()})


def needs(name: str) -> None:
    if name.startswith("silero") and "LSTM" not in all_schemas():
        pytest.skip("kgrun has no LSTM yet")


def oracle(path: Path, inputs: dict[str, Array]) -> dict[str, Any]:
    """The outputs by ONNX Runtime."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs), strict=True))


@pytest.mark.parametrize("name", PATHS)
def test_a_model_computes_what_onnx_runtime_does_in_the_least_memory(name: str) -> None:
    needs(name)
    inputs = feeds(name)
    graph = onnx_graph(PATHS[name], dims=bound_dims(name), values={k: v for k, v in inputs.items() if v.ndim == 0})
    assert len(graph.nodes) <= SHAPES[name][1]
    assert not {"Identity", "Constant", "Dropout", "If", "Shape"} & set(ops(graph))
    with Session(graph, device="cpu", values=inputs) as session:
        assert session.plan.dynamic_bytes == session.plan.lower_bound_bytes
        found = session.run(inputs, poison=True).outputs
    wanted = oracle(PATHS[name], inputs)
    assert set(found) == set(wanted)
    for key, array in wanted.items():
        np.testing.assert_allclose(found[key], array, rtol=1e-3, atol=1e-4 * np.abs(array).max(), err_msg=key)


@pytest.mark.parametrize("name", PATHS)
def test_an_imported_file_runs_as_the_model_does(name: str, tmp_path: Path) -> None:
    needs(name)
    inputs, dims = feeds(name), bound_dims(name)
    for part in "ab":
        (tmp_path / part).mkdir()
        import_source(PATHS[name], tmp_path / part / "m.json", dims=dims)
    for file in ("m.json", "m.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    runs = []
    for graph in (load_graph(tmp_path / "a" / "m.json"), onnx_graph(PATHS[name], dims=dims)):
        with Session(graph, device="cpu", values=inputs) as session:
            runs.append(session.run(inputs).outputs)
    for key, array in runs[0].items():
        assert np.array_equal(array, runs[1][key], equal_nan=True)
