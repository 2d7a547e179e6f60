"""Plans by pool: use counts, what is freed when, groups, streams, limits."""

from __future__ import annotations

import random
from itertools import combinations
from typing import Any

import pytest

from kgrun.graphs.errors import DoesNotFit, UsageError
from kgrun.runtime.memory.pool.dry_run import use_counts
from kgrun.runtime.program import Program
from kgrun.runtime.streams import plan_streams
from tests.support import chain_of, collective_beside_a_branch, node, overlap, planned, program, tensor

X = {"x": tensor("input")}
KIB = 1024


def pooled(made: Program, **options: Any) -> Any:
    return planned(made, mode="pool", **options)


def test_S109_every_step_that_touches_a_buffer_is_a_use_of_it() -> None:
    nodes = [node("a", ["x"], ["t"]), node("b", ["t"], ["u"]), node("c", ["t", "u"], ["y"])]
    made = program(nodes, X, ["y"])
    counts = use_counts(made)
    assert {made.buffers[i].name: n for i, n in counts.items()} == {"x": 1, "t": 3, "u": 2, "y": 1}


def test_S109_B13_a_buffer_read_twice_by_one_step_counts_once_and_dies_there() -> None:
    tensors = {"x": tensor("input", [32, 32], "float32")}
    nodes = [
        node("a", ["x"], ["t"], op="Neg"),
        node("square", ["t", "t"], ["u"], op="MatMul"),
        node("c", ["u"], ["v"], op="Transpose"),
        node("d", ["v"], ["y"], op="Transpose"),
    ]
    made = program(nodes, tensors, ["y"])
    plan, by_name = pooled(made)
    assert use_counts(made)[made.slots["t"].buffer] == 2  # its producer and `square`
    assert overlap(by_name["t"], by_name["v"])  # given back once, after `square`
    assert plan.pool.kept == ()


def test_S110_S113_results_get_memory_when_their_step_comes_and_keep_it_until_the_last_reader() -> None:
    nodes, tensors = chain_of(6)
    plan, by_name = pooled(program(nodes, tensors, ["t5"]))
    assert [by_name[f"t{i}"].offset for i in range(5)] == [0, KIB, 0, KIB, 0]
    assert plan.dynamic_bytes == plan.lower_bound_bytes == 2 * KIB


def test_S111_S114_B8_B9_workspaces_come_after_results_and_go_back_after_every_step() -> None:
    nodes, tensors = chain_of(3, size=512)
    for row in nodes:
        row["workspace"] = [512, 0, 2 * KIB]
    nodes[1]["collective"] = {}  # the original freed nothing of a collective
    plan, by_name = pooled(program(nodes, tensors, ["t2"]))
    for name, result in (("k0", 0), ("k1", 512)):
        assert by_name[f"t{name[1]}"].offset == result
        assert f"{name}.workspace[1]" not in by_name  # a null pointer, no memory
    assert by_name["k0.workspace[0]"].offset == 512
    assert plan.pool.kept == ()
    assert plan.dynamic_bytes < sum(p.aligned for p in plan.placements if p.space == "dynamic")


def test_S115_a_result_that_nobody_reads_goes_back_at_once() -> None:
    nodes = [node("dead", ["x"], ["lost"]), node("a", ["x"], ["t"]), node("b", ["t"], ["y"])]
    made = program(nodes, X, ["y"])
    _, by_name = pooled(made)
    assert overlap(by_name["lost"], by_name["t"])


def test_S115_S89_what_a_collective_reads_stays_until_something_waits_for_it() -> None:
    _, by_name = pooled(program(collective_beside_a_branch(), X, ["y"]))
    assert not any(overlap(by_name["t"], by_name[name]) for name in "uvw")
    assert overlap(by_name["t"], by_name["p"]) or overlap(by_name["u"], by_name["q"])


def test_S116_S72_B24_a_collectives_operands_stand_side_by_side_each_aligned() -> None:
    tensors = {**X, "p": tensor(None, [700]), "q": tensor(None, [100]), "u": tensor(None, [700]), "v": tensor(None)}
    nodes = [
        node("a", ["x"], ["p"]),
        node("b", ["x"], ["q"]),
        node("comm", ["q", "p"], ["u", "v"], collective={}),
        node("c", ["u", "v"], ["y"]),
    ]
    _, by_name = pooled(program(nodes, tensors, ["y"]))
    assert by_name["p"].offset == by_name["q"].offset + 512
    assert by_name["v"].offset == by_name["u"].offset + 1024
    assert all(place.offset % 512 == 0 for place in by_name.values())


def test_S116_B6_B7_a_weight_among_a_collectives_inputs_is_never_pool_memory() -> None:
    tensors = {**X, "w": tensor("parameter", init={"fill": 1})}
    nodes = [node("a", ["x"], ["p"]), node("comm", ["p", "w"], ["u", "v"], collective={}), node("c", ["u", "v"], ["y"])]
    _, by_name = pooled(program(nodes, tensors, ["y"]))
    assert by_name["w"].space == by_name["p"].space == "static"
    assert by_name["w"].offset == by_name["p"].offset + by_name["p"].aligned


