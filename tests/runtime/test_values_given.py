"""Elements that the file states for inputs and parameters are only what these start with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import UsageError
from kgrun.runtime.eager.operator import run_operator
from kgrun.runtime.eager.session import EagerSession
from kgrun.runtime.session import Session
from tests.support import graph, tensor

STATED = {
    "x": tensor("input", [3], "float32", value=[1, 2, 3]),
    "w": tensor("parameter", [3], "float32", value=[2, 2, 2]),
}
LARGER = [{"name": "n", "op": "Max", "inputs": ["x", "w"], "outputs": ["y"]}]
SESSIONS = pytest.mark.parametrize("session", [Session, EagerSession])


@SESSIONS
def test_a_given_array_replaces_them_in_foldable_operators(session: Any) -> None:
    made = graph(LARGER, STATED, ["y"])
    given = {"x": np.array([5, 0, 0], np.float32), "w": np.array([0, 0, 7], np.float32)}
    with session(made, device="cpu", values=given) as opened:
        np.testing.assert_array_equal(opened.run().outputs["y"], [5, 0, 7])
    with session(made, device="cpu") as opened:
        np.testing.assert_array_equal(opened.run().outputs["y"], [2, 2, 3])
        np.testing.assert_array_equal(opened.run({"x": given["x"]}).outputs["y"], [5, 2, 2])


@SESSIONS
def test_a_parameter_with_stated_elements_is_read_anew_after_each_update(session: Any) -> None:
    nodes = [*LARGER, {"name": "m", "op": "Add", "inputs": ["w", "w"], "outputs": ["v"], "inplace": {"v": "w"}}]
    with session(graph(nodes, STATED, ["y", "v"]), device="cpu") as opened:
        opened.run()
        np.testing.assert_array_equal(opened.run().outputs["y"], [4, 4, 4])


@SESSIONS
def test_a_given_shape_replaces_a_stated_one(session: Any) -> None:
    tensors = {"x": tensor("input", [4], "float32"), "s": tensor("input", [2], "int64", value=[2, 2])}
    nodes = [{"name": "n", "op": "Reshape", "inputs": ["x", "s"], "outputs": ["y"]}]
    x = np.arange(4, dtype=np.float32)
    for shape in ([2, 2], [1, 4]):
        with session(graph(nodes, tensors, ["y"]), device="cpu", values={"x": x, "s": np.array(shape)}) as opened:
            assert list(opened.run().outputs["y"].shape) == shape


def test_a_stated_shape_cannot_change_once_the_graph_is_planned() -> None:
    tensors = {"x": tensor("input", [4], "float32"), "s": tensor("input", [2], "int64", value=[2, 2])}
    nodes = [{"name": "n", "op": "Reshape", "inputs": ["x", "s"], "outputs": ["y"]}]
    with Session(graph(nodes, tensors, ["y"]), device="cpu", values={"x": np.zeros(4, np.float32)}) as opened:
        opened.run()
        with pytest.raises(UsageError, match="'s' decides shapes and changed") as caught:
            opened.run({"s": np.array([1, 4])})
    assert caught.value.code == "KG213"


@SESSIONS
def test_an_array_for_no_input_is_refused_as_on_the_command_line(session: Any) -> None:
    nodes = [{"name": "n", "op": "Neg", "inputs": ["x"], "outputs": ["y"]}]
    declared = graph(nodes, {"x": tensor("input", [3], "float32")}, ["y"])
    with pytest.raises(UsageError, match="no input 'xx'") as caught:
        session(declared, device="cpu", values={"xx": np.zeros(3, np.float32)})
    assert caught.value.code == "KG271"


@pytest.mark.parametrize("dtype", ["int64", "float32"])
def test_range_runs_on_operands_that_only_the_run_knows(dtype: str) -> None:
    terms = [np.array(term, dtype) for term in (1, 8, 3)]
    np.testing.assert_array_equal(run_operator("Range", terms, device="cpu").outputs["y0"], [1, 4, 7])
