"""Every node against a reference: the first that differs is named, whatever became of its bytes later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kgrun.graphs.errors import UsageError
from kgrun.runtime.divergence import cpu_reference, difference, divergences, onnxruntime_reference, typical_magnitude
from kgrun.runtime.session import Session
from tests.support import graph, node

ROW = {"dtype": "float32", "shape": [4]}
X = {"x": {"role": "input", **ROW, "init": {"uniform": [1, 2], "seed": 0}}}


def chain() -> Any:
    names = ["x", "a", "b", "c", "y"]
    ops = ["Sqrt", "Exp", "Neg", "Abs"]
    nodes = [node(op.lower(), [names[i]], [names[i + 1]], op=op) for i, op in enumerate(ops)]
    return graph(nodes, X, ["y"])


def test_a_graph_agrees_with_itself_and_every_node_is_looked_at() -> None:
    made = chain()
    reference = cpu_reference(made, {}, {})
    with Session(made, device="cpu") as session:
        session.run()
        assert session.plan.dynamic_bytes < session.plan.no_reuse_bytes + 4 * 512  # intermediates share bytes
        rows = divergences(session, reference.arrays, 0, 0)
    assert [row.tensor for row in rows] == ["a", "b", "c", "y"]
    assert all(row.ok and row.max_abs == 0 and row.max_ulp == 0 for row in rows)


def test_the_first_node_that_differs_is_the_first_of_the_run() -> None:
    made = chain()
    arrays = dict(cpu_reference(made, {}, {}).arrays)
    for name in ("b", "y"):
        arrays[name] = arrays[name] + 1
    with Session(made, device="cpu") as session:
        session.run()
        rows = divergences(session, arrays, 1e-5, 1e-6)
        with pytest.raises(UsageError, match="none of the tensors"):
            divergences(session, {"other": np.zeros(4)}, 0, 0)
    assert [row.tensor for row in rows if not row.ok] == ["b", "y"]
    assert rows[1].node == "exp"
    assert rows[1].max_abs == pytest.approx(1, abs=1e-5)


def test_parameters_that_a_run_updates_are_put_back() -> None:
    tensors = {"w": {"role": "parameter", **ROW, "init": {"fill": 1}}, **X}
    made = graph([node("add", ["w", "x"], ["w2"], op="Add", inplace={"w2": "w"})], tensors, ["w2"])
    with Session(made, device="cpu") as session:
        before = session.run(iterations=1).outputs["w2"].copy()
        divergences(session, {"w2": before}, 0, 0)
        after = session.output("w2")
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_units_in_the_last_place_count_representable_numbers(dtype: Any) -> None:
    one = np.ones(3, dtype)
    width = {2: np.int16, 4: np.int32, 8: np.int64}[one.dtype.itemsize]
    near = (one.view(width) + np.array([0, 1, 5], width)).view(dtype)
    assert difference("n", "op", "t", near, one, 0, 0, False).max_ulp == 5
    tiny = np.array([1], width).view(dtype)
    assert difference("n", "op", "t", tiny, -tiny, 0, 0, False).max_ulp == 2  # across both zeros
    assert difference("n", "op", "t", np.zeros(1, dtype), -np.zeros(1, dtype), 0, 0, False).max_ulp == 0


def test_not_a_number_is_counted_and_differs_unless_asked_for() -> None:
    got, wanted = np.array([np.nan, 1, np.inf], np.float32), np.array([np.nan, 1, np.inf], np.float32)
    row = difference("n", "op", "t", got, wanted, 0, 0, False)
    assert (row.ok, row.mismatched, row.nan, row.wanted_nan) == (False, 1, 1, 1)
    assert difference("n", "op", "t", got, wanted, 0, 0, True).ok
    shaped = difference("n", "op", "t", got, np.zeros(2, np.float32), 0, 0, False)
    assert (shaped.ok, shaped.mismatched) == (False, 3)


def test_integers_must_be_equal() -> None:
    row = difference("n", "op", "t", np.array([1, 2]), np.array([1, 3]), 1, 1, False, exact=True)
    assert (row.ok, row.mismatched, row.max_ulp) == (False, 1, None)
    large = np.array([2**53, 2**63 - 1], np.int64)  # the next ones are the same number in float64
    assert difference("n", "op", "t", large - [-1, 1], large, 1, 1, False, exact=True).mismatched == 2


def test_an_element_near_zero_is_measured_by_what_is_typical_of_its_tensor() -> None:
    wanted = np.array([3, -4, 1e-6, 0], np.float32)
    got = wanted + np.float32(2e-4) * np.array([0, 0, 1, -1], np.float32)
    typical = np.sqrt((9 + 16 + 1e-12) / 3)
    row = difference("n", "op", "t", got, wanted, 1e-4, 0, False)
    assert row.ok
    assert row.excess == pytest.approx(2e-4 / (1e-4 * typical), rel=1e-3)
    assert not difference("n", "op", "t", got, wanted, 0.9e-4 * row.excess, 0, False).ok
    assert difference("n", "op", "t", wanted, wanted, 0, 0, False).excess is None


def test_masks_are_not_typical_of_a_tensor() -> None:
    wanted = np.where(np.arange(1000) % 3 == 1, 1.0, -1e9).astype(np.float32)
    assert typical_magnitude(np.abs(wanted)) == pytest.approx(1)
    assert typical_magnitude(np.array([np.inf, np.nan, 0, 2])) == 2
    assert typical_magnitude(np.zeros(3)) == 0
    got = wanted.copy()
    got[1] += np.float32(1e-3)
    assert difference("n", "op", "t", got, wanted, 1e-4, 0, False).mismatched == 1


def test_a_tolerance_is_no_finer_than_the_type_but_none_is_none() -> None:
    wanted = np.ones(4, np.float16)
    got = wanted + np.array([0, 1, 4, 0], np.float16) * np.finfo(np.float16).eps
    assert difference("n", "op", "t", got, wanted, 1e-4, 0, False).ok
    assert difference("n", "op", "t", got + np.finfo(np.float16).eps, wanted, 1e-4, 0, False).mismatched == 1
    assert difference("n", "op", "t", got, wanted, 0, 0, False).mismatched == 2


@pytest.mark.parametrize(("op", "rtol", "ok"), [("MatMulInteger", 0.05, True), ("MatMulInteger", 1e-4, False)])
def test_integers_of_quantised_graphs_are_rounded_numbers(op: str, rtol: float, ok: bool) -> None:
    tensors = {name: {"role": "input", "dtype": "uint8", "shape": [2, 2], "init": {"fill": 90}} for name in ("a", "b")}
    tensors["bias"] = {"role": "input", "dtype": "int32", "shape": [2, 2], "init": {"fill": 7}}
    made = graph([node("p", ["a", "b"], ["p"], op=op), node("s", ["p", "bias"], ["s"], op="Add")], tensors, ["s"])
    reference = {name: array + 5 for name, array in cpu_reference(made, {}, {}).arrays.items()}
    with Session(made, device="cpu") as session:
        session.run()
        rows = divergences(session, reference, rtol, 0)
    assert [(row.tensor, row.ok) for row in rows] == [("p", ok), ("s", ok)]


def test_other_integers_must_be_equal_whatever_the_tolerance() -> None:
    tensors = {"a": {"role": "input", "dtype": "int32", "shape": [2], "init": {"fill": 9}}}
    made = graph(
        [node("n", ["a"], ["b"], op="Neg"), node("c", ["b"], ["c"], op="Cast", attributes={"to": "uint8"})],
        tensors,
        ["c"],
    )
    with Session(made, device="cpu") as session:
        session.run()
        rows = divergences(session, {"b": np.array([-9, -8]), "c": np.array([247, 248])}, 0.9, 9)
    assert [(row.tensor, row.ok, row.excess is None) for row in rows] == [("b", False, True), ("c", True, False)]


def test_onnx_runtime_gives_every_value_of_a_model(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    from kgrun.graphs.importers.onnx import onnx_graph

    value = onnx.helper.make_tensor_value_info
    nodes = [onnx.helper.make_node("Relu", ["x"], ["a"], "r"), onnx.helper.make_node("Exp", ["a"], ["y"], "e")]
    made = onnx.helper.make_graph(nodes, "g", [value("x", 1, [3])], [value("y", 1, [3])])
    model = onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    path = tmp_path / "m.onnx"
    onnx.save(model, str(path))
    given = {"x": np.array([-1, 0, 2], np.float32)}
    reference = onnxruntime_reference(path, given, ["a", "y", "nothing"])
    np.testing.assert_array_equal(reference.arrays["a"], [0, 0, 2])
    with Session(onnx_graph(path), device="cpu", values=given) as session:
        session.run(given)
        rows = divergences(session, reference.arrays, 1e-6, 1e-6)
    assert [(row.tensor, row.ok) for row in rows] == [("a", True), ("y", True)]
    assert onnxruntime_reference(path, given, ["nothing"]).arrays == {}
