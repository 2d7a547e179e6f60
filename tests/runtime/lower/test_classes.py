"""Alias classes and in-place decisions of the lowered program."""

from __future__ import annotations

from typing import Any

import pytest

from kgrun.graphs.errors import GraphError
from kgrun.runtime.program import Copy, MemoryClass, Program
from kgrun.runtime.sessions import open_session
from tests.support import graph, node, program, tensor

X = {"x": tensor("input", (4, 4), "float32")}


def op(name: str, kind: str, inputs: list[Any], output: str, **more: Any) -> dict[str, Any]:
    return node(name, inputs, [output], op=kind, **more)


def owner(made: Program, name: str) -> str:
    return made.buffers[made.slots[name].buffer].name


def test_S41_S42_a_view_has_no_step_and_no_bytes_of_its_own() -> None:
    tensors = {**X, "shape": {"role": "constant", "value": [16]}}
    nodes = [op("a", "Relu", ["x"], "t"), op("r", "Reshape", ["t", "shape"], "v"), op("b", "Neg", ["v"], "y")]
    made = program(nodes, tensors, ["y"], target="cpu")
    assert [s.name for s in made.steps] == ["a", "b"]
    assert owner(made, "v") == owner(made, "t")
    assert "shape" not in made.slots  # read while binding only


def test_S33_a_view_that_is_an_output_forwards_unless_it_must_own_its_memory() -> None:
    flat = op("f", "Flatten", ["t"], "y")
    forwarded = program([op("a", "Relu", ["x"], "t"), flat], X, ["y"], target="cpu")
    assert [s.name for s in forwarded.steps] == ["a"]
    owned = program([op("a", "Relu", ["x"], "t"), {**flat, "skip_nop_op_addr": False}], X, ["y"], target="cpu")
    assert [type(s.work).__name__ for s in owned.steps] == ["HostCall", "Copy"]
    assert owner(owned, "y") == "y"


def test_S42_a_nop_must_keep_the_size() -> None:
    with pytest.raises(GraphError, match="has another size"):
        program([op("c", "Cast", ["x"], "y", attributes={"to": 11}, nop=True)], X, ["y"], target="cpu")


def test_S42_a_nop_makes_one_output() -> None:
    nodes = [node("t", ["x"], ["v", "i"], op="TopK", attributes={"k": 4}, nop=True)]
    with pytest.raises(GraphError, match="nothing makes its other outputs"):
        program(nodes, X, ["v", "i"], target="cpu")


def test_a_view_needs_no_workspace_not_even_a_cleared_one() -> None:
    nodes = [op("s", "Squeeze", ["x"], "t", workspace=[{"nbytes": 8, "clear": True}]), op("n", "Neg", ["t"], "y")]
    assert [step.name for step in program(nodes, X, ["y"], target="cpu").steps] == ["n"]


F = ((4, 4), "float32")


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("tensors", "code"),
    [
        ({"y": tensor(None, *F, alias_of="x")}, "KG354"),
        ({"x": tensor("input", *F, alias_of="x")}, "KG354"),
        ({"x": tensor("input", *F, alias_of="z"), "z": tensor("input", *F, alias_of="x")}, "KG354"),
        ({"x": tensor("input", *F, alias_of="t"), "t": tensor(None, *F)}, "KG354"),
        ({"x": tensor("input", *F, alias_of="nothing")}, "KG343"),
        ({"z": tensor("constant", *F, value=1, alias_of="x")}, "KG354"),
        ({"y": tensor(None, *F, valid=False)}, "KG354"),
    ],
)
def test_wishes_for_memory_that_cannot_be_are_refused_planned_and_node_by_node(
    tensors: dict[str, Any], code: str, dynamic: bool
) -> None:
    nodes = [op("a", "Neg", ["x"], "t", dynamic=dynamic), op("b", "Neg", ["t"], "y")]
    with pytest.raises(GraphError) as caught, open_session(graph(nodes, X | tensors, ["y"]), device="cpu"):
        pass
    assert caught.value.code == code


def test_S39_ref_outputs_share_the_address_also_in_chains() -> None:
    tensors = {"w": tensor("parameter", init={"fill": 0}), "g": tensor("input")}
    nodes = [
        node("s1", ["w", "g"], ["w1"], inplace={"w1": "w"}),
        node("s2", ["w1", "g"], ["w2"], inplace={"w2": "w1"}),
    ]
    made = program(nodes, tensors, ["w2"])
    assert made.slots["w"] == made.slots["w1"] == made.slots["w2"]
    buffer = made.buffers[made.slots["w"].buffer]
    assert buffer.memory_class is MemoryClass.PARAMETER
    assert buffer.shares == {"w1": "in place of w, as declared", "w2": "in place of w1, as declared"}


def test_an_elementwise_output_takes_over_an_input_that_dies() -> None:
    made = program(
        [op("a", "Relu", ["x"], "t"), op("b", "Neg", ["t"], "u"), op("c", "Abs", ["u"], "y")], X, ["y"], target="cpu"
    )
    assert owner(made, "t") == owner(made, "u") == owner(made, "y") == "t"
    assert [(d.node, d.granted) for d in made.decisions] == [("a", False), ("b", True), ("c", True)]
    assert made.decisions[0].reason == "it lives in input x"


