"""What a plan promises: its certificate, its limit, and the planners that miss it."""

from __future__ import annotations

import random

import pytest

from kgrun.graphs.errors import DoesNotFit, UsageError
from kgrun.runtime.memory.packing import verify
from kgrun.runtime.memory.plan_types import Placement
from tests.support import chain_of, node, overlap, planned, program, tensor

X = {"x": tensor("input")}
KIB = 1024


def test_S49_a_workspace_lives_for_its_node_alone() -> None:
    nodes, tensors = chain_of(4)
    for row in nodes:
        row["workspace"] = [KIB]
    _, by_name = planned(program(nodes, tensors, ["t3"]))
    assert [(by_name[f"k{i}.workspace[0]"].first_step, by_name[f"k{i}.workspace[0]"].last_step) for i in range(4)] == [
        (i, i) for i in range(4)
    ]


def test_S60_S61_the_certificate_holds_on_random_programs() -> None:
    rng = random.Random(5)
    for _ in range(50):
        tensors, nodes, names = dict(X), [], ["x"]
        for i in range(rng.randint(1, 25)):
            tensors[f"t{i}"] = tensor(None, [rng.randint(1, 5000)])
            nodes.append(
                node(f"n{i}", rng.sample(names, min(len(names), 2)), [f"t{i}"], workspace=[rng.randint(0, 999)])
            )
            names.append(f"t{i}")
        made = program(nodes, tensors, [names[-1]])
        plan, _ = planned(made)
        live = [
            sum(p.aligned for p in plan.placements if p.space == "dynamic" and p.first_step <= s <= p.last_step)
            for s in range(len(made.steps))
        ]
        assert plan.lower_bound_bytes == max(live)
        assert plan.lower_bound_bytes <= plan.dynamic_bytes <= plan.no_reuse_bytes
        if plan.peak_step is not None:
            assert live[plan.peak_step] == max(live)
        assert _alone(plan.placements)


def _alone(placements: tuple[Placement, ...]) -> bool:
    """Slow check of every pair: bytes shared only where lives are apart."""
    return not any(
        overlap(a, b) and a.first_step <= b.last_step and b.first_step <= a.last_step
        for i, a in enumerate(placements)
        for b in placements[:i]
    )


def test_S60_the_plan_does_not_depend_on_the_order_of_declarations() -> None:
    nodes, tensors = chain_of(12, 700)
    turned = dict(reversed(tensors.items()))
    one, other = planned(program(nodes, tensors, ["t11"]))[0], planned(program(nodes, turned, ["t11"]))[0]
    assert one.peak_bytes == other.peak_bytes
    assert one.placements == planned(program(nodes, tensors, ["t11"]))[0].placements


def test_a_limit_that_holds_is_kept_to_the_byte() -> None:
    nodes, tensors = chain_of(5)
    made = program(nodes, tensors, ["t4"])
    plan, _ = planned(made)
    assert planned(made, memory_limit=plan.peak_bytes)[0].peak_bytes == plan.peak_bytes
    with pytest.raises(DoesNotFit) as caught:
        planned(made, memory_limit=plan.peak_bytes - 1)
    assert caught.value.details["smallest_feasible_limit_bytes"] == plan.peak_bytes
    assert caught.value.details["proven"] is True
    assert caught.value.details["step"] in {f"k{i}" for i in range(5)}


def test_a_limit_below_the_static_bytes_names_their_classes() -> None:
    nodes, tensors = chain_of(2)
    with pytest.raises(DoesNotFit, match=r"static memory alone takes 2,048 bytes \(input 1,024, output 1,024\)"):
        planned(program(nodes, tensors, ["t1"]), memory_limit=KIB)


def test_a_workspace_counts_against_the_limit_and_is_named() -> None:
    made = program([node("a", ["x"], ["y"], workspace=[64 << 20])], X, ["y"])
    with pytest.raises(DoesNotFit, match=r"a\.workspace\[0\] \(workspace, 67,108,864\)"):
        planned(made, memory_limit=32 << 20)


def test_an_unknown_planner_is_a_usage_error() -> None:
    nodes, tensors = chain_of(2)
    with pytest.raises(UsageError, match="unknown planner 'best'"):
        planned(program(nodes, tensors, ["t1"]), planner="best")


def test_the_verifier_refuses_a_plan_that_shares_live_bytes() -> None:
    from kgrun.runtime.memory.dynamic import packing_problem
    from kgrun.runtime.memory.lifetimes import lifetimes

    nodes, tensors = chain_of(3)
    made = program(nodes, tensors, ["t2"])
    buffers = [b for b in made.buffers if not b.memory_class.static]
    problem = packing_problem(buffers, lifetimes(made))
    assert verify(problem, [0, KIB]) == []
    assert [v.kind for v in verify(problem, [0, 512])] == ["overlap"]


