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


def operator(op: str, inputs: list[str], over: str, **attributes: object) -> dict[str, object]:
    return {"name": "n", "op": op, "inputs": inputs, "outputs": ["y"], "attributes": attributes, "inplace": {"y": over}}


BESIDE = {
    "w": tensor("parameter", [8, 8], "float32", init={"fill": 1}),
    "v": tensor("parameter", [8, 8], "float32", init={"fill": 1}),
    "flat": tensor("parameter", [64], "float32", init={"fill": 1}),
    "integers": tensor("parameter", [8, 8], "int32", init={"fill": 1}),
    "rate": tensor("constant", [], "float32", value=0.5),
    "count": tensor("constant", [], "int64", value=1),
}


@pytest.mark.parametrize(
    "node",
    [
        operator("MatMul", ["w", "v"], "w"),
        operator("MatMul", ["w", "v"], "v"),
        operator("Transpose", ["w"], "w"),
        operator("Gemm", ["w", "v", "w"], "w"),
        operator("CumSum", ["w", "count"], "w", reverse=1),
        operator("Gather", ["w", "integers"], "w"),
        operator("Cast", ["w"], "w", to="int32"),
        operator("Sum", ["w", "w", "v"], "v"),
        operator("Concat", ["w"], "w", axis=0),
        operator("LayerNormalization", ["w", "w"], "w", axis=0),
        operator("SGD", ["rate", "w", "v"], "rate"),
    ],
    ids=lambda node: f"{node['op']} over {node['inplace']['y']}",
)
def test_an_operator_that_needs_its_input_until_its_end_cannot_overwrite_it(node: dict[str, object]) -> None:
    with pytest.raises(GraphError) as caught:
        bound([node], BESIDE, ["y"])
    assert caught.value.code == "KG354"


@pytest.mark.parametrize(
    "node",
    [
        operator("Relu", ["w"], "w"),
        operator("Add", ["w", "v"], "v"),
        operator("Mul", ["w", "w"], "w"),
        operator("Softmax", ["w"], "w", axis=0),
        operator("Reshape", ["flat", "shape"], "flat"),
        operator("SGD", ["rate", "w", "v"], "w"),
        operator("SGD", ["rate", "w", "v"], "v"),
        operator("SGD", ["rate", "w", "w"], "w"),
    ],
    ids=lambda node: f"{node['op']} over {node['inplace']['y']}",
)
def test_an_operator_may_overwrite_what_its_schema_allows(node: dict[str, object]) -> None:
    shape = {"role": "constant", "dtype": "int64", "value": [8, 8]}
    graph = bound([node], {**BESIDE, "shape": shape}, ["y"])
    assert graph.nodes[0].inplace == node["inplace"]


def test_each_parameter_of_an_optimizer_overwrites_its_own_tensors_alone() -> None:
    step = {"name": "n", "op": "SGD", "inputs": ["rate", "w", "v", "g", "h"], "outputs": ["y", "z"]}
    more = {"g": tensor("input", [8, 8], "float32"), "h": tensor("input", [8, 8], "float32")}
    assert bound([{**step, "inplace": {"y": "w", "z": "v"}}], {**BESIDE, **more}, ["y", "z"]).nodes[0].inplace
    with pytest.raises(GraphError, match="needs 'v' until its end"):
        bound([{**step, "inplace": {"y": "v", "z": "w"}}], {**BESIDE, **more}, ["y", "z"])