@pytest.mark.parametrize(
    ("nodes", "outputs", "reason"),
    [
        ([op("b", "Neg", ["t"], "u"), op("late", "Abs", ["t"], "z")], ["u", "z"], "t is read later by late"),
        ([op("b", "Neg", ["t"], "u")], ["t", "u"], "t is a graph output"),
        ([op("b", "Neg", ["t"], "u", no_reuse=True)], ["u"], None),
        (
            [op("f", "Flatten", ["t"], "v"), op("b", "Neg", ["t"], "u"), op("late", "Abs", ["v"], "z")],
            ["u", "z"],
            "v is read later by late",
        ),
    ],
)
def test_in_place_is_refused_where_the_bytes_are_still_needed(
    nodes: list[dict[str, Any]], outputs: list[str], reason: str | None
) -> None:
    made = program([op("a", "Relu", ["x"], "t"), *nodes], X, outputs, target="cpu")
    assert owner(made, "u") == "u"
    assert next((d.reason for d in made.decisions if d.node == "b"), None) == reason


def test_a_scatter_in_place_copies_nothing_unless_data_is_an_operand_twice() -> None:
    tensors = {**X, "at": tensor("input", (4, 4), "int64")}
    first = op("a", "Relu", ["x"], "t")
    apart = program([first, op("s", "ScatterElements", ["t", "at", "x"], "y")], tensors, ["y"], target="cuda")
    assert owner(apart, "y") == "t"
    assert [s.name for s in apart.steps] == ["a", "s"]
    twice = program([first, op("s", "ScatterElements", ["t", "at", "t"], "y")], tensors, ["y"], target="cuda")
    assert owner(twice, "y") == "y"
    assert [s.name for s in twice.steps] == ["a", "s.0", "s.1"]
    assert twice.decisions[-1].reason == "t is an operand twice"


def test_an_operand_that_is_a_view_of_the_other_is_not_overwritten() -> None:
    nodes = [op("a", "Relu", ["x"], "t"), op("f", "Flatten", ["t"], "v"), op("m", "Mul", ["t", "v"], "y")]
    made = program(nodes, X, ["y"], target="cpu")
    assert owner(made, "y") == "y"


def test_a_declared_overwrite_of_a_viewed_tensor_is_refused() -> None:
    tensors = {"x": tensor("input", (4, 4), "float32"), "u": tensor(None, (4, 4), "float32")}
    nodes = [
        op("a", "Relu", ["x"], "t"),
        op("f", "Flatten", ["t"], "v"),
        node("k", ["t"], ["u"], inplace={"u": "t"}),
        op("late", "Abs", ["v"], "z"),
    ]
    with pytest.raises(GraphError, match="v is read later by late") as caught:
        program(nodes, tensors, ["u", "z"], target="cpu")
    assert caught.value.code == "KG345"


def test_S24_an_alias_of_a_parameter_shares_its_address() -> None:
    tensors = {
        **X,
        "w": tensor("parameter", (4, 4), "float32", init={"fill": 1}),
        "s": tensor("parameter", (4, 4), "float32", alias_of="w"),
    }
    made = program([op("a", "Add", ["x", "w"], "t"), op("b", "Add", ["t", "s"], "y")], tensors, ["y"], target="cpu")
    assert made.slots["s"] == made.slots["w"]


def test_B3_an_alias_of_a_tensor_without_memory_gets_its_own() -> None:
    tensors = {
        **X,
        "w": tensor("parameter", (4, 4), "float32", init={"fill": 1}),
        "s": tensor("parameter", (4, 4), "float32", alias_of="w"),
    }
    made = program([op("b", "Add", ["x", "s"], "y")], tensors, ["y"], target="cpu")
    assert made.buffers[made.slots["s"].buffer].nbytes == 64


def test_S15_a_masked_input_gets_no_memory_and_a_null_argument() -> None:
    tensors = {"x": tensor("input"), "bias": tensor("input", valid=False)}
    made = program([node("k0", ["x", "bias"], ["y"])], tensors, ["y"])
    assert "bias" not in made.slots
    assert made.steps[0].work.args[1] is None  # type: ignore[union-attr]


def test_S38_a_pinned_tensor_has_a_static_copy() -> None:
    tensors = {"x": tensor("input"), "t": tensor(pin=True)}
    made = program([node("a", ["x"], ["t"]), node("b", ["t"], ["y"])], tensors, ["y"])
    assert [s.name for s in made.steps] == ["a", "t.pinned", "b"]
    assert isinstance(made.steps[1].work, Copy)
    assert made.buffers[made.slots["t.pinned"].buffer].memory_class is MemoryClass.OUTPUT


def test_S54_S81_cleared_outputs_are_zeroed_first_and_held_from_then_on() -> None:
    made = program(
        [node("k0", ["x"], ["y"], clear=["y"], workspace=[{"nbytes": 64, "clear": True}])],
        {"x": tensor("input")},
        ["y"],
    )
    assert [(s.name, type(s.work).__name__) for s in made.steps] == [
        ("k0.clear", "Clear"),
        ("k0.clear", "Clear"),
        ("k0", "Launch"),
    ]
    workspace = next(b.index for b in made.buffers if b.memory_class is MemoryClass.WORKSPACE)
    assert [workspace in s.writes for s in made.steps] == [False, True, True]


def test_known_results_run_nothing() -> None:
    nodes = [op("s", "Shape", ["x"], "shape"), op("r", "Reshape", ["x", "shape"], "v"), op("n", "Neg", ["v"], "y")]
    made = program(nodes, X, ["y"], target="cpu")
    assert [s.name for s in made.steps] == ["n"]


def test_a_declared_overwrite_beside_a_view_of_the_same_bytes_is_refused() -> None:
    nodes = [
        op("a", "Relu", ["x"], "t"),
        op("f", "Flatten", ["t"], "v"),
        op("m", "Mul", ["t", "v"], "y", inplace={"y": "t"}),
    ]
    with pytest.raises(GraphError, match="v, another operand, shares the bytes of t") as caught:
        program(nodes, X, ["y"], target="cpu")
    assert caught.value.code == "KG345"
