"""The planning rules of the two runtimes, one test a rule."""

from __future__ import annotations

import random
from typing import Literal

import pytest

from kgrun.graphs.errors import DoesNotFit, UsageError
from kgrun.runtime.memory.alignment import held_bytes
from kgrun.runtime.memory.packing import verify
from kgrun.runtime.memory.plan_types import Placement
from tests.support import node, overlap, planned, program, tensor

X = {"x": tensor("input")}
KIB = 1024


def chain(length: int, size: int = KIB) -> tuple[list[dict[str, object]], dict[str, dict[str, object]]]:
    tensors = {"x": tensor("input", [size])} | {f"t{i}": tensor(None, [size]) for i in range(length)}
    names = ["x", *(f"t{i}" for i in range(length))]
    return [node(f"k{i}", [names[i]], [names[i + 1]]) for i in range(length)], tensors


def test_S21_inputs_parameters_constants_and_outputs_are_static() -> None:
    tensors = {
        **X,
        "w": tensor("parameter", init={"fill": 0}),
        "c": {"role": "constant", "dtype": "uint8", "value": [1, 2, 3]},
    }
    made = program([node("a", ["x", "w", "c"], ["t"], workspace=[64]), node("b", ["t"], ["y"])], tensors, ["y"])
    _, by_name = planned(made)
    assert {name: by_name[name].space for name in ("x", "w", "c", "y", "t", "a.workspace[0]")} == {
        "x": "static", "w": "static", "c": "static", "y": "static", "t": "dynamic", "a.workspace[0]": "dynamic",
    }  # fmt: skip


def test_S18_an_unused_parameter_gets_no_memory() -> None:
    made = program([node("a", ["x"], ["y"])], {**X, "w": tensor("parameter", init={"fill": 0})}, ["y"])
    _, by_name = planned(made)
    assert "w" not in by_name


def test_S19_a_lonely_weight_gets_no_memory() -> None:
    made = program([node("a", ["x"], ["y"])], {**X, "w": tensor("parameter", init={"fill": 0})}, ["y", "w"])
    assert "w" not in planned(made)[1]


def test_S20_a_scalar_is_one_element() -> None:
    made = program([node("a", ["s"], ["y"])], {"s": tensor("input", [], "float64")}, ["y"])
    assert planned(made)[1]["s"].nbytes == 8


def test_S26_constants_are_laid_out_by_name() -> None:
    def offsets(names: list[str]) -> dict[str, int]:
        tensors = {n: {"role": "constant", "dtype": "uint8", "value": [1]} for n in names}
        return {n: p.offset for n, p in planned(program([node("a", names, ["y"])], tensors, ["y"]))[1].items()}

    assert offsets(["b", "a", "c"]) == offsets(["c", "b", "a"])
    found = offsets(["b", "a", "c"])
    assert found["a"] < found["b"] < found["c"] < found["y"]


def test_S31_B23_an_empty_string_takes_no_bytes() -> None:
    tensors = {**X, "e": {"role": "constant", "string": ""}, "s": {"role": "constant", "string": "héllo"}}
    _, by_name = planned(program([node("a", ["x", "e", "s"], ["y"])], tensors, ["y"]))
    assert "e" not in by_name
    assert by_name["s"].nbytes == 6


def test_S32_S35_graph_outputs_are_static_also_where_others_read_them() -> None:
    made = program([node("a", ["x"], ["t"]), node("b", ["t"], ["y"])], X, ["t", "y"])
    plan, by_name = planned(made)
    assert by_name["t"].space == by_name["y"].space == "static"
    assert plan.dynamic_bytes == 0


def test_S34_a_group_with_a_graph_output_is_static_as_a_whole_and_side_by_side() -> None:
    nodes = [node("a", ["x"], ["p", "q"]), node("comm", ["p", "q"], ["u", "v"], collective={}), node("b", ["v"], ["y"])]
    _, by_name = planned(program(nodes, X, ["u", "y"]))
    assert by_name["u"].space == by_name["v"].space == "static"
    assert by_name["v"].offset == by_name["u"].offset + by_name["u"].aligned


def test_S37_static_and_dynamic_bytes_are_counted_apart() -> None:
    nodes, tensors = chain(3)
    plan, _ = planned(program(nodes, tensors, ["t2"]))
    assert (plan.static_bytes, plan.dynamic_bytes) == (2 * KIB, 2 * KIB)
    assert plan.peak_bytes == 4 * KIB