@pytest.mark.parametrize("view", [False, True])
def test_B14_graph_outputs_are_pinned_also_bare_ones_and_through_views(view: bool) -> None:
    tensors = {"x": tensor("input", [4, 64], "float32")}
    nodes = [node("a", ["x"], ["t"], op="Abs")]
    nodes += [node("view", ["t"], ["v"], op="Flatten")] if view else []
    nodes += [node("b", ["t"], ["u"], op="Transpose"), node("c", ["u"], ["y"], op="Transpose")]
    made = program(nodes, tensors, ["y", "v" if view else "t"])
    _, by_name = pooled(made)
    assert by_name["v" if view else "t"].space == "static"
    assert not overlap(by_name["v" if view else "t"], by_name["u"])


def test_lifelong_and_no_reuse_buffers_share_with_nobody_and_are_what_is_left() -> None:
    nodes, tensors = chain_of(6)
    tensors["t1"]["lifelong"] = True
    nodes[3]["no_reuse"] = True
    plan, by_name = pooled(program(nodes, tensors, ["t5"]))
    for name in ("t1", "t3"):
        assert not any(overlap(by_name[name], by_name[f"t{i}"]) for i in range(5) if f"t{i}" != name)
    assert sorted(plan.pool.kept) == ["t1", "t3"]


def test_S71_the_pool_says_what_was_used_and_what_lay_idle_at_its_peak() -> None:
    sizes = {"a": 4, "b": 1, "c": 6}  # KiB: `a` dies first, `c` does not fit into its place
    tensors = {**X, **{name: tensor(None, [size * KIB]) for name, size in sizes.items()}}
    nodes = [
        node("n0", ["x"], ["a"]),
        node("n1", ["a"], ["b"]),
        node("n2", ["b"], ["c"]),
        node("n3", ["c"], ["y"]),
    ]
    plan, _ = pooled(program(nodes, tensors, ["y"]))
    assert plan.dynamic_bytes == 11 * KIB
    assert (plan.pool.peak_used_bytes, plan.pool.peak_step, plan.pool.peak_idle) == (7 * KIB, 2, (4 * KIB,))
    assert not plan.optimal


@pytest.mark.parametrize("unit", [1, 512, 3 * KIB, 4 * KIB, 1 << 40])
def test_S69_blocks_follow_the_unit_and_are_cut_to_what_they_hold(unit: int) -> None:
    nodes, tensors = chain_of(5, size=2 * KIB)
    plan, by_name = pooled(program(nodes, tensors, ["t4"]), pool_unit=unit)
    assert plan.dynamic_bytes == sum(plan.blocks) == 4 * KIB
    assert len(plan.blocks) == (2 if unit <= 3 * KIB else 1)
    assert plan.pool.reserved_bytes >= plan.dynamic_bytes
    assert not overlap(by_name["t0"], by_name["t1"])


def wide(count: int) -> Program:
    """`count` results that live together, of 1, 2, 3 … KiB, then one that reads them all."""
    tensors = {**X, **{f"t{i}": tensor(None, [(i + 1) * KIB]) for i in range(count)}}
    nodes = [node(f"n{i}", ["x"], [f"t{i}"]) for i in range(count)]
    return program([*nodes, node("join", [f"t{i}" for i in range(count)], ["y"])], tensors, ["y"])


def test_U5_S69_S117_a_limit_that_does_not_fit_names_the_step_the_bytes_the_fragments_and_the_holders() -> None:
    made = wide(5)
    with pytest.raises(DoesNotFit) as failed:
        pooled(made, memory_limit=1024 + 14 * KIB)  # 1 KiB is static
    error = failed.value
    assert (error.exit, error.code) == (4, "KG401")
    told = error.details
    assert (told["step"], told["name"], told["needed_bytes"]) == ("n4", "t4", 5 * KIB)
    assert (told["available_bytes"], told["pool_used_bytes"], told["largest_idle_bytes"]) == (0, 10 * KIB, 4 * KIB)
    assert (told["static_bytes"], told["limit_bytes"]) == (KIB, 15 * KIB)
    assert told["holders"][0] == {"name": "t3", "nbytes": 4 * KIB}  # type: ignore[index]
    assert told["smallest_feasible_limit_bytes"] == 16 * KIB
    for word in ("'t4'", "'n4'", "5,120", "15,360", "t3 (4,096)"):
        assert word in error.message
    assert error.help is not None
    assert "16,384" in error.help
    plan, _ = pooled(made, memory_limit=16 * KIB)
    assert plan.peak_bytes == 16 * KIB


def test_S37_a_limit_below_static_memory_blames_static_memory() -> None:
    with pytest.raises(DoesNotFit, match="static memory alone takes 1,024 bytes") as failed:
        pooled(wide(2), memory_limit=512)
    assert failed.value.details["smallest_feasible_limit_bytes"] == KIB + 3 * KIB


