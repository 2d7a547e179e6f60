"""Groups of buffers with one life or one place: views, contiguous and communication memory, guards."""

from __future__ import annotations

from typing import Literal

import pytest

from kgrun.runtime.memory.alignment import held_bytes
from tests.support import chain_of, node, overlap, planned, program, tensor

X = {"x": tensor("input")}


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
    nodes, tensors = chain_of(3, 512)
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
