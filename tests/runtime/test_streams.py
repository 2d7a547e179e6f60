"""Events, clocks and conflicts of programs with several streams."""

from __future__ import annotations

import random
from itertools import combinations

from kgrun.runtime.program import Program
from kgrun.runtime.streams import conflicts, plan_streams
from tests.support import collective_beside_a_branch, node, program, tensor

X = {"x": tensor("input")}


def events(made: Program) -> list[tuple[str, str]]:
    names = [s.name for s in made.steps]
    return [(names[e.record_after], names[e.wait_before]) for e in plan_streams(made).events]


def test_one_stream_needs_no_events() -> None:
    made = program([node("a", ["x"], ["t"]), node("b", ["t"], ["y"])], X, ["y"])
    assert plan_streams(made).names == ("compute",)
    assert events(made) == []


def test_S7_S77_the_stream_is_the_nodes_own_else_comm_for_collectives_else_compute() -> None:
    nodes = [
        node("a", ["x"], ["t"]),
        node("c", ["t"], ["u"], collective={}),
        node("s", ["u"], ["y"], stream=3),
    ]
    made = program(nodes, X, ["y"])
    assert [s.stream for s in made.steps] == ["compute", "comm", "3"]


def test_S88_only_the_nearest_child_waits() -> None:
    nodes = [
        node("a", ["x"], ["t"]),
        node("comm1", ["t"], ["u"], collective={}),
        node("comm2", ["u"], ["v"], collective={}),
        node("other", ["x"], ["w"]),
        node("child", ["u", "v", "w"], ["y"]),
        node("later", ["u", "y"], ["z"]),
    ]
    assert events(program(nodes, X, ["z"])) == [("a", "comm1"), ("comm2", "child")]


def test_S83_S89_B19_an_overwrite_waits_for_the_other_streams_reader() -> None:
    nodes = [
        node("a", ["x"], ["t"]),
        node("comm", ["t"], ["u"], collective={}),
        node("over", ["t"], ["t2"], inplace={"t2": "t"}),
        node("join", ["t2", "u"], ["y"]),
    ]
    assert ("comm", "over") in events(program(nodes, X, ["y"]))


def test_S89_inputs_of_a_communication_step_live_until_something_waits_for_it() -> None:
    made = program(collective_beside_a_branch(), X, ["y"])
    slot = {name: pointer.buffer for name, pointer in made.slots.items()}
    order = [b.index for b in made.buffers]
    pairs = {frozenset((order[i], order[j])) for i, j in conflicts(made, plan_streams(made), order)}

    def conflict(one: str, other: str) -> bool:
        return frozenset((slot[one], slot[other])) in pairs

    # By list order t dies at `comm`; on another stream it is being read until `join` has waited.
    assert conflict("t", "v")
    assert conflict("t", "w")
    assert not conflict("t", "p")


def _reaches(made: Program) -> list[set[int]]:
    """Ancestors of each step by plain search over stream order, `after` and shared buffers: the oracle."""
    ancestors: list[set[int]] = []
    for step in made.steps:
        found: set[int] = set()
        for before in made.steps[: step.index]:
            touches = set(before.writes) & {*step.reads, *step.writes} or set(before.reads) & set(step.writes)
            if before.stream == step.stream or touches or before.index in step.after:
                found |= {before.index} | ancestors[before.index]
        ancestors.append(found)
    return ancestors


def _random_program(rng: random.Random, most: int, streams: int) -> Program:
    """2 to `most` kernels that read what earlier ones wrote, on any of `streams` streams."""
    names, nodes = ["x"], []
    for i in range(rng.randint(2, most)):
        inputs = rng.sample(names, min(len(names), rng.randint(1, 3)))
        nodes.append(node(f"n{i}", inputs, [f"t{i}"], stream=rng.randrange(streams)))
        names.append(f"t{i}")
    return program(nodes, X, [names[-1]])


def test_S53_clocks_agree_with_plain_reachability_on_random_graphs() -> None:
    rng = random.Random(7)
    for _ in range(60):
        made = _random_program(rng, most=18, streams=4)
        streams, ancestors = plan_streams(made), _reaches(made)
        for a, b in combinations(range(len(made.steps)), 2):
            assert streams.precedes(a, b) == (a in ancestors[b])
            assert not streams.precedes(b, a)


def test_S58_two_buffers_conflict_unless_one_is_dead_before_the_other_starts() -> None:
    rng = random.Random(11)
    for _ in range(40):
        made = _random_program(rng, most=14, streams=3)
        ancestors = _reaches(made)
        order = [b.index for b in made.buffers]
        touching = {b: [s.index for s in made.steps if b in (*s.reads, *s.writes)] for b in order}
        expected = {
            (j, i)
            for i in range(len(order))
            for j in range(i)
            if not all(u in ancestors[v] for u in touching[order[i]] for v in touching[order[j]])
            and not all(u in ancestors[v] for u in touching[order[j]] for v in touching[order[i]])
        }
        assert set(conflicts(made, plan_streams(made), order)) == expected
