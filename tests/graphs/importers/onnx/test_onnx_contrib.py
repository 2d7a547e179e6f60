"""Operators of ONNX Runtime's own domain: each must compute what ONNX Runtime does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError
from kgrun.graphs.importers.onnx import onnx_graph

from .models import Array, floats, run

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

U8, I8 = np.uint8, np.int8
IMAGE, WEIGHT = floats(1, 3, 5, 5), floats(4, 3, 3, 3, seed=1) * 0.3
X, Y = floats(2, 4, 6), floats(2, 4, 6, seed=1)
BYTES = np.random.default_rng(0).integers(0, 255, (2, 6)).astype(U8)
WHOLE = np.random.default_rng(1).integers(-100, 100, (6, 5)).astype(I8)


def scale(number: float) -> Array:
    return np.array(number, np.float32)


CASES: dict[str, tuple[str, list[Array | None], dict[str, Any]]] = {
    "Gelu": ("Gelu", [X], {}),
    "BiasGelu": ("BiasGelu", [X, floats(6, seed=2)], {}),
    "FastGelu": ("FastGelu", [X], {}),
    "FastGelu with a bias": ("FastGelu", [X, floats(6, seed=2)], {}),
    "QuickGelu": ("QuickGelu", [X], {"alpha": 1.5}),
    "FusedMatMul": ("FusedMatMul", [X, Y], {"transB": 1, "alpha": 0.5}),
    "FusedMatMul of the first transposed": ("FusedMatMul", [X, Y], {"transA": 1}),
    "SkipLayerNormalization": ("SkipLayerNormalization", [X, Y, floats(6), floats(6, seed=3)], {"epsilon": 1e-5}),
    "SkipLayerNormalization with a bias": (
        "SkipLayerNormalization",
        [X, Y, floats(6), floats(6, seed=3), floats(6, seed=4)],
        {"epsilon": 1e-5},
    ),
    "SkipSimplifiedLayerNormalization": ("SkipSimplifiedLayerNormalization", [X, Y, floats(6)], {"epsilon": 1e-5}),
    "SimplifiedLayerNormalization": ("SimplifiedLayerNormalization", [X, floats(6)], {"axis": -1, "epsilon": 1e-5}),
    "FusedConv": ("FusedConv", [IMAGE, WEIGHT, floats(4)], {"activation": "Relu", "pads": [1, 1, 1, 1]}),
    "FusedConv with a sum": (
        "FusedConv",
        [IMAGE, WEIGHT, floats(4), floats(1, 4, 3, 3, seed=5)],
        {"activation": "LeakyRelu", "activation_params": [0.25]},
    ),
    "FusedConv that clips": (
        "FusedConv",
        [IMAGE, WEIGHT],
        {"activation": "Clip", "activation_params": [-0.5, 0.5]},
    ),
    "FusedGemm": ("FusedGemm", [X[0], Y[0], floats(4)], {"transB": 1, "activation": "Relu"}),
    "DynamicQuantizeMatMul": (
        "DynamicQuantizeMatMul",
        [X[0], WHOLE, scale(0.02), np.array(3, I8), floats(5, seed=6)],
        {},
    ),
    "MatMulIntegerToFloat": (
        "MatMulIntegerToFloat",
        [BYTES, WHOLE, scale(0.05), scale(0.02), np.array(120, U8), np.array(0, I8)],
        {},
    ),
    "QLinearAdd": (
        "QLinearAdd",
        [BYTES, scale(0.1), np.array(128, U8), BYTES[::-1].copy(), scale(0.2), np.array(100, U8), scale(0.3),
         np.array(110, U8)],
        {},
    ),
    "QLinearMul": (
        "QLinearMul",
        [BYTES, scale(0.1), np.array(128, U8), BYTES[::-1].copy(), scale(0.2), np.array(100, U8), scale(2.0),
         np.array(110, U8)],
        {},
    ),
    "QLinearSigmoid": (
        "QLinearSigmoid", [BYTES, scale(0.1), np.array(128, U8), scale(1 / 256), np.array(0, U8)], {},
    ),
}  # fmt: skip


def save(path: Path, op: str, arrays: list[Array | None], attributes: dict[str, Any]) -> dict[str, Array]:
    """Write a model of one node; returns its inputs."""
    helper = onnx.helper
    names = ["" if array is None else f"i{at}" for at, array in enumerate(arrays)]
    domain = "" if op == "SimplifiedLayerNormalization" else "com.microsoft"
    node = helper.make_node(op, names, ["y"], domain=domain, **attributes)
    info = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, arrays, strict=True)
        if array is not None
    ]
    kind = arrays[0].dtype if op.startswith("QLinear") and arrays[0] is not None else np.dtype(np.float32)
    out = helper.make_tensor_value_info("y", helper.np_dtype_to_tensor_dtype(kind), None)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", info, [out]), opset_imports=imports, ir_version=8)
    path.write_bytes(model.SerializeToString())
    return {name: array for name, array in zip(names, arrays, strict=True) if array is not None}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    op, arrays, attributes = CASES[name]
    path = tmp_path / "m.onnx"
    inputs = save(path, op, arrays, attributes)
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, inputs)
    found = run(onnx_graph(path), inputs)["y"]
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    else:
        assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1  # ONNX Runtime's kernels round twice


def test_what_is_not_there_is_named_with_its_domain(tmp_path: Path) -> None:
    save(tmp_path / "m.onnx", "GroupQueryAttention", [X], {})
    with pytest.raises(GraphError, match=r"com\.microsoft\.GroupQueryAttention"):
        onnx_graph(tmp_path / "m.onnx")
