"""The planning rules of the two runtimes, one test a rule."""

from __future__ import annotations

from tests.support import chain_of, node, overlap, planned, program, tensor

X = {"x": tensor("input")}
KIB = 1024


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
    nodes, tensors = chain_of(3)
    plan, _ = planned(program(nodes, tensors, ["t2"]))
    assert (plan.static_bytes, plan.dynamic_bytes) == (2 * KIB, 2 * KIB)
    assert plan.peak_bytes == 4 * KIB


def test_S44_without_reuse_every_buffer_has_its_own_bytes() -> None:
    nodes, tensors = chain_of(6)
    made = program(nodes, tensors, ["t5"])
    none, by_name = planned(made, mode="none")
    assert none.dynamic_bytes == none.no_reuse_bytes == 5 * KIB
    held = [p for p in by_name.values() if p.space == "dynamic"]
    assert not any(overlap(a, b) for i, a in enumerate(held) for b in held[:i] if a is not b)
    assert planned(made)[0].dynamic_bytes == 2 * KIB


def test_S46_a_node_or_tensor_may_opt_out_of_reuse() -> None:
    nodes, tensors = chain_of(6)
    nodes[1]["no_reuse"] = True
    made = program(nodes, {**tensors, "t3": tensor(None, [KIB], no_reuse=True)}, ["t5"])
    _, by_name = planned(made)
    for kept in ("t1", "t3"):
        assert not any(overlap(by_name[kept], p) for n, p in by_name.items() if n != kept)


def test_S46_the_opt_out_does_not_cover_the_nodes_workspace() -> None:
    nodes = [node("a", ["x"], ["t"], workspace=[KIB], no_reuse=True), node("b", ["t"], ["y"], workspace=[KIB])]
    _, by_name = planned(program(nodes, X, ["y"]))
    assert overlap(by_name["a.workspace[0]"], by_name["b.workspace[0]"])


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
    nodes, tensors = chain_of(6)
    made = program(nodes, {**tensors, "t2": tensor(None, [KIB], lifelong=True)}, ["t5"])
    _, by_name = planned(made)
    assert (by_name["t2"].first_step, by_name["t2"].last_step) == (0, 5)
    assert not any(overlap(by_name["t2"], p) for n, p in by_name.items() if n != "t2")


def test_S58_tensors_of_one_producer_never_share() -> None:
    nodes = [node("a", ["x"], ["t", "u"]), node("b", ["t"], ["v"]), node("c", ["u", "v"], ["y"])]
    _, by_name = planned(program(nodes, X, ["y"]))
    assert not overlap(by_name["t"], by_name["u"])


def test_an_output_never_shares_with_an_input_of_its_own_launch() -> None:
    nodes, tensors = chain_of(10)
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


def test_S50_a_new_graphs_dynamic_memory_starts_at_zero_again() -> None:
    nodes, tensors = chain_of(4)
    one, other = (planned(program(nodes, tensors, ["t3"]))[0] for _ in range(2))
    assert min(p.offset for p in one.placements if p.space == "dynamic") == 0
    assert one.placements == other.placements


def test_B13_an_input_read_twice_by_one_node_dies_there_once() -> None:
    nodes = [node("a", ["x"], ["t"]), node("sq", ["t", "t"], ["u"]), node("b", ["u"], ["v"]), node("c", ["v"], ["y"])]
    _, by_name = planned(program(nodes, X, ["y"]))
    assert (by_name["t"].first_step, by_name["t"].last_step) == (0, 1)
    assert overlap(by_name["t"], by_name["v"])


def test_S64_base_and_offsets_are_aligned_to_512() -> None:
    tensors = {**X, **{f"t{i}": tensor(None, [n]) for i, n in enumerate((1, 3, 17, 513))}}
    nodes = [node("a", ["x"], [f"t{i}" for i in range(4)]), node("b", [f"t{i}" for i in range(4)], ["y"])]
    plan, _ = planned(program(nodes, tensors, ["y"]))
    assert all(p.offset % 512 == 0 and p.aligned % 512 == 0 for p in plan.placements)


def test_S51_B21_no_steps_are_no_error() -> None:
    from kgrun.graphs.bind import bind
    from kgrun.runtime.lower import lower
    from tests.support import graph

    plan, _ = planned(lower(bind(graph([]), allow_empty=True)))
    assert (plan.peak_bytes, plan.placements, plan.peak_step) == (0, (), None)


def test_S16_only_what_comes_from_outside_gets_input_memory() -> None:
    nodes = [node("a", ["x"], ["t"]), node("b", ["t"], ["y"])]
    _, by_name = planned(program(nodes, X, ["y"]))
    assert [name for name, p in by_name.items() if p.memory_class == "input"] == ["x"]
