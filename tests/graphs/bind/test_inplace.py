"""In-place requests: what is refused while binding."""

from __future__ import annotations

import pytest

from kgrun.graphs.errors import GraphError
from tests.support import bound, node, tensor

X = {"x": tensor("input")}


def test_overwriting_an_input_is_refused() -> None:
    with pytest.raises(GraphError, match="would overwrite input 'x'") as caught:
        bound([node("k1", ["x"], ["y"], inplace={"y": "x"})], X, ["y"])
    assert str(caught.value.where) == "nodes[0].inplace.y"


def test_a_reader_further_down_the_file_is_refused() -> None:
    nodes = [node("a", ["x"], ["t"]), node("k1", ["t"], ["y"], inplace={"y": "t"}), node("k2", ["t"], ["z"])]
    with pytest.raises(GraphError, match="'k1' overwrites 't' in place, but 'k2' reads it further down") as caught:
        bound(nodes, X, ["y", "z"])
    assert caught.value.code == "KG345"


def test_a_reader_further_up_runs_first() -> None:
    nodes = [
        node("k2", ["t", "late"], ["z"]),
        node("a", ["x"], ["t"]),
        node("k1", ["t"], ["y"], inplace={"y": "t"}),
        node("b", ["x"], ["late"]),
    ]
    graph = bound(nodes, X, ["y", "z"])
    order = [n.name for n in graph.nodes]
    assert order.index("k2") < order.index("k1")


def test_sizes_must_match() -> None:
    tensors = {**X, "y": tensor(None, [128])}
    with pytest.raises(GraphError, match=r"\(128 bytes\) cannot take over 't' \(256 bytes\)"):
        bound([node("a", ["x"], ["t"]), node("k", ["t"], ["y"], inplace={"y": "t"})], tensors, ["y"])


def test_two_outputs_cannot_take_over_one_input() -> None:
    nodes = [node("a", ["x"], ["t"]), node("k", ["t"], ["y", "z"], inplace={"y": "t", "z": "t"})]
    with pytest.raises(GraphError, match="two outputs of 'k' take over 't'"):
        bound(nodes, X, ["y", "z"])


def test_a_graph_output_cannot_be_overwritten() -> None:
    nodes = [node("a", ["x"], ["t"]), node("k", ["t"], ["y"], inplace={"y": "t"})]
    with pytest.raises(GraphError, match="would overwrite graph output 't'"):
        bound(nodes, X, ["t", "y"])


def test_S22_a_parameter_may_be_updated_in_place() -> None:
    tensors = {**X, "w": tensor("parameter", init={"fill": 0})}
    graph = bound([node("step", ["w", "x"], ["w2"], inplace={"w2": "w"})], tensors, ["w2"])
    assert graph.nodes[0].inplace == {"w2": "w"}
