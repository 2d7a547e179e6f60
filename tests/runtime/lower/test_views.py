"""Calls that leave their input's bytes as they are: no kernel, no bytes, whatever the operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgrun.graphs.bind import bind
from kgrun.graphs.errors import GraphError
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.lower import lower
from kgrun.runtime.sessions import open_session

SHAPE = [1, 6, 1, 4]
VIEWS: dict[str, tuple[str, dict[str, Any], list[Any]]] = {
    "axes of one element moved": ("Transpose", {"perm": [2, 1, 0, 3]}, []),
    "the same axes": ("Transpose", {"perm": [0, 1, 2, 3]}, []),
    "one input": ("Concat", {"axis": 1}, []),
    "all of it": ("Slice", {}, [[0, 0], [6, 9], [1, 3]]),
    "one part": ("Split", {"axis": 1, "num_outputs": 1}, []),
    "no larger": ("Expand", {}, [[1, 1, 4]]),
    "once": ("Tile", {}, [[1, 1, 1, 1]]),
    "nothing around": ("Pad", {}, [[0] * 8]),
    "the same type": ("Cast", {"to": "float32"}, []),
}
COPIES: dict[str, tuple[str, dict[str, Any], list[Any]]] = {
    "axes swapped": ("Transpose", {"perm": [0, 3, 2, 1]}, []),
    "backwards": ("Slice", {}, [[-1], [-9], [1], [-1]]),
    "shifted": ("Pad", {}, [[0, 1, 0, 0, 0, -1, 0, 0]]),
    "twice": ("Tile", {}, [[1, 2, 1, 1]]),
    "another type": ("Cast", {"to": "float64"}, []),
}


def graph(op: str, attributes: dict[str, Any], operands: list[Any]) -> KernelGraph:
    """x → Neg → the operator → Neg, so that neither end is an input or an output of the graph."""
    tensors: dict[str, Any] = {"x": {"role": "input", "dtype": "float32", "shape": SHAPE, "init": {"arange": [1, 1]}}}
    names = [f"c{i}" for i in range(len(operands))]
    tensors |= {n: {"role": "constant", "dtype": "int64", "value": v} for n, v in zip(names, operands, strict=True)}
    nodes = [
        {"name": "first", "op": "Neg", "inputs": ["x"], "outputs": ["a"]},
        {"name": "moved", "op": op, "inputs": ["a", *names], "outputs": ["b"], "attributes": attributes},
        {"name": "last", "op": "Neg", "inputs": ["b"], "outputs": ["y"]},
    ]
    return KernelGraph.model_validate({"kgrun": 1, "tensors": tensors, "nodes": nodes, "outputs": ["y"]})


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("case", VIEWS)
def test_a_view_takes_no_step_and_no_bytes(case: str, target: Any) -> None:
    program = lower(bind(graph(*VIEWS[case])), target)
    assert [step.name for step in program.steps] == ["first", "last"]
    assert program.slots["a"] == program.slots["b"]


@pytest.mark.parametrize("case", COPIES)
def test_what_moves_elements_runs(case: str) -> None:
    program = lower(bind(graph(*COPIES[case])), "cpu")
    assert [step.name for step in program.steps] == ["first", "moved", "last"]


@pytest.mark.parametrize("case", [*VIEWS, *COPIES])
def test_views_and_copies_have_the_values_of_a_run_without_sharing(case: str) -> None:
    made = graph(*(VIEWS | COPIES)[case])
    with Session(made, device="cpu") as shared, Session(made, device="cpu", memory="none") as apart:
        one, other = shared.run().outputs["y"], apart.run().outputs["y"]
    assert one.tobytes() == other.tobytes()
    expected = np.arange(1, 25, dtype=np.float32)
    if case in VIEWS:
        assert np.array_equal(one.reshape(-1), expected)


def test_a_view_that_is_a_graph_output_of_a_graph_input_is_copied() -> None:
    node = {"name": "n", "op": "Transpose", "inputs": ["x"], "outputs": ["y"], "attributes": {"perm": [2, 1, 0, 3]}}
    x = {"role": "input", "dtype": "float32", "shape": SHAPE}
    made = KernelGraph.model_validate({"kgrun": 1, "tensors": {"x": x}, "nodes": [node], "outputs": ["y"]})
    given = np.arange(24, dtype=np.float32).reshape(SHAPE)
    with Session(made, device="cpu") as session:
        assert np.array_equal(session.run({"x": given}).outputs["y"], given.transpose(2, 1, 0, 3))
        assert np.array_equal(session.run({"x": given + 1}).outputs["y"], (given + 1).transpose(2, 1, 0, 3))


def test_what_the_file_overwrites_is_no_view_whatever_its_sizes() -> None:
    made = graph("Transpose", {"perm": [2, 1, 0, 3]}, []).model_dump(by_alias=True, exclude_unset=True)
    made["nodes"].append({"name": "over", "op": "Relu", "inputs": ["a"], "outputs": ["z"], "inplace": {"z": "a"}})
    made["outputs"] = ["b", "z"]
    whole = KernelGraph.model_validate(made)
    program = lower(bind(whole), "cpu")
    assert program.slots["a"] == program.slots["z"] != program.slots["b"]
    with Session(whole, device="cpu") as session:
        found = session.run().outputs
    with open_session(whole, device="cpu", memory="single") as session:  # which sees one node at a time
        alone = session.run().outputs
    for outputs in (found, alone):
        assert outputs["b"].reshape(-1).tolist() == [-float(i) for i in range(1, 25)]
        assert not outputs["z"].any()


W = {"role": "parameter", "dtype": "float32", "shape": [4], "init": {"fill": 1.0}}
X = {"role": "input", "dtype": "float32", "shape": [4], "init": {"arange": [1, 1]}}
MODES = ["planned", "pool", "none", "single"]


def copy_of(source: str, **more: Any) -> dict[str, Any]:
    """A node `copy` that makes `old`: a cast to the same type."""
    node = {"name": "copy", "op": "Cast", "inputs": [source], "outputs": ["old"], "attributes": {"to": "float32"}}
    return node | more


def outputs_of(tensors: dict[str, Any], nodes: list[Any], outputs: list[str], memory: str, **more: Any) -> Any:
    document = {"kgrun": 1, "tensors": tensors, "nodes": nodes, "outputs": outputs} | more
    with open_session(KernelGraph.model_validate(document), device="cpu", memory=memory) as session:
        made = session.run().outputs
        return [made[name].tolist() for name in outputs]


def update(source: str, other: str) -> dict[str, Any]:
    return {"name": "u", "op": "Add", "inputs": [source, other], "outputs": ["new"], "inplace": {"new": source}}


@pytest.mark.parametrize("memory", MODES)
def test_bytes_that_the_file_wants_overwritten_are_copied_for_who_still_wants_them(memory: str) -> None:
    nodes = [copy_of("w"), update("w", "x")]
    assert outputs_of({"w": W, "x": X}, nodes, ["old", "new"], memory) == [[1, 1, 1, 1], [2, 3, 4, 5]]
    later = {"name": "d", "op": "Sub", "inputs": ["new", "old"], "outputs": ["y"]}
    assert outputs_of({"w": W, "x": X}, [*nodes, later], ["y"], memory) == [[1, 2, 3, 4]]


@pytest.mark.parametrize("memory", MODES)
def test_what_may_not_be_overwritten_is_copied_where_the_file_overwrites_its_view(memory: str) -> None:
    nodes = [copy_of("x"), update("old", "x"), {"name": "d", "op": "Sub", "inputs": ["new", "x"], "outputs": ["y"]}]
    assert outputs_of({"x": X}, nodes, ["y"], memory) == [[1, 2, 3, 4]]


@pytest.mark.parametrize("wish", [{"no_reuse": True}, {"clear": ["old"]}])
def test_an_output_that_the_file_gives_bytes_of_its_own_is_no_view(wish: dict[str, Any]) -> None:
    first = {"name": "first", "op": "Neg", "inputs": ["x"], "outputs": ["a"]}
    last = {"name": "last", "op": "Neg", "inputs": ["old"], "outputs": ["y"]}
    made = {"kgrun": 1, "tensors": {"x": X}, "nodes": [first, copy_of("a", **wish), last], "outputs": ["y"]}
    slots = lower(bind(KernelGraph.model_validate(made)), "cpu").slots
    assert slots["a"] != slots["old"]
    assert outputs_of({"x": X}, made["nodes"], ["y"], "planned") == [[1, 2, 3, 4]]


def test_members_of_a_contiguous_group_stand_side_by_side_even_if_equal() -> None:
    first = {"name": "first", "op": "Neg", "inputs": ["x"], "outputs": ["a"]}
    last = {"name": "last", "op": "Add", "inputs": ["old", "a"], "outputs": ["y"]}
    made = {"kgrun": 1, "tensors": {"x": X}, "nodes": [first, copy_of("a"), last], "outputs": ["y"]}
    program = lower(bind(KernelGraph.model_validate(made | {"contiguous": [["a", "old"]]})), "cpu")
    assert program.groups == ((program.slots["a"].buffer, program.slots["old"].buffer),)


@pytest.mark.parametrize("memory", MODES)
@pytest.mark.parametrize(
    ("op", "inputs", "outputs"),
    [("Split", ["a", "parts"], ["old", "rest"]), ("Dropout", ["a"], ["old", "mask"])],
)
def test_clearing_a_view_leaves_its_source_alone(op: str, inputs: list[str], outputs: list[str], memory: str) -> None:
    parts = {"role": "constant", "dtype": "int64", "value": [4, 0]}
    tensors = {"x": X} | ({"parts": parts} if op == "Split" else {})
    nodes = [
        {"name": "first", "op": "Neg", "inputs": ["x"], "outputs": ["a"]},
        {"name": "part", "op": op, "inputs": inputs, "outputs": outputs, "clear": outputs},
        {"name": "last", "op": "Neg", "inputs": ["old"], "outputs": ["y"]},
    ]
    assert outputs_of(tensors, nodes, ["y", "a", outputs[1]], memory)[:2] == [[1, 2, 3, 4], [-1, -2, -3, -4]]


def test_members_of_a_group_that_share_their_bytes_are_refused() -> None:
    nodes = [
        {"name": "first", "op": "Neg", "inputs": ["x"], "outputs": ["a"]},
        {"name": "same", "op": "Identity", "inputs": ["a"], "outputs": ["old"]},
        {"name": "last", "op": "Add", "inputs": ["old", "a"], "outputs": ["y"]},
    ]
    made = {"kgrun": 1, "tensors": {"x": X}, "nodes": nodes, "outputs": ["y"], "contiguous": [["a", "old"]]}
    with pytest.raises(GraphError, match=r"'old' and 'a' of a contiguous group share their bytes \(view of a\)") as e:
        lower(bind(KernelGraph.model_validate(made)), "cpu")
    assert (e.value.code, str(e.value.where)) == ("KG355", "contiguous[0][1]")


def test_kgrun_grants_no_bytes_to_a_tensor_that_is_to_stand_beside_them() -> None:
    nodes = [
        {"name": "first", "op": "Neg", "inputs": ["x"], "outputs": ["a"]},
        {"name": "second", "op": "Relu", "inputs": ["a"], "outputs": ["b"]},
        {"name": "third", "op": "Neg", "inputs": ["b"], "outputs": ["c"]},
        {"name": "last", "op": "Neg", "inputs": ["c"], "outputs": ["y"]},
    ]
    made = {"kgrun": 1, "tensors": {"x": X}, "nodes": nodes, "outputs": ["y"], "contiguous": [["a", "c"]]}
    program = lower(bind(KernelGraph.model_validate(made)), "cpu")
    assert program.slots["a"] == program.slots["b"] != program.slots["c"]
    assert program.groups == ((program.slots["a"].buffer, program.slots["c"].buffer),)
    assert "a stands beside it in a contiguous group" in [d.reason for d in program.decisions if not d.granted]


def test_nor_to_one_in_whose_bytes_such_a_tensor_will_live() -> None:
    nodes = [
        {"name": "first", "op": "Neg", "inputs": ["x"], "outputs": ["a"]},
        {"name": "second", "op": "Relu", "inputs": ["a"], "outputs": ["b"]},
        {"name": "third", "op": "Exp", "inputs": ["b"], "outputs": ["c"], "inplace": {"c": "b"}},
        {"name": "last", "op": "Neg", "inputs": ["c"], "outputs": ["y"]},
    ]
    made = {"kgrun": 1, "tensors": {"x": X}, "nodes": nodes, "outputs": ["y"], "contiguous": [["a", "c"]]}
    program = lower(bind(KernelGraph.model_validate(made)), "cpu")
    assert program.slots["a"] != program.slots["b"] == program.slots["c"]
    assert program.groups == ((program.slots["a"].buffer, program.slots["c"].buffer),)
