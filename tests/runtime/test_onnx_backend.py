"""kgrun as ONNX's backend: inputs that decide shapes are looked at, what is missing is said, nothing is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.runtime.onnx_backend import UnsupportedModel, prepare, supports_device

onnx = pytest.importorskip("onnx")


def model(text: str, opset: int = 21) -> Any:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')


def test_shapes_and_depths_may_be_inputs() -> None:
    made = model("g (float[6] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }")
    with prepare(made) as prepared:
        for shape in ((2, 3), (3, 2)):
            (found,) = prepared.run([np.arange(6, dtype=np.float32), np.array(shape)])
            assert found.shape == shape
    made = model("g (int64[2] i, float d, float[2] v) => (float[2, n] y) { y = OneHot(i, d, v) }")
    with prepare(made) as prepared:
        (found,) = prepared.run([np.array([1, 0]), np.float32(2), np.array([0, 1], np.float32)])
    assert found.tolist() == [[0, 1], [1, 0]]


def test_an_input_may_choose_the_branch() -> None:
    branches = "then_branch = a () => (float[2] p) { p = Neg(x) },"
    branches += "else_branch = b () => (float[1, 2] q) { q = Unsqueeze(x, z) }"
    made = model(f"g (float[2] x, bool c) => (float[m] y) <int64[1] z = {{0}}> {{ y = If (c) <{branches}> }}")
    with prepare(made) as prepared:
        assert prepared.run([np.ones(2, np.float32), np.array(True)])[0].tolist() == [-1, -1]
        assert prepared.run({"x": np.ones(2, np.float32), "c": np.array(False)})[0].shape == (1, 2)


@pytest.mark.parametrize(("value", "reason"), [(None, "absent"), ([1], "a int"), (np.array(["a", "b"]), "text")])
def test_inputs_that_are_no_tensors_are_unsupported(value: Any, reason: str) -> None:
    with (
        prepare(model("g (float[2] x) => (float[2] y) { y = Relu(x) }")) as prepared,
        pytest.raises(UnsupportedModel, match=reason),
    ):
        prepared.run([value])


def test_an_operator_that_is_missing_is_named() -> None:
    header = '<ir_version: 10, opset_import: ["v" : 1]>'
    made = onnx.parser.parse_model(f"{header} g (float[2] x) => (float[2] y) {{ y = v.F(x) }}")
    with prepare(made) as prepared, pytest.raises(UnsupportedModel, match=r"KG381.*v\.F"):
        prepared.run([np.ones(2, np.float32)])


def test_the_copy_of_the_model_is_removed() -> None:
    with prepare(model("g (float[2] x) => (float[2] y) { y = Relu(x) }")) as prepared:
        folder = Path(prepared._folder.name)
        assert (folder / "model.onnx").is_file()
    assert not folder.exists()


def test_devices_are_known_by_onnx_s_names_and_kgrun_s() -> None:
    assert supports_device("CPU")
    assert supports_device("cpu")
    assert not supports_device("TPU")


def test_outputs_may_be_inputs_and_stand_twice() -> None:
    x = np.array([-1, 2], np.float32)
    with prepare(model("g (float[2] x) => (float[2] x, float[2] y, float[2] y) { y = Neg(x) }")) as prepared:
        found = prepared.run([x])
    assert [np.asarray(each).tolist() for each in found] == [[-1, 2], [1, -2], [1, -2]]
