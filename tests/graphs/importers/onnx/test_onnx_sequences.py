"""Sequences and optional values vanish: what is left are the tensors in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError
from kgrun.graphs.importers.onnx import onnx_graph
from kgrun.runtime.onnx_backend import prepare

from .models import floats, ops, run, save_text

onnx = pytest.importorskip("onnx")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def test_tensors_go_in_and_out_of_a_sequence(model: Path) -> None:
    text = """g (float[2] a, float[2] b, float[2] c) => (float[2] first, float[6] all, float[2, 2] two, int64 n) {
        i0 = Constant<value_int = 0>()
        last = Constant<value_int = -1>()
        none = SequenceEmpty()
        s1 = SequenceInsert(none, b)
        s2 = SequenceInsert(s1, a, i0)
        s3 = SequenceInsert(s2, c)
        first = SequenceAt(s3, i0)
        all = ConcatFromSequence<axis = 0>(s3)
        s4 = SequenceErase(s3, last)
        two = ConcatFromSequence<axis = 0, new_axis = 1>(s4)
        n = SequenceLength(s4)
    }"""
    save_text(model, text)
    a, b, c = floats(2), floats(2, seed=1), floats(2, seed=2)
    found = run(onnx_graph(model), {"a": a, "b": b, "c": c})
    assert np.array_equal(found["first"], a)
    assert np.array_equal(found["all"], np.concatenate([a, b, c]))
    assert np.array_equal(found["two"], np.stack([a, b]))
    assert found["n"] == 2


@pytest.mark.parametrize(
    ("split", "shapes"),
    [
        ("SplitToSequence<axis = 1>(x)", [(2, 1)] * 5),
        ("SplitToSequence<axis = 1, keepdims = 0>(x)", [(2,)] * 5),
        ("k = Constant<value_int = 2>() \n s = SplitToSequence<axis = 1>(x, k)", [(2, 2), (2, 2), (2, 1)]),
        ("k = Constant<value_ints = [1, 4]>() \n s = SplitToSequence<axis = 1>(x, k)", [(2, 1), (2, 4)]),
    ],
)
def test_a_tensor_is_split_into_a_sequence(model: Path, split: str, shapes: list[tuple[int, ...]]) -> None:
    assign = split if split.startswith("k =") else f"s = {split}"
    place = len(shapes) - 1
    text = f"{assign} \n i = Constant<value_int = {place}>() \n y = SequenceAt(s, i) \n n = SequenceLength(s)"
    save_text(model, f"g (float[2, 5] x) => (float[a, b] y, int64 n) {{ {text} }}")
    x = floats(2, 5)
    found = run(onnx_graph(model), {"x": x})
    assert found["n"] == len(shapes)
    assert np.array_equal(found["y"], x[:, 5 - shapes[-1][1] :] if len(shapes[-1]) > 1 else x[:, -1])


def test_a_loop_may_carry_a_sequence(model: Path) -> None:
    text = """g (float[2] x) => (float[3, 2] y) {
        trips = Constant<value_int = 3>()
        none = SequenceEmpty()
        v, s = Loop (trips, , x, none) <
            body = b (int64 i, bool c, float[2] v, seq(float[2]) q) => (bool d, float[2] w, seq(float[2]) r) {
                w = Add(v, v)
                r = SequenceInsert(q, w)
                d = Identity(c)
            }
        >
        y = ConcatFromSequence<axis = 0, new_axis = 1>(s)
    }"""
    save_text(model, text)
    assert run(onnx_graph(model), {"x": np.ones(2, np.float32)})["y"].tolist() == [[2, 2], [4, 4], [8, 8]]


def test_optional_values_are_themselves(model: Path) -> None:
    text = """g (float[2] x) => (float[2] y) {
        o = Optional(x)
        h = OptionalHasElement(o)
        y = If (h) <
            then_branch = a () => (float[2] p) { p = OptionalGetElement(o) },
            else_branch = b () => (float[2] q) { q = Neg(x) }
        >
    }"""
    save_text(model, text)
    assert ops(onnx_graph(model)) == ["Identity"]


def test_sequences_as_inputs_and_outputs() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (seq(float[n]) s, float[2] x) => (seq(float[n]) y) { y = SequenceInsert(s, x) }"""
    with prepare(onnx.parser.parse_model(text)) as prepared:
        (found,) = prepared.run([[np.ones(3, np.float32)], np.zeros(2, np.float32)])
    assert [item.tolist() for item in found] == [[1, 1, 1], [0, 0]]


def test_a_place_that_only_the_run_tells_is_refused(model: Path) -> None:
    text = "s = SequenceConstruct(x, x) \n y = SequenceAt(s, i)"
    save_text(model, f"g (float[2] x, int64 i) => (float[2] y) {{ {text} }}")
    with pytest.raises(GraphError, match="only the run tells"):
        onnx_graph(model)


def test_a_sequence_of_unknown_length_is_refused(model: Path) -> None:
    save_text(model, "g (seq(float[2]) s) => (int64 n) { n = SequenceLength(s) }")
    with pytest.raises(GraphError, match="no tensor"):
        onnx_graph(model)
