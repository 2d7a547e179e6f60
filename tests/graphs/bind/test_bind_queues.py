"""Queues in a graph: what GetNext feeds becomes an input, and what cannot be is refused."""

from __future__ import annotations

from typing import Any

import pytest

from kgrun.graphs.bind import bind
from kgrun.graphs.errors import GraphError
from kgrun.runtime.lower import lower
from kgrun.runtime.program import MemoryClass
from tests.support import bound, graph, node, tensor

X = {"x": tensor(None, ("n", 2), "float32")}
NEXT = node("next", [], ["x"], op="GetNext", queue="q")
NEG = node("neg", ["x"], ["y"], op="Neg")
Q = {"q": {"items": ["x"]}}


def test_S144_items_are_inputs_and_the_node_runs_nothing() -> None:
    made = bound([NEXT, node("late", ["x"], ["y"], op="Neg", after=["next"])], X, ["y"], queues=Q, dims={"n": 3})
    assert [each.name for each in made.nodes] == ["late"]
    assert (made.tensors["x"].role, made.tensors["x"].producer, made.fed) == ("input", None, {"x"})
    assert made.warnings == ()
    program = lower(made, "cpu")
    assert [(b.name, b.memory_class) for b in program.buffers] == [
        ("x", MemoryClass.INPUT),
        ("y", MemoryClass.OUTPUT),
    ]


def test_an_item_is_never_overwritten_not_even_where_it_dies() -> None:
    nodes = [NEXT, node("relu", ["x"], ["t"], op="Relu"), node("neg", ["t"], ["y"], op="Neg")]
    program = lower(bound(nodes, X, ["y"], queues=Q, dims={"n": 3}), "cpu")
    assert program.slots["x"].buffer not in {program.slots["t"].buffer, program.slots["y"].buffer}
    with pytest.raises(GraphError, match="would overwrite input 'x'") as caught:
        bound([NEXT, node("relu", ["x"], ["y"], op="Relu", inplace={"y": "x"})], X, ["y"], queues=Q, dims={"n": 3})
    assert caught.value.code == "KG354"


def test_a_queue_that_nobody_reads_is_worth_a_warning() -> None:
    made = bound([NEXT, NEG], X, ["y"], queues={**Q, "p": {"items": ["z"]}}, dims={"n": 3})
    assert [warning.message for warning in made.warnings] == ["queue 'p' is read by no node"]


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        ({"next": {"queue": "qq"}}, "KG343", "there is no queue 'qq'"),
        ({"next": {"queue": None}}, "KG357", "'next' names no queue"),
        ({"next": {"op": "Identity", "inputs": ["w"]}}, "KG357", "'next' (Identity) reads no queue"),
        ({"next": {"outputs": ["z"]}}, "KG357", "outputs of 'next' are not the items of queue 'q'"),
        ({"next": {"inputs": ["w"]}}, "KG357", "GetNext takes no inputs"),
        ({"x": {"dtype": None}}, "KG351", "'x', which a queue feeds, needs a dtype and a shape"),
        ({"x": {"init": {"fill": 0}}}, "KG357", "'x' is fed by a queue and cannot have init"),
        ({"x": {"role": "parameter"}}, "KG357", "'x' is fed by a queue and cannot have role parameter"),
        ({"x": {"shape": []}}, "KG357", "the items of queue 'q' are no batch of one size: x []"),
        ({"x": {"shape": [0, 2]}}, "KG357", "no batch of one size: x [0, 2]"),
        (
            {"more": [node("again", [], ["x"], op="GetNext", queue="q")]},
            "KG341",
            "written twice, by 'next' and 'again'",
        ),
    ],
)
def test_S144_what_does_not_fit_is_refused(change: dict[str, Any], code: str, says: str) -> None:
    tensors = {"x": X["x"] | change.get("x", {}), "w": tensor("parameter", (3, 2), "float32", init={"fill": 0})}
    nodes = [NEXT | change.get("next", {}), NEG, *change.get("more", [])]
    with pytest.raises(GraphError) as caught:
        bind(graph(nodes, tensors, ["y"], queues=Q, dims={"n": 3}))
    assert caught.value.code == code
    assert says in caught.value.message


def test_items_of_different_batch_sizes_are_refused() -> None:
    tensors = {**X, "i": tensor(None, (4,), "int64")}
    nodes = [node("next", [], ["x", "i"], op="GetNext", queue="q"), NEG]
    with pytest.raises(GraphError, match=r"no batch of one size: x \[3, 2\], i \[4\]"):
        bind(graph(nodes, tensors, ["y"], queues={"q": {"items": ["x", "i"]}}, dims={"n": 3}))