def test_S44_without_reuse_every_buffer_has_its_own_bytes() -> None:
    nodes, tensors = chain(6)
    made = program(nodes, tensors, ["t5"])
    none, by_name = planned(made, mode="none")
    assert none.dynamic_bytes == none.no_reuse_bytes == 5 * KIB
    held = [p for p in by_name.values() if p.space == "dynamic"]
    assert not any(overlap(a, b) for i, a in enumerate(held) for b in held[:i] if a is not b)
    assert planned(made)[0].dynamic_bytes == 2 * KIB


def test_S46_a_node_or_tensor_may_opt_out_of_reuse() -> None:
    nodes, tensors = chain(6)
    nodes[1]["no_reuse"] = True
    made = program(nodes, {**tensors, "t3": tensor(None, [KIB], no_reuse=True)}, ["t5"])
    _, by_name = planned(made)
    for kept in ("t1", "t3"):
        assert not any(overlap(by_name[kept], p) for n, p in by_name.items() if n != kept)


def test_S46_the_opt_out_does_not_cover_the_nodes_workspace() -> None:
    nodes = [node("a", ["x"], ["t"], workspace=[KIB], no_reuse=True), node("b", ["t"], ["y"], workspace=[KIB])]
    _, by_name = planned(program(nodes, X, ["y"]))
    assert overlap(by_name["a.workspace[0]"], by_name["b.workspace[0]"])


def test_S49_a_workspace_lives_for_its_node_alone() -> None:
    nodes, tensors = chain(4)
    for row in nodes:
        row["workspace"] = [KIB]
    _, by_name = planned(program(nodes, tensors, ["t3"]))
    assert [(by_name[f"k{i}.workspace[0]"].first_step, by_name[f"k{i}.workspace[0]"].last_step) for i in range(4)] == [
        (i, i) for i in range(4)
    ]


def test_S52_life_is_from_producer_to_last_consumer() -> None:
    nodes = [
        node("a", ["x"], ["t"]),
        node("b", ["x"], ["u"]),
        node("c", ["t", "u"], ["v"]),
        node("d", ["v", "t"], ["y"]),
    ]
    _, by_name = planned(program(nodes, X, ["y"]))
    assert [(by_name[n].first_step, by_name[n].last_step) for n in ("t", "u", "v")] == [(0, 3), (1, 2), (2, 3)]


def test_S52_a_result_that_nothing_reads_lives_while_it_is_made() -> None:
    nodes = [node("a", ["x"], ["t", "dead"]), node("b", ["t"], ["y"])]
    _, by_name = planned(program(nodes, X, ["y"]))
    assert (by_name["dead"].first_step, by_name["dead"].last_step) == (0, 0)
    assert not overlap(by_name["dead"], by_name["t"])


def test_S54_a_cleared_output_is_held_from_the_clear_on() -> None:
    nodes = [
        node("a", ["x"], ["t"]),
        node("b", ["t"], ["u"]),
        node("c", ["u"], ["v"], clear=["v"]),
        node("d", ["v"], ["y"]),
    ]
    _, by_name = planned(program(nodes, X, ["y"]))
    assert by_name["v"].first_step == 2  # step 2 clears it, step 3 is c
    assert not overlap(by_name["v"], by_name["u"])


def test_S55_a_lifelong_tensor_shares_with_nobody() -> None:
    nodes, tensors = chain(6)
    made = program(nodes, {**tensors, "t2": tensor(None, [KIB], lifelong=True)}, ["t5"])
    _, by_name = planned(made)
    assert (by_name["t2"].first_step, by_name["t2"].last_step) == (0, 5)
    assert not any(overlap(by_name["t2"], p) for n, p in by_name.items() if n != "t2")


def test_S56_a_ref_output_shares_and_the_group_lives_until_its_last_reader() -> None:
    nodes = [
        node("a", ["x"], ["t"]),
        node("b", ["t"], ["u"], inplace={"u": "t"}),
        node("c", ["x"], ["v"]),
        node("d", ["u", "v"], ["y"]),
    ]
    _, by_name = planned(program(nodes, X, ["y"]))
    assert by_name["t"] is by_name["u"]
    assert (by_name["u"].first_step, by_name["u"].last_step) == (0, 3)
    assert not overlap(by_name["u"], by_name["v"])


def test_S57_S72_B24_members_of_a_contiguous_group_touch_in_order_each_aligned() -> None:
    tensors = {**X, "p": tensor(None, [100]), "q": tensor(None, [700]), "r": tensor(None, [1])}
    nodes = [
        node("a", ["x"], ["r"]),
        node("b", ["x"], ["q"]),
        node("c", ["x"], ["p"]),
        node("d", ["p", "q", "r"], ["y"]),
    ]
    _, by_name = planned(program(nodes, tensors, ["y"], contiguous=[["p", "q", "r"]]))
    p, q, r = (by_name[n] for n in "pqr")
    assert (q.offset - p.offset, r.offset - q.offset) == (512, 1024)
    assert all(place.offset % 512 == 0 for place in (p, q, r))


