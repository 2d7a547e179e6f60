"""DynamicQuantizeLSTM: an LSTM of bytes, unrolled where its length is known, a loop where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.importers.onnx import onnx_graph

from .contrib_models import Case, agree, by_onnx_runtime, refused, save
from .models import floats, ops, run

onnx = pytest.importorskip("onnx")


def lstm(
    steps: int, direction: str, *, given: bool = True, columns: bool = False, batch: int = 1, **attributes: Any
) -> Case:
    """An LSTM of 4 inputs and 8 elements; `given`: states and bias; `columns`: a scale for each column."""
    rng, count = np.random.default_rng(0), 2 if direction == "bidirectional" else 1
    weights, again = (rng.integers(-100, 100, (count, rows, 32)).astype(np.int8) for rows in (4, 8))
    shape = (count, 32) if columns else (count,)
    scales = [(rng.random(shape) * 0.01).astype(np.float32) for _ in range(2)]
    zeros = np.zeros(shape, np.int8)
    states = [floats(count, batch, 8, seed=seed) * 0.5 if given else None for seed in (3, 4)]
    arrays = [floats(steps, batch, 4), weights, again, floats(count, 64) if given else None, None, *states, None]
    arrays += [scales[0], zeros, scales[1], zeros]
    settings = {"hidden_size": 8, "direction": direction, **attributes}
    return Case("DynamicQuantizeLSTM", arrays, settings, frozenset({1, 2, 3, 8, 9, 10, 11}), 3)


CASES = {
    "forward": lstm(5, "forward"),
    "reverse": lstm(5, "reverse"),
    "both ways": lstm(5, "bidirectional"),
    "from nothing": lstm(5, "forward", given=False),
    "a scale a column": lstm(5, "bidirectional", columns=True),
    "one step": lstm(1, "forward"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_lstm_of_bytes(name: str, tmp_path: Path) -> None:
    agree(CASES[name], tmp_path / "m.onnx")


@pytest.mark.parametrize("steps", [3, 300])
def test_a_length_that_is_open_or_long_is_walked_while_the_graph_runs(steps: int, tmp_path: Path) -> None:
    case = lstm(steps, "bidirectional", given=False)
    inputs = save(tmp_path / "m.onnx", case)
    wanted = by_onnx_runtime(tmp_path / "m.onnx", inputs)
    if steps == 3:
        model = onnx.load(tmp_path / "m.onnx")
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "t"
        onnx.save(model, tmp_path / "m.onnx")
    graph = onnx_graph(tmp_path / "m.onnx")
    assert ops(graph).count("Scan") == 2
    found = run(graph, inputs)
    for at, array in enumerate(wanted):
        np.testing.assert_allclose(found[f"y{at}"], array, rtol=1e-4, atol=1e-4)


REFUSED = {
    "clip": (lstm(3, "forward", clip=3.0), "clip"),
    "input_forget": (lstm(3, "forward", input_forget=1), "input_forget"),
    "activations": (lstm(3, "forward", activations=["Relu", "Tanh", "Tanh"]), "activations"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_forms_that_are_not_there_are_named(name: str, tmp_path: Path) -> None:
    refused(tmp_path, *REFUSED[name])