def test_S108_B10_other_ways_to_grow_are_tried_dry_until_one_fits() -> None:
    # Blocks of 4 KiB: `a` and `b` in one each, dead when `d` comes, which fits into neither. In one block they touch.
    tensors = {
        **X,
        **{name: tensor(None, [size]) for name, size in {"a": 3072, "b": 3072, "c": 512, "d": 6144}.items()},
    }
    nodes = [
        node("na", ["x"], ["a"]),
        node("nb", ["x"], ["b"]),
        node("nc", ["a", "b"], ["c"]),
        node("nd", ["c"], ["d"]),
        node("end", ["c", "d"], ["y"]),
    ]
    made = program(nodes, tensors, ["y"])
    plan, _ = pooled(made, pool_unit=4 * KIB, memory_limit=KIB + 7 * KIB)
    assert [(each.way, each.step, each.fits) for each in plan.pool.attempts] == [
        ("units", None, False),
        ("units within the limit", "nd", False),
        ("one growing block", None, True),
    ]
    assert plan.blocks == (6656,)
    free, _ = pooled(made, pool_unit=4 * KIB)
    assert free.blocks == (3584, 3072, 6144)
    again, _ = pooled(made, pool_unit=4 * KIB, memory_limit=free.peak_bytes)
    assert again.blocks == free.blocks  # a limit that is met changes nothing


def test_options_of_other_modes_are_refused() -> None:
    made = wide(2)
    for options in ({"planner": "skyline"}, {"max_chunk": 4096}):
        with pytest.raises(UsageError) as failed:
            pooled(made, **options)
        assert failed.value.code == "KG240"
    with pytest.raises(UsageError):
        planned(made, pool_unit=4096)


@pytest.mark.parametrize("guard", [0, 512])
@pytest.mark.parametrize("unit", [512, 8 * KIB, None])
def test_S68_S109_S112_random_programs_on_several_streams_share_bytes_only_where_order_allows(
    unit: int | None, guard: int
) -> None:
    rng = random.Random(29)
    for _ in range(25):
        names, nodes, tensors = ["x"], list[dict[str, Any]](), dict(X)
        wide = rng.randint(1, 3)
        for i in range(rng.randint(2, 24)):
            inputs = rng.sample(names, min(len(names), rng.randint(1, 3)))
            more: dict[str, Any] = {"workspace": [rng.randint(0, 999)]} if rng.random() < 0.4 else {}
            nodes.append(node(f"n{i}", inputs, [f"t{i}"], stream=rng.randrange(wide), **more))
            tensors[f"t{i}"] = tensor(None, [rng.randint(1, 4000)], lifelong=rng.random() < 0.1)
            names.append(f"t{i}")
        loose = [name for name in names[1:-1] if not tensors[name]["lifelong"]]
        groups = [loose[:3]] if len(loose) >= 3 and rng.random() < 0.5 else []
        made = program(nodes, tensors, [names[-1]], contiguous=groups)
        plan, _ = pooled(made, pool_unit=unit, guard=guard)
        assert shares_only_in_order(made, plan)
        assert everything_is_there(made, plan)
        assert plan.lower_bound_bytes <= plan.dynamic_bytes


def everything_is_there(made: Program, plan: Any) -> bool:
    """Whatever a step reads or writes holds bytes while it runs, but what needs none: no null pointer is met (S112)."""
    places = {place.buffer: place for place in plan.placements}
    return all(
        made.buffers[index].nbytes == 0 or places[index].first_step <= step.index <= places[index].last_step
        for step in made.steps
        for index in (*step.reads, *step.writes)
    )


def shares_only_in_order(made: Program, plan: Any) -> bool:
    """Slow check, pair by pair: bytes are shared only where all steps of one buffer end before the other's start."""
    streams = plan_streams(made)
    touching = {b.index: [s.index for s in made.steps if b.index in (*s.reads, *s.writes)] for b in made.buffers}

    def before(one: int, other: int) -> bool:
        return all(streams.precedes(a, b) for a in touching[one] for b in touching[other])

    return not any(
        overlap(a, b)
        and (
            made.buffers[a.buffer].lifelong
            or made.buffers[b.buffer].lifelong
            or not (before(a.buffer, b.buffer) or before(b.buffer, a.buffer))
        )
        for a, b in combinations(plan.placements, 2)
    )


def test_two_branches_on_streams_of_their_own_reuse_their_own_bytes() -> None:
    nodes, tensors = list[dict[str, Any]](), dict(X)
    for i in range(6):
        for branch in ("p", "q"):
            source = f"{branch}{i - 1}" if i else "x"
            nodes.append(node(f"{branch}n{i}", [source], [f"{branch}{i}"], stream=int(branch == "q")))
            tensors[f"{branch}{i}"] = tensor(None, [KIB])
    nodes.append(node("join", ["p5", "q5"], ["y"]))
    plan, by_name = pooled(program(nodes, tensors, ["y"]))
    assert plan.dynamic_bytes == 4 * KIB  # two of each branch, although the branches' lives interleave
    assert not any(overlap(by_name[f"p{i}"], by_name[f"q{j}"]) for i in range(6) for j in range(6))
