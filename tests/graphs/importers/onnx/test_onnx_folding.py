"""What is computed while a model is imported is what ONNX Runtime computes: limits, signs, NaN, wrapping."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.importers.onnx import onnx_graph

from .models import Array, ops, run

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

ITEMS: dict[str, list[Any]] = {
    "int64": [-7, -3, 1, 2, 2**62, -(2**63), 2**63 - 1],
    "int32": [-7, -3, 1, 5, 2**31 - 1, -(2**31)],
    "uint8": [1, 2, 7, 255],
    "int8": [-128, -7, 1, 127],
    "uint64": [1, 5, 2**63, 2**64 - 1],
    "float32": [-7.5, -0.5, -0.0, 0.5, 1.5, 2.5, 3.4e38, 1e-40, np.inf, -np.inf, np.nan],
}
PAIRS = ["Add", "Sub", "Mul", "Div", "Min", "Max", "Equal", "Less", "GreaterOrEqual"]
CASTS = {"int64", "int32", "uint8", "int8", "uint64", "float32"}


def check(path: Path, op: str, arrays: list[Array], **attributes: Any) -> None:
    """A node of constants alone, beside one that runs."""
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    names = [f"c{at}" for at in range(len(arrays))]
    nodes = [helper.make_node(op, names, ["y"], **attributes), helper.make_node("Softsign", ["x"], ["z"])]
    info = [helper.make_tensor_value_info(name, 1, [1]) for name in "xz"]
    held = [numpy_helper.from_array(array, name) for array, name in zip(arrays, names, strict=True)]
    graph = helper.make_graph(nodes, "g", info[:1], [onnx.ValueInfoProto(name="y"), info[1]], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = {"x": np.ones(1, np.float32)}
    (wanted,) = session.run(["y"], inputs)
    imported = onnx_graph(path)
    assert ops(imported) == ["Softsign", "Constant"]
    found = run(imported, inputs)["y"]
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", ITEMS)
@pytest.mark.parametrize("op", PAIRS)
def test_pairs(op: str, dtype: str, tmp_path: Path) -> None:
    items = np.array(ITEMS[dtype], dtype)
    a, b = np.repeat(items, len(items)), np.tile(items, len(items))
    if op == "Div" and dtype == "float32":
        pytest.skip("quotients by 0 are left to the run")
    if op == "Div":
        fitting = (b != 0) & ~((b.astype(float) == -1) & (a == np.iinfo(dtype).min))
        a, b = a[fitting], b[fitting]
    try:
        check(tmp_path / "m.onnx", op, [a, b])
    except runtime.capi.onnxruntime_pybind11_state.NotImplemented:
        pytest.skip("ONNX Runtime has no kernel for it")


@pytest.mark.parametrize("to", sorted(CASTS))
@pytest.mark.parametrize("dtype", ITEMS)
def test_casts(dtype: str, to: str, tmp_path: Path) -> None:
    items = np.array(ITEMS[dtype], dtype)
    if dtype == "float32" and to != "float32":  # what does not fit has no defined result
        items = items[np.isfinite(items) & (np.abs(items) < 100) & ((items >= 0) | (to[0] == "i"))]
    check(tmp_path / "m.onnx", "Cast", [items], to=onnx.helper.np_dtype_to_tensor_dtype(np.dtype(to)))


@pytest.mark.parametrize("op", ["Neg", "Abs", "Floor", "Ceil", "Relu"])
def test_floats(op: str, tmp_path: Path) -> None:
    check(tmp_path / "m.onnx", op, [np.array(ITEMS["float32"], np.float32)])


@pytest.mark.parametrize("dtype", ITEMS)
def test_elements_are_moved_as_they_are(dtype: str, tmp_path: Path) -> None:
    check(tmp_path / "m.onnx", "Gather", [np.array(ITEMS[dtype], dtype), np.array([-1, 0, 2])])