def test_S47_S84_inputs_and_outputs_of_a_collective_are_contiguous_communication_memory() -> None:
    nodes = [
        node("a", ["x"], ["p"]),
        node("b", ["x"], ["q"]),
        node("comm", ["q", "p"], ["u", "v"], collective={}),
        node("c", ["u", "v"], ["y"]),
    ]
    _, by_name = planned(program(nodes, X, ["y"]))
    assert {by_name[n].memory_class for n in "pquv"} == {"communication"}
    assert by_name["p"].offset == by_name["q"].offset + 512
    assert by_name["v"].offset == by_name["u"].offset + 512


def test_S87_B6_B7_a_parameter_among_a_collectives_inputs_keeps_its_bytes_and_stays_static() -> None:
    tensors = {**X, "w": tensor("parameter", init={"fill": 1})}
    nodes = [node("a", ["x"], ["p"]), node("comm", ["p", "w"], ["u", "v"], collective={}), node("c", ["u", "v"], ["y"])]
    _, by_name = planned(program(nodes, tensors, ["y"]))
    assert by_name["w"].space == by_name["p"].space == "static"
    assert by_name["w"].memory_class == "parameter"
    assert by_name["w"].offset == by_name["p"].offset + by_name["p"].aligned


def test_B5_an_input_placed_by_an_earlier_collective_leaves_the_others_with_memory() -> None:
    nodes = [
        node("a", ["x"], ["p"]),
        node("b", ["x"], ["q"]),
        node("comm1", ["p"], ["u"], collective={}),
        node("comm2", ["q", "u"], ["v", "w"], collective={}),
        node("c", ["v", "w"], ["y"]),
    ]
    _, by_name = planned(program(nodes, X, ["y"]))
    assert {"p", "q", "u", "v", "w"} <= by_name.keys()
    assert by_name["u"].offset == by_name["q"].offset + 512


def test_S58_tensors_of_one_producer_never_share() -> None:
    nodes = [node("a", ["x"], ["t", "u"]), node("b", ["t"], ["v"]), node("c", ["u", "v"], ["y"])]
    _, by_name = planned(program(nodes, X, ["y"]))
    assert not overlap(by_name["t"], by_name["u"])


def test_an_output_never_shares_with_an_input_of_its_own_launch() -> None:
    nodes, tensors = chain(10)
    _, by_name = planned(program(nodes, tensors, ["t9"]))
    for i in range(1, 9):
        assert not overlap(by_name[f"t{i - 1}"], by_name[f"t{i}"])


def test_S53_S89_streams_that_run_side_by_side_do_not_share_though_list_order_would_let_them() -> None:
    def made(stream: str) -> object:
        nodes = [
            node("a", ["x"], ["t"]),
            node("side", ["t"], ["u"], stream=stream),
            node("b", ["x"], ["v"]),
            node("c", ["v", "u"], ["y"]),
        ]
        return program(nodes, X, ["y"])

    _, alone = planned(made("compute"))  # type: ignore[arg-type]
    _, beside = planned(made("other"))  # type: ignore[arg-type]
    assert overlap(alone["t"], alone["v"])
    assert not overlap(beside["t"], beside["v"])


def test_S25_inputs_get_static_memory_in_their_order() -> None:
    tensors = {"b": tensor("input"), "w": tensor("parameter", init={"fill": 0}), "a": tensor("input")}
    made = program([node("k0", ["a", "w", "b"], ["y"])], tensors, ["y"], inputs=["b", "w", "a"])
    _, by_name = planned(made)
    assert by_name["b"].offset < by_name["w"].offset < by_name["a"].offset < by_name["y"].offset


def test_S28_scalars_passed_by_value_get_no_memory() -> None:
    made = program([node("k0", ["x"], ["y"], args=["x", "y", {"int32": 7}, {"float4": [1, 2, 3, 4]}])], X, ["y"])
    assert planned(made)[0].static_bytes == 2 * 512


def test_S29_B4_constants_of_a_nested_input_each_have_their_own_shape_and_place() -> None:
    tensors = {
        **X,
        "p": {"role": "constant", "dtype": "float32", "value": [[1, 2, 3]]},
        "q": {"role": "constant", "dtype": "int64", "value": [4, 5]},
    }
    made = program([node("k0", ["x", ["p", "q"]], ["y"])], tensors, ["y"])
    _, by_name = planned(made)
    assert (by_name["p"].nbytes, by_name["q"].nbytes) == (12, 16)
    assert not overlap(by_name["p"], by_name["q"])


