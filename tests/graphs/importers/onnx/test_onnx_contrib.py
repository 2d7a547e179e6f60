"""Operators of ONNX Runtime's own domain: each must compute what ONNX Runtime does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError
from kgrun.graphs.importers.onnx import onnx_graph

from .contrib_models import Case, agree, save
from .models import Array, floats, run

onnx = pytest.importorskip("onnx")

U8, I8 = np.uint8, np.int8
IMAGE, WEIGHT = floats(1, 3, 5, 5), floats(4, 3, 3, 3, seed=1) * 0.3
X, Y = floats(2, 4, 6), floats(2, 4, 6, seed=1)
BYTES = np.random.default_rng(0).integers(0, 255, (2, 6)).astype(U8)
WHOLE = np.random.default_rng(1).integers(-63, 64, (6, 5)).astype(I8)  # seven bits: ONNX Runtime adds pairs up in 16


def scale(number: float) -> Array:
    return np.array(number, np.float32)


def of_bytes(op: str, result: float) -> Case:
    """An operator on two quantised operands; `result` is the scale of what it gives."""
    left, right = [BYTES, scale(0.1), np.array(128, U8)], [BYTES[::-1].copy(), scale(0.2), np.array(100, U8)]
    return Case(op, [*left, *right, scale(result), np.array(110, U8)], {})


CASES: dict[str, Case] = {
    "Gelu": Case("Gelu", [X], {}),
    "BiasGelu": Case("BiasGelu", [X, floats(6, seed=2)], {}),
    "FastGelu": Case("FastGelu", [X], {}),
    "FastGelu with a bias": Case("FastGelu", [X, floats(6, seed=2)], {}),
    "QuickGelu": Case("QuickGelu", [X], {"alpha": 1.5}),
    "FusedMatMul": Case("FusedMatMul", [X, Y], {"transB": 1, "alpha": 0.5}),
    "FusedMatMul of the first transposed": Case("FusedMatMul", [X, Y], {"transA": 1}),
    "SkipLayerNormalization": Case("SkipLayerNormalization", [X, Y, floats(6), floats(6, seed=3)], {"epsilon": 1e-5}),
    "SkipLayerNormalization with a bias": Case(
        "SkipLayerNormalization",
        [X, Y, floats(6), floats(6, seed=3), floats(6, seed=4)],
        {"epsilon": 1e-5},
    ),
    "SkipSimplifiedLayerNormalization": Case("SkipSimplifiedLayerNormalization", [X, Y, floats(6)], {"epsilon": 1e-5}),
    "SimplifiedLayerNormalization": Case(
        "SimplifiedLayerNormalization", [X, floats(6)], {"axis": -1, "epsilon": 1e-5}, domain=""
    ),
    "FusedConv": Case("FusedConv", [IMAGE, WEIGHT, floats(4)], {"activation": "Relu", "pads": [1, 1, 1, 1]}),
    "FusedConv with a sum": Case(
        "FusedConv",
        [IMAGE, WEIGHT, floats(4), floats(1, 4, 3, 3, seed=5)],
        {"activation": "LeakyRelu", "activation_params": [0.25]},
    ),
    "FusedConv that clips": Case(
        "FusedConv",
        [IMAGE, WEIGHT],
        {"activation": "Clip", "activation_params": [-0.5, 0.5]},
    ),
    "FusedGemm": Case("FusedGemm", [X[0], Y[0], floats(4)], {"transB": 1, "activation": "Relu"}),
    "DynamicQuantizeMatMul": Case(
        "DynamicQuantizeMatMul",
        [X[0], WHOLE, scale(0.02), np.array(3, I8), floats(5, seed=6)],
        {},
    ),
    "MatMulIntegerToFloat": Case(
        "MatMulIntegerToFloat",
        [BYTES, WHOLE, scale(0.05), scale(0.02), np.array(120, U8), np.array(0, I8)],
        {},
    ),
    "QLinearAdd": of_bytes("QLinearAdd", 0.3),
    "QLinearMul": of_bytes("QLinearMul", 2.0),
    "QLinearSigmoid": Case(
        "QLinearSigmoid",
        [BYTES, scale(0.1), np.array(128, U8), scale(1 / 256), np.array(0, U8)],
        {},
    ),
}


PLACED = np.array([[1, 0, 0, 2]])
IDS, SEGMENTS = np.array([[1, 2, 3], [4, 5, 6]], np.int32), np.array([[0, 0, 1], [0, 1, 1]], np.int32)
TABLES = [floats(10, 8), floats(6, 8, seed=1), floats(2, 8, seed=2), floats(8, seed=3), floats(8, seed=4)]
CASES |= {
    "FusedMatMul across its batch": Case(
        "FusedMatMul", [floats(3, 2, 4), floats(2, 3, 4, seed=1)], {"transBatchA": 1, "transB": 1}
    ),
    "FusedMatMul across the batch of both axes": Case(
        "FusedMatMul", [floats(3, 5, 2, 4), floats(5, 2, 3, 4, seed=1)], {"transBatchA": 1, "transB": 1}
    ),
    "FusedMatMul across the batch of the second": Case(
        "FusedMatMul", [floats(2, 3, 4), floats(3, 2, 4, seed=1)], {"transBatchB": 1, "transB": 1, "alpha": 0.5}
    ),
    "FusedMatMul all transposed": Case(
        "FusedMatMul", [floats(4, 2, 3), floats(2, 4, 5, seed=1)], {"transBatchA": 1, "transA": 1}
    ),
    "EmbedLayerNormalization": Case("EmbedLayerNormalization", [IDS, SEGMENTS, *TABLES], {"epsilon": 1e-5}, outputs=2),
    "EmbedLayerNormalization with a mask": Case(
        "EmbedLayerNormalization",
        [IDS, SEGMENTS, *TABLES, np.array([[1, 1, 0], [1, 0, 1]], np.int32)],
        {"epsilon": 1e-5},
        outputs=3,
    ),
    "EmbedLayerNormalization of one segment": Case(
        "EmbedLayerNormalization", [IDS, None, *TABLES[:2], None, *TABLES[3:]], {"epsilon": 1e-5}, outputs=2
    ),
    "EmbedLayerNormalization at given places": Case(
        "EmbedLayerNormalization",
        [IDS, SEGMENTS, *TABLES, None, np.array([[2, 1, 0]], np.int32)],
        {"epsilon": 1e-5},
        outputs=2,
    ),
    "GatedRMSNorm": Case("GatedRMSNorm", [X, floats(3), Y], {"epsilon": 1e-5}),
    "GatedRMSNorm by a sigmoid": Case("GatedRMSNorm", [X, floats(3), Y], {"epsilon": 1e-5, "activation": "sigmoid"}),
    "ScaledSiLU": Case("ScaledSiLU", [X], {"alpha": 0.5}),
    "CDist": Case("CDist", [X[0], Y[0]], {"metric": "euclidean"}),
    "CDist squared": Case("CDist", [X[0], Y[0]], {"metric": "sqeuclidean"}),
    "ExpandDims": Case("ExpandDims", [X, np.array(1, np.int32)], constants=frozenset({1})),
    "Pad": Case("Pad", [X[0], PLACED, np.array([1.5], np.float32)], constants=frozenset({1})),
    "Trilu": Case("Trilu", [X], {"upper": 0}),
    "Range": Case("Range", [np.array([2]), np.array([9])], constants=frozenset({0, 1})),
    "GatherND": Case("GatherND", [X, np.array([[0, 1], [1, 2]])]),
    "GridSample": Case("GridSample", [floats(1, 2, 5, 5), floats(1, 3, 3, 2, seed=1) * 0.5], {"mode": "bilinear"}),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    agree(CASES[name], tmp_path / "m.onnx")


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def fast_gelu(x: Array) -> Array:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def normalised(x: Array, groups: int) -> Array:
    """Groups of the channels of [batch, height, width, channels], without scale and bias."""
    rows = np.moveaxis(x, -1, 1).reshape(len(x), groups, -1)
    rows = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 1e-5)
    return np.moveaxis(rows.reshape(len(x), x.shape[-1], *x.shape[1:-1]), 1, -1)


LAST, SKIP = floats(2, 5, 5, 4), floats(2, 5, 5, 4, seed=1)
FOUR = [floats(4, seed=2), floats(4, seed=3)]
GROUPS = {"groups": 2, "epsilon": 1e-5}
# Operators that ONNX Runtime has for GPUs alone, by their formulas.
BY_FORMULA: dict[str, tuple[Case, Array]] = {
    "BiasAdd": (Case("BiasAdd", [X, floats(6), Y]), X + floats(6) + Y),
    "GemmFastGelu": (
        Case("GemmFastGelu", [X, floats(6, 3), floats(3)]),
        fast_gelu(X @ floats(6, 3) + floats(3)),
    ),
    "GroupNorm": (
        Case("GroupNorm", [LAST, *FOUR], {**GROUPS, "activation": 0}),
        normalised(LAST, 2) * FOUR[0] + FOUR[1],
    ),
    "GroupNorm with an activation": (
        Case("GroupNorm", [LAST, *FOUR], {**GROUPS, "activation": 1}),
        (made := normalised(LAST, 2) * FOUR[0] + FOUR[1]) * sigmoid(made),
    ),
    "GroupNorm of channels that come first": (
        Case("GroupNorm", [np.moveaxis(LAST, -1, 1).copy(), *FOUR], {**GROUPS, "activation": 0, "channels_last": 0}),
        np.moveaxis(normalised(LAST, 2) * FOUR[0] + FOUR[1], -1, 1),
    ),
    "SkipGroupNorm": (
        Case("SkipGroupNorm", [LAST, *FOUR, SKIP, floats(4, seed=5)], {**GROUPS, "activation": 0}),
        normalised(LAST + SKIP + floats(4, seed=5), 2) * FOUR[0] + FOUR[1],
    ),
    "SkipGroupNorm of a row of channels": (
        Case("SkipGroupNorm", [LAST, *FOUR, SKIP[:, 0, 0]], {**GROUPS, "activation": 0}),
        normalised(LAST + SKIP[:, :1, :1], 2) * FOUR[0] + FOUR[1],
    ),
}


@pytest.mark.parametrize("name", BY_FORMULA)
def test_an_operator_by_its_formula(name: str, tmp_path: Path) -> None:
    case, wanted = BY_FORMULA[name]
    inputs = save(tmp_path / "m.onnx", case)
    found = run(onnx_graph(tmp_path / "m.onnx"), inputs)["y0"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_halves_of_a_biased_row_make_gelu_units(tmp_path: Path) -> None:
    inputs = save(tmp_path / "m.onnx", Case("BiasSplitGelu", [X, floats(6)]))
    save(tmp_path / "g.onnx", Case("Gelu", [total := (X + floats(6))[..., 3:]]))
    gelu = run(onnx_graph(tmp_path / "g.onnx"), {"i0": total})["y0"]
    found = run(onnx_graph(tmp_path / "m.onnx"), inputs)["y0"]
    np.testing.assert_allclose(found, (X + floats(6))[..., :3] * gelu, rtol=1e-5)


def test_a_convolution_of_channels_that_come_last(tmp_path: Path) -> None:
    """ONNX Runtime's CPU kernel takes them first."""
    settings = {"activation": "Relu", "pads": [1, 1, 1, 1]}
    first = [IMAGE, WEIGHT, floats(4), added := floats(1, 4, 5, 5, seed=5)]
    inputs = save(tmp_path / "m.onnx", Case("FusedConv", first, settings))
    wanted = run(onnx_graph(tmp_path / "m.onnx"), inputs)
    last = [np.moveaxis(IMAGE, 1, -1).copy(), WEIGHT, floats(4), np.moveaxis(added, 1, -1).copy()]
    inputs = save(tmp_path / "l.onnx", Case("NhwcFusedConv", last, settings))
    found = run(onnx_graph(tmp_path / "l.onnx"), inputs)["y0"]
    np.testing.assert_allclose(np.moveaxis(found, -1, 1), wanted["y0"], rtol=1e-5, atol=1e-5)


def test_what_is_not_there_is_named_with_its_domain(tmp_path: Path) -> None:
    save(tmp_path / "m.onnx", Case("BeamSearch", [X]))
    with pytest.raises(GraphError, match=r"com\.microsoft\.BeamSearch"):
        onnx_graph(tmp_path / "m.onnx")
