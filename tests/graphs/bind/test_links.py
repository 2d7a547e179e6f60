"""Names, producers, order: what `bind` says of a graph's wiring."""

from __future__ import annotations

import pytest

from kgrun.graphs.errors import GraphError
from tests.support import bound, node, tensor

X = {"x": tensor("input")}


def names(graph: object) -> list[str]:
    return [n.name for n in graph.nodes]  # type: ignore[attr-defined]


def test_the_order_is_topological_and_otherwise_the_files() -> None:
    graph = bound([node("c", ["b"], ["d"]), node("z", ["x"], ["q"]), node("a", ["x"], ["b"])], X, ["d", "q"])
    assert names(graph) == ["z", "a", "c"]


def test_after_orders_nodes_without_data() -> None:
    graph = bound([node("late", ["x"], ["y"], after=["early"]), node("early", ["x"], ["z"])], X, ["y", "z"])
    assert names(graph) == ["early", "late"]


def test_a_cycle_is_named_whole() -> None:
    with pytest.raises(GraphError, match="a → b → a") as caught:
        bound([node("a", ["v"], ["u"]), node("b", ["u"], ["v"])], outputs=["v"])
    assert caught.value.code == "KG342"


def test_a_cycle_through_after_is_found() -> None:
    with pytest.raises(GraphError) as caught:
        bound([node("a", ["x"], ["u"], after=["b"]), node("b", ["u"], ["v"])], X, ["v"])
    assert caught.value.code == "KG342"


def test_a_tensor_written_twice_is_refused() -> None:
    with pytest.raises(GraphError, match="'y' is written twice, by 'a' and 'b'") as caught:
        bound([node("a", ["x"], ["y"]), node("b", ["x"], ["y"])], X, ["y"])
    assert str(caught.value.where) == "nodes[1].outputs[0]"


def test_two_nodes_of_one_name_are_refused() -> None:
    with pytest.raises(GraphError, match="used twice"):
        bound([node("a", ["x"], ["y"]), node("a", ["x"], ["z"])], X, ["y"])


def test_an_unknown_tensor_gets_a_suggestion() -> None:
    with pytest.raises(GraphError, match="'weigth' is not defined") as caught:
        bound([node("a", ["weigth"], ["y"])], {"weight": tensor("input")}, ["y"])
    assert caught.value.help == "did you mean 'weight'?"
    assert str(caught.value.where) == "nodes[0].inputs[0]"


def test_a_tensor_that_nothing_writes_is_refused() -> None:
    with pytest.raises(GraphError, match="'w' is read by 'k0' but nothing writes it") as caught:
        bound([node("k0", ["w"], ["y"])], {"w": tensor()}, ["y"])
    assert caught.value.help is not None
    assert "data" in caught.value.help


def test_an_input_that_a_node_writes_is_refused() -> None:
    with pytest.raises(GraphError, match="input 'x' is written by node 'a'"):
        bound([node("a", [], ["x"])], X, ["x"])


def test_S12_inputs_are_declared_ones_in_order_then_discovered_ones_in_execution_order() -> None:
    tensors = {
        "p2": tensor("parameter", init={"fill": 0}),
        "p1": tensor("parameter", init={"fill": 0}),
        "b": tensor("input"),
        "a": tensor("input"),
    }
    graph = bound([node("n", ["p1", "a", "p2", "p1"], ["y"])], tensors, ["y"], inputs=["a", "b"])
    outside = [t for t in graph.tensors.values() if t.producer is None]
    assert [t.name for t in outside] == ["a", "p1", "p2", "b"] or [t.name for t in outside] == ["a", "b", "p1", "p2"]
    assert {t.name for t in outside if t.discovered} == {"p1", "p2"}
    assert sorted(w.code for w in graph.warnings) == ["W-DISCOVERED", "W-DISCOVERED", "W-UNUSED"]


def test_S12_strict_refuses_what_would_be_discovered() -> None:
    from kgrun.graphs.bind import bind
    from tests.support import graph

    made = graph([node("n", ["x", "w"], ["y"])], {**X, "w": tensor(init={"fill": 0})}, ["y"])
    assert [w.code for w in bind(made).warnings] == ["W-DISCOVERED"]
    with pytest.raises(GraphError, match="'w' is not declared"):
        bind(made, strict=True)


def test_S14_nested_inputs_are_flattened() -> None:
    graph = bound(
        [node("n", ["x", ["w", [None, "v"]]], ["y"])], {**X, "w": tensor("input"), "v": tensor("input")}, ["y"]
    )
    assert graph.nodes[0].inputs == ("x", "w", None, "v")


def test_B17_an_input_named_twice_is_one_tensor() -> None:
    graph = bound([node("n", ["x", ["x", "x"]], ["y"])], X, ["y"])
    assert list(graph.tensors) == ["x", "y"]
    assert graph.tensors["x"].consumers == (0,)


def test_S18_an_unused_parameter_is_reported() -> None:
    graph = bound([node("n", ["x"], ["y"])], {**X, "w": tensor("parameter", init={"fill": 1})}, ["y"])
    assert [(w.code, w.path) for w in graph.warnings] == [("W-UNUSED", ("tensors", "w"))]
    assert not graph.tensors["w"].used


def test_S19_a_lonely_weight_is_reported() -> None:
    graph = bound([node("n", ["x"], ["y"])], {**X, "w": tensor("parameter", init={"fill": 1})}, ["y", "w"])
    assert [w.code for w in graph.warnings] == ["W-LONELY-WEIGHT"]


def test_S36_a_kernel_without_outputs_is_no_error() -> None:
    graph = bound([node("n", ["x"], ["y"]), node("sink", ["y"], [])], X, ["y"])
    assert names(graph) == ["n", "sink"]


def test_B22_an_index_just_past_the_end_is_caught() -> None:
    with pytest.raises(GraphError, match="has no workspace 1"):
        bound([node("n", ["x"], ["y"], workspace=[64], args=["x", "y", {"workspace": 1}])], X, ["y"])


def test_an_empty_graph_is_refused_unless_allowed() -> None:
    from kgrun.graphs.bind import bind
    from tests.support import graph

    with pytest.raises(GraphError, match="no nodes"):
        bind(graph([]))
    assert bind(graph([]), allow_empty=True).nodes == ()