def test_S43_a_collective_that_reads_a_view_makes_the_producers_bytes_communication_memory() -> None:
    tensors = {"x": tensor("input", (4, 4), "float32"), "t": tensor(None, (4, 4), "float32")}
    nodes = [
        node("a", ["x"], ["t"]),
        node("flat", ["t"], ["v"], op="Flatten"),
        node("comm", ["v"], ["u"], collective={}),
        node("b", ["u"], ["y"]),
    ]
    _, by_name = planned(program(nodes, tensors, ["y"]))
    assert by_name["v"] is by_name["t"]
    assert by_name["t"].memory_class == "communication"


def test_S48_what_a_collective_placed_stays_where_it_is_for_the_compute_kernels() -> None:
    nodes = [
        node("a", ["x"], ["p"]),
        node("comm", ["p"], ["u"], collective={}),
        node("b", ["u"], ["t"], workspace=[64]),
        node("c", ["t"], ["y"]),
    ]
    plan, by_name = planned(program(nodes, X, ["y"]))
    assert [p.name for p in plan.placements].count("u") == 1
    assert by_name["u"].memory_class == "communication"
    assert {by_name["t"].memory_class, by_name["b.workspace[0]"].memory_class} == {"intermediate", "workspace"}


def test_S50_a_new_graphs_dynamic_memory_starts_at_zero_again() -> None:
    nodes, tensors = chain(4)
    one, other = (planned(program(nodes, tensors, ["t3"]))[0] for _ in range(2))
    assert min(p.offset for p in one.placements if p.space == "dynamic") == 0
    assert one.placements == other.placements


def test_B13_an_input_read_twice_by_one_node_dies_there_once() -> None:
    nodes = [node("a", ["x"], ["t"]), node("sq", ["t", "t"], ["u"]), node("b", ["u"], ["v"]), node("c", ["v"], ["y"])]
    _, by_name = planned(program(nodes, X, ["y"]))
    assert (by_name["t"].first_step, by_name["t"].last_step) == (0, 1)
    assert overlap(by_name["t"], by_name["v"])


def test_B14_an_output_that_is_a_view_pins_the_bytes_it_lives_in() -> None:
    tensors = {"x": tensor("input", (4, 4), "float32"), "t": tensor(None, (4, 4), "float32")}
    nodes = [
        node("a", ["x"], ["t"]),
        node("flat", ["t"], ["y"], op="Flatten"),
        *(node(f"n{i}", ["x" if i == 0 else f"u{i - 1}"], [f"u{i}"]) for i in range(4)),
    ]
    _, by_name = planned(program(nodes, tensors, ["y", "u3"]))
    assert by_name["t"] is by_name["y"]
    assert by_name["t"].space == "static"


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
    nodes, tensors = chain(12, 700)
    turned = dict(reversed(tensors.items()))
    one, other = planned(program(nodes, tensors, ["t11"]))[0], planned(program(nodes, turned, ["t11"]))[0]
    assert one.peak_bytes == other.peak_bytes
    assert one.placements == planned(program(nodes, tensors, ["t11"]))[0].placements


def test_S64_base_and_offsets_are_aligned_to_512() -> None:
    tensors = {**X, **{f"t{i}": tensor(None, [n]) for i, n in enumerate((1, 3, 17, 513))}}
    nodes = [node("a", ["x"], [f"t{i}" for i in range(4)]), node("b", [f"t{i}" for i in range(4)], ["y"])]
    plan, _ = planned(program(nodes, tensors, ["y"]))
    assert all(p.offset % 512 == 0 and p.aligned % 512 == 0 for p in plan.placements)


@pytest.mark.parametrize(
    ("nbytes", "plain", "common"),
    [
        (0, 0, 512),
        (1, 512, 512),
        (480, 512, 512),
        (481, 512, 1024),
        (512, 512, 1024),
        (992, 1024, 1024),
        (993, 1024, 1536),
    ],
)
def test_S66_plain_and_common_alignment(nbytes: int, plain: int, common: int) -> None:
    assert held_bytes(nbytes) == plain
    assert held_bytes(nbytes, "common") == common
    assert held_bytes(nbytes, "common") - nbytes >= 32


def test_S66_common_padding_counts_everywhere() -> None:
    nodes, tensors = chain(3, 512)
    plan, _ = planned(program(nodes, tensors, ["t2"]), padding="common")
    assert (plan.static_bytes, plan.dynamic_bytes, plan.lower_bound_bytes) == (2048, 2048, 2048)