def test_S58_plans_of_several_streams_keep_conflicting_buffers_apart() -> None:
    from kgrun.runtime.streams import conflicts, plan_streams

    rng = random.Random(3)
    for _ in range(40):
        tensors, nodes, names = dict(X), [], ["x"]
        for i in range(rng.randint(2, 20)):
            tensors[f"t{i}"] = tensor(None, [rng.randint(1, 3000)])
            inputs = rng.sample(names, min(len(names), 2))
            nodes.append(node(f"n{i}", inputs, [f"t{i}"], stream=rng.randint(0, 2)))
            names.append(f"t{i}")
        made = program(nodes, tensors, [names[-1]])
        plan, _ = planned(made)
        dynamic = [p for p in plan.placements if p.space == "dynamic"]
        for i, j in conflicts(made, plan_streams(made), [p.buffer for p in dynamic]):
            assert not overlap(dynamic[i], dynamic[j])
        assert plan.lower_bound_bytes <= plan.dynamic_bytes <= plan.no_reuse_bytes


def test_a_weaker_planner_that_misses_the_limit_is_told_of_a_better_one() -> None:
    from kgrun.runtime.memory.packing import PackOptions, Problem, pack

    # A problem whose greedy plan is above the lower bound, as a chain of buffers with those lives and sizes.
    rng = random.Random(1)
    for _ in range(200):
        lives = [(a := rng.randint(0, 11), rng.randint(a + 1, 12), 512 * rng.randint(1, 9)) for _ in range(14)]
        problem = Problem([a for a, _, _ in lives], [b for _, b, _ in lives], [n for _, _, n in lives], alignment=512)
        best, greedy = (pack(problem, PackOptions(method=m)).height for m in ("auto", "greedy-size"))
        if greedy > best:
            break
    tensors = {"x": tensor("input", [1])} | {f"t{i}": tensor(None, [n]) for i, (_, _, n) in enumerate(lives)}
    nodes = []
    for step in range(13):
        made = [f"t{i}" for i, (a, _, _) in enumerate(lives) if a == step]
        read = [f"t{i}" for i, (a, b, _) in enumerate(lives) if a < step and b - 1 == step]
        before = [f"s{step - 1}"] if step else []
        nodes.append(node(f"s{step}", ["x", *read], made or [f"none{step}"], after=before))
        tensors.update({} if made else {f"none{step}": tensor(None, [0])})
    wide = program([*nodes, node("end", ["x"], ["y"], after=["s12"])], tensors, ["y"])
    plan = planned(wide)[0]
    assert plan.dynamic_bytes == best
    with pytest.raises(DoesNotFit, match="planner greedy-size found no plan") as caught:
        planned(wide, planner="greedy-size", memory_limit=plan.peak_bytes)
    assert caught.value.help == f"--planner auto finds one of {plan.peak_bytes:,} bytes"


def test_S59_a_single_object_must_beat_many_by_more_than_100_mib() -> None:
    from kgrun.runtime.memory.packing import PackOptions, Problem, pack

    def orders(unit: int) -> set[str]:
        rng = random.Random(2)
        found = set()
        for _ in range(60):
            lives = [(a := rng.randint(0, 11), rng.randint(a + 1, 12), unit * rng.randint(1, 9)) for _ in range(14)]
            problem = Problem([a for a, _, _ in lives], [b for _, b, _ in lives], [n for _, _, n in lives])
            found.add(pack(problem, PackOptions(method="somas")).order.split(",")[0])
        return found

    assert orders(1) == {"many objects"}
    assert orders(256 << 20) == {"many objects", "single object"}


def test_a_planner_that_cannot_take_so_many_buffers_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from kgrun.runtime.memory import solve
    from kgrun.runtime.memory.compare_planners import compare_planners
    from kgrun.runtime.memory.packing import Packing, PackingError, PackOptions, Problem, pack

    def small_only(problem: Problem, options: PackOptions) -> Packing:
        if options.method == "greedy-size":
            raise PackingError("the conflict graph is too large")
        return pack(problem, options)

    monkeypatch.setattr(solve, "pack", small_only)
    nodes, tensors = chain_of(3)
    made = program(nodes, tensors, ["t2"])
    with pytest.raises(UsageError, match="planner 'greedy-size' cannot plan 2 buffers") as caught:
        planned(made, planner="greedy-size")
    assert caught.value.code == "KG203"
    assert [row.planner for row in compare_planners(made, ["auto", "greedy-size", "none"])] == ["auto", "none"]
