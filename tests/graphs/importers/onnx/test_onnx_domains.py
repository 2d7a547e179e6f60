"""Quantised, recurrent and attention models, and operators of ONNX's other sets: imported as one node each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kgrun.graphs.errors import KgrunError
from kgrun.graphs.importers.onnx import onnx_graph

from .models import agree, floats, ops, save_text

onnx = pytest.importorskip("onnx")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def test_a_quantised_product_is_four_nodes(model: Path) -> None:
    text = """g (float[5, 8] x, int8[8, 4] w) => (float[5, 4] y) {
      q, scale, zero = DynamicQuantizeLinear(x)
      s = MatMulInteger(q, w, zero)
      c = Cast <to = 1> (s)
      y = Mul(c, scale)
    }"""
    weights = np.random.default_rng(1).integers(-128, 128, (8, 4)).astype(np.int8)
    graph = agree(save_text(model, text), {"x": floats(5, 8), "w": weights})
    assert ops(graph) == ["DynamicQuantizeLinear", "MatMulInteger", "Cast", "Mul"]


def test_an_element_type_of_zero_names_none(model: Path) -> None:
    text = """g (float[5, 8] x, float s, int8 z) => (float[5, 8] y) {
      q = QuantizeLinear <output_dtype = 0, precision = 0> (x, s, z)
      y = DequantizeLinear <output_dtype = 0> (q, s, z)
    }"""
    given = {"x": floats(5, 8), "s": np.array(0.02, np.float32), "z": np.array(3, np.int8)}
    graph = agree(save_text(model, text, opset=25), given)
    assert ops(graph) == ["QuantizeLinear", "DequantizeLinear"]
    save_text(model, text.replace("<output_dtype = 0>", "<output_dtype = 22>"), opset=25)
    with pytest.raises(KgrunError, match="output_dtype"):
        onnx_graph(model)


def test_recurrent_layers_and_attention_are_one_node(model: Path) -> None:
    text = """g (float[6, 2, 4] x, float[1, 12, 4] w, float[1, 12, 3] r, float[1, 2, 5, 3] k) => (float[1, 2, 6, 3] y) {
      h, last, cell = LSTM <hidden_size = 3> (x, w, r)
      q = Transpose <perm = [1, 2, 0, 3]> (h)
      y = Attention <is_causal = 1> (q, k, k)
    }"""
    given = {"x": floats(6, 2, 4), "w": floats(1, 12, 4), "r": floats(1, 12, 3), "k": floats(1, 2, 5, 3, seed=2)}
    graph = agree(save_text(model, text, opset=23), given)
    assert ops(graph) == ["LSTM", "Transpose", "Attention"]


def test_optimizers_come_from_their_own_set(model: Path) -> None:
    text = """g (float r, int64 t, float[3] x, float[3] g, float[3] v) => (float[3] x2, float[3] v2) {
      x2, v2 = ai.onnx.preview.training.Momentum <alpha = 0.9, beta = 0.5, mode = "standard", norm_coefficient = 0.1>
        (r, t, x, g, v)
    }"""
    header = 'ir_version: 10, opset_import: ["" : 21, "ai.onnx.preview.training" : 1]'
    given = {"r": np.array(0.1, np.float32), "t": np.array(2), "x": floats(3), "g": floats(3), "v": floats(3, seed=4)}
    assert ops(agree(save_text(model, text, header=header), given)) == ["Momentum"]


def test_an_operator_of_another_set_is_not_taken_for_its_namesake(model: Path) -> None:
    text = "g (float[3] x) => (float[3] y) { y = com.example.Softmax(x) }"
    header = 'ir_version: 10, opset_import: ["" : 21, "com.example" : 1]'
    with pytest.raises(KgrunError, match=r"com\.example\.Softmax"):
        onnx_graph(save_text(model, text, header=header))


def test_a_layout_for_one_kind_of_processor_says_how_to_save_the_model(model: Path) -> None:
    text = "g (float[1, 8, 3, 3] x) => (float[1, 8, 3, 3] y) { y = com.microsoft.nchwc.ReorderInput(x) }"
    save_text(model, text, header='ir_version: 10, opset_import: ["" : 17, "com.microsoft.nchwc" : 1]')
    with pytest.raises(KgrunError) as caught:
        onnx_graph(model)
    assert "ORT_ENABLE_EXTENDED" in str(caught.value.help)