def test_S67_communication_memory_can_be_guarded_on_both_sides() -> None:
    nodes = [
        node("a", ["x"], ["p"]),
        node("comm", ["p"], ["u"], collective={}),
        node("b", ["u"], ["y"], workspace=[64]),
    ]
    made = program(nodes, X, ["y"])
    open_plan, _ = planned(made)
    _, by_name = planned(made, comm_guard=True)
    p, u = by_name["p"], by_name["u"]
    assert abs(p.offset - u.offset) >= 512 + 1024
    assert min(p.offset, u.offset) >= 512
    assert open_plan.dynamic_bytes == 2 * 512


def test_a_limit_that_holds_is_kept_to_the_byte() -> None:
    nodes, tensors = chain(5)
    made = program(nodes, tensors, ["t4"])
    plan, _ = planned(made)
    assert planned(made, memory_limit=plan.peak_bytes)[0].peak_bytes == plan.peak_bytes
    with pytest.raises(DoesNotFit) as caught:
        planned(made, memory_limit=plan.peak_bytes - 1)
    assert caught.value.details["smallest_feasible_limit_bytes"] == plan.peak_bytes
    assert caught.value.details["proven"] is True
    assert caught.value.details["step"] in {f"k{i}" for i in range(5)}


def test_a_limit_below_the_static_bytes_names_their_classes() -> None:
    nodes, tensors = chain(2)
    with pytest.raises(DoesNotFit, match=r"static memory alone takes 2,048 bytes \(input 1,024, output 1,024\)"):
        planned(program(nodes, tensors, ["t1"]), memory_limit=KIB)


def test_a_workspace_counts_against_the_limit_and_is_named() -> None:
    made = program([node("a", ["x"], ["y"], workspace=[64 << 20])], X, ["y"])
    with pytest.raises(DoesNotFit, match=r"a\.workspace\[0\] \(workspace, 67,108,864\)"):
        planned(made, memory_limit=32 << 20)


def test_an_unknown_planner_is_a_usage_error() -> None:
    nodes, tensors = chain(2)
    with pytest.raises(UsageError, match="unknown planner 'best'"):
        planned(program(nodes, tensors, ["t1"]), planner="best")


def test_S51_B21_no_steps_are_no_error() -> None:
    from kgrun.graphs.bind import bind
    from kgrun.runtime.lower import lower
    from tests.support import graph

    plan, _ = planned(lower(bind(graph([]), allow_empty=True)))
    assert (plan.peak_bytes, plan.placements, plan.peak_step) == (0, (), None)


def test_the_verifier_refuses_a_plan_that_shares_live_bytes() -> None:
    from kgrun.runtime.memory.lifetimes import lifetimes
    from kgrun.runtime.memory.plan import packing_problem

    nodes, tensors = chain(3)
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


@pytest.mark.parametrize("mode", ["planned", "none"])
def test_guarded_buffers_keep_free_bytes_around_them(mode: Literal["planned", "none"]) -> None:
    guard = 1024
    nodes = [node(f"n{i}", [f"t{i - 1}" if i else "x"], [f"t{i}"]) for i in range(5)]
    made = program(nodes, {"x": tensor("input", (300,))}, ["t4"])
    plan, _ = planned(made, mode=mode, guard=guard)
    for a in plan.placements:
        assert a.offset >= guard
        assert a.offset % plan.alignment == 0
        assert a.offset + a.aligned + guard <= (plan.static_bytes if a.space == "static" else plan.dynamic_bytes)
        for b in plan.placements:
            apart = a.space != b.space or a.last_step < b.first_step or b.last_step < a.first_step
            if a is not b and not apart and a.offset <= b.offset:
                assert a.offset + a.aligned + guard <= b.offset


def test_S16_only_what_comes_from_outside_gets_input_memory() -> None:
    nodes = [node("a", ["x"], ["t"]), node("b", ["t"], ["y"])]
    _, by_name = planned(program(nodes, X, ["y"]))
    assert [name for name, p in by_name.items() if p.memory_class == "input"] == ["x"]


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
    nodes, tensors = chain(3)
    made = program(nodes, tensors, ["t2"])
    with pytest.raises(UsageError, match="planner 'greedy-size' cannot plan 2 buffers") as caught:
        planned(made, planner="greedy-size")
    assert caught.value.code == "KG203"
    assert [row.planner for row in compare_planners(made, ["auto", "greedy-size", "none"])] == ["auto", "none"]
