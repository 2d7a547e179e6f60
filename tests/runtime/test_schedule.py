"""Independent branches on streams of their own."""

from __future__ import annotations

import random

from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.schedule import parallel_streams
from kgrun.runtime.streams import dependencies, plan_streams
from tests.graphs.random_graphs import random_graph
from tests.support import node, overlap, planned, program, tensor

X = {"x": tensor("input")}


def test_a_diamond_gets_a_stream_a_branch() -> None:
    branches = [node(f"b{i}", ["t"], [f"u{i}"]) for i in range(4)]
    made = parallel_streams(
        program([node("a", ["x"], ["t"]), *branches, node("join", [f"u{i}" for i in range(4)], ["y"])], X, ["y"])
    )
    assert [s.stream for s in made.steps] == ["compute", "compute", "branch 1", "branch 2", "branch 3", "branch 3"]
    order = dependencies(plan_streams(made))
    assert order[1:5] == [[0], [0], [0], [0]]
    assert sorted(order[5]) == [1, 2, 3, 4]
    _, by_name = planned(made)
    results = [by_name[f"u{i}"] for i in range(4)]
    assert not any(overlap(a, b) for i, a in enumerate(results) for b in results[:i])


def test_a_chain_stays_on_one_stream() -> None:
    made = program([node(f"n{i}", [f"t{i - 1}" if i else "x"], [f"t{i}"]) for i in range(6)], X, ["t5"])
    assert {s.stream for s in parallel_streams(made).steps} == {"compute"}


def test_streams_named_in_the_file_are_kept() -> None:
    made = program([node("a", ["x"], ["t"], stream=1), node("b", ["x"], ["u"])], X, ["t", "u"])
    assert parallel_streams(made) is made


def test_no_more_streams_than_allowed() -> None:
    made = program([node(f"n{i}", ["x"], [f"t{i}"]) for i in range(20)], X, [f"t{i}" for i in range(20)])
    assert len({s.stream for s in parallel_streams(made, 3).steps}) == 3


def test_spread_programs_give_the_same_bits() -> None:
    for seed in range(15):
        document = random_graph(random.Random(seed), 30)
        graph = KernelGraph.model_validate(document)
        with Session(graph, device="cpu") as one, Session(graph, device="cpu", streams="auto") as many:
            first, second = one.run(), many.run()
        assert {n: a.tobytes() for n, a in first.outputs.items()} == {n: a.tobytes() for n, a in second.outputs.items()}
