"""Transposes that matrix products alone read: when they run nothing, when they run, and what the products are told."""

from __future__ import annotations

from typing import Any

import pytest

from kgrun.graphs.bound import BoundGraph
from kgrun.runtime.kernels.cuda import linear
from kgrun.runtime.lower import lower
from kgrun.runtime.lower.classes import set_apart
from kgrun.runtime.lower.turned import why_it_runs
from kgrun.runtime.memory.explain import explain_tensor
from kgrun.runtime.memory.explain_kernel import explain_kernel
from kgrun.runtime.program import Copy, Launch, LibraryCall, MemoryClass, Pointer, Program, Turned
from tests.plan_by_hand import plan_by_hand
from tests.support import bound, node, planned, program, tensor

F = "float32"
Nodes = list[dict[str, Any]]
Tensors = dict[str, dict[str, Any]]


def op(name: str, kind: str, inputs: list[Any], output: str, **more: Any) -> dict[str, Any]:
    return node(name, inputs, [output], op=kind, **more)


def head(**wish: Any) -> tuple[Nodes, Tensors]:
    """x · wᵀ, and the negative of that; `wish` is what the file says of the Transpose."""
    nodes = [
        op("turn", "Transpose", ["w"], "t", **wish),
        op("mm", "MatMul", ["x", "t"], "z"),
        op("n", "Neg", ["z"], "y"),
    ]
    return nodes, {"x": tensor("input", [2, 8], F), "w": tensor("parameter", [50, 8], F, init={"fill": 1})}


def names(made: Program) -> list[str]:
    return [step.name for step in made.steps]


def test_a_transpose_that_only_products_read_takes_no_step_and_no_bytes() -> None:
    nodes, tensors = head()
    nodes.append(op("gemm", "Gemm", ["x", "t", "z"], "v"))
    made = program(nodes, tensors, ["y", "v"])
    assert "turn" not in names(made)
    assert "t" not in made.slots
    assert made.turned == {"t": Turned("w", ((1, 1), (3, 1)))}
    product = next(step for step in made.steps if step.name == "mm")
    assert product.reads == (made.slots["x"].buffer, made.slots["w"].buffer)
    assert product.nbytes == 4 * (2 * 8 + 50 * 8 + 2 * 50)
    assert isinstance(product.work, Launch)
    assert product.work.args[:2] == (made.slots["x"], made.slots["w"])


def test_the_source_lives_until_the_product_has_read_it() -> None:
    perm = {"perm": [0, 1, 3, 2]}
    nodes = [
        op("keys", "Neg", ["k"], "k1"),
        op("turn", "Transpose", ["k1"], "t", attributes=perm),
        op("other", "Neg", ["q"], "q1"),
        op("more", "Exp", ["q1"], "q2"),
        op("scores", "MatMul", ["q2", "t"], "s"),
        op("end", "Neg", ["s"], "y"),
    ]
    made = program(nodes, {n: tensor("input", [2, 3, 5, 8], F) for n in "kq"}, ["y"])
    assert names(made) == ["keys", "other", "more", "scores", "end"]
    _, places = planned(made)
    assert (places["k1"].first_step, places["k1"].last_step) == (0, 3)
    assert "t" not in places


def test_an_embedding_that_is_the_head_as_well_stays_one_parameter() -> None:
    nodes, tensors = head()
    nodes.insert(0, op("embed", "Gather", ["w", "ids"], "x"))
    tensors = {"w": tensors["w"], "ids": tensor("input", [2], "int64")}
    made = program(nodes, tensors, ["y"])
    assert names(made) == ["embed", "mm", "n"]
    assert [b.name for b in made.buffers if b.memory_class is MemoryClass.PARAMETER] == ["w"]
    assert made.graph.tensors["w"].consumers == (0, 1, 2)


def test_both_operands_and_several_transposes_of_one_tensor() -> None:
    nodes = [
        op("one", "Transpose", ["w"], "t"),
        op("two", "Transpose", ["w"], "u"),
        op("square", "MatMul", ["t", "w"], "a"),
        op("whole", "MatMul", ["t", "u"], "b"),
        op("twice", "MatMul", ["u", "u"], "c"),
    ]
    made = program(nodes, {"w": tensor("input", [8, 8], F)}, ["a", "b", "c"])
    assert names(made) == ["square", "whole", "twice"]
    turned = [found.call.turned for found in made.graph.nodes if found.call is not None]
    assert turned[2:] == [{0}, {0, 1}, {0, 1}]
    assert made.turned["u"].readers == ((3, 1), (4, 0), (4, 1))


def test_a_transpose_of_a_transpose_runs_once() -> None:
    nodes = [
        op("one", "Transpose", ["w"], "t"),
        op("two", "Transpose", ["t"], "u"),
        op("mm", "MatMul", ["x", "u"], "y"),
    ]
    made = program(nodes, {"x": tensor("input", [2, 8], F), "w": tensor("input", [8, 50], F)}, ["y"])
    assert names(made) == ["one", "mm"]
    assert made.turned == {"u": Turned("t", ((2, 1),))}


def test_a_source_that_is_a_view_is_read_where_that_lies() -> None:
    nodes = [
        op("flat", "Reshape", ["w", "shape"], "v"),
        op("turn", "Transpose", ["v"], "t"),
        op("mm", "MatMul", ["x", "t"], "y"),
    ]
    shape = {"role": "constant", "dtype": "int64", "value": [50, 8]}
    made = program(nodes, {"x": tensor("input", [2, 8], F), "w": tensor("input", [400], F), "shape": shape}, ["y"])
    assert names(made) == ["mm"]
    assert made.steps[0].reads == (made.slots["x"].buffer, made.slots["w"].buffer)


def why(nodes: Nodes, tensors: Tensors, outputs: list[str], target: str = "cuda", **more: Any) -> str | None:
    """The reason against, and that the program is accordingly."""
    found: BoundGraph = bound(nodes, tensors, outputs, **more)
    turn = next(each for each in found.nodes if each.name == "turn")
    reason = why_it_runs(found, turn, target, set_apart(found))
    made = lower(found, target)
    assert ("turn" in names(made)) == (reason is not None)
    assert ("t" in made.slots) == (reason is not None)
    return reason


def test_the_reason_against_is_none_where_it_runs_nothing() -> None:
    assert why(*head(), ["y"]) is None


def test_a_graph_output_is_made() -> None:
    assert why(*head(), ["y", "t"]) == "t is a graph output"


def test_what_nothing_reads_is_made() -> None:
    nodes, tensors = head()
    nodes[1]["inputs"] = ["x", "w2"]
    tensors["w2"] = tensor("input", [8, 50], F)
    assert why(nodes, tensors, ["y"]) == "nothing reads t"


@pytest.mark.parametrize(
    "wish", [{"clear": ["t"]}, {"no_reuse": True}, {"offload": True}, {"nop": False}, {"workspace": [64]}]
)
def test_what_the_file_says_of_the_node_makes_it_run(wish: dict[str, Any]) -> None:
    assert why(*head(**wish), ["y"]) == "the file says where the bytes of t are to be"


@pytest.mark.parametrize(
    "wish",
    [
        {"pin": True},
        {"no_reuse": True},
        {"lifelong": True},
        {"offload": "always"},
        {"offload": "never"},
        {"location": "host"},
    ],
)
def test_what_the_file_says_of_the_result_makes_it_run(wish: dict[str, Any]) -> None:
    nodes, tensors = head()
    assert why(nodes, {**tensors, "t": wish}, ["y"]) == "the file says where the bytes of t are to be"


def test_bytes_that_the_file_overwrites_are_copied_first() -> None:
    nodes, tensors = head()
    update = op("step", "Relu", ["w"], "w2", inplace={"w2": "w"})
    assert why([*nodes, update], tensors, ["y"]) == "the file overwrites or groups bytes that w may share"
    update = op("step", "Relu", ["t"], "t2", inplace={"t2": "t"})
    assert why([*nodes, update], tensors, ["y"]) == "the file overwrites or groups bytes that t may share"


def test_bytes_that_the_file_overwrites_by_another_name_are_copied_first() -> None:
    nodes, tensors = head()
    tensors["v"] = tensor("parameter", [50, 8], F, init={"fill": 1})
    tensors["w"] = tensor("parameter", [50, 8], F, alias_of="v")
    update = op("step", "Relu", ["v"], "v2", inplace={"v2": "v"})
    assert why([*nodes, update], tensors, ["y"]) == "the file overwrites or groups bytes that w may share"


def test_members_of_contiguous_groups_are_made() -> None:
    nodes, tensors = head()
    nodes.insert(0, op("first", "Neg", ["w0"], "w"))
    tensors["w0"] = tensors.pop("w")
    nodes.append(op("b", "Exp", ["z"], "e"))
    for group in (["t", "z"], ["w", "z"]):
        assert "may share" in str(why(nodes, tensors, ["y", "e"], contiguous=[group]))


def test_readers_that_are_no_products_need_the_result() -> None:
    nodes, tensors = head()
    nodes.append(op("e", "Exp", ["t"], "other"))
    assert why(nodes, tensors, ["y", "other"]) == "e reads it, and is no product that takes it turned"
    nodes[-1] = node("custom", ["t"], ["other"])
    assert why(nodes, tensors, ["y", "other"]) == "custom reads it, and is no product that takes it turned"


def test_what_a_gemm_adds_is_no_matrix_of_its_product() -> None:
    nodes, tensors = head()
    tensors |= {"a": tensor("input", [8, 4], F), "b": tensor("input", [4, 50], F)}
    nodes.append(op("gemm", "Gemm", ["a", "b", "t"], "other"))
    assert why(nodes, tensors, ["y", "other"]) == "gemm reads it, and is no product that takes it turned"


def test_readers_on_another_stream_need_the_result() -> None:
    nodes, tensors = head(stream="side")
    assert why(nodes, tensors, ["y"]) == "mm reads it on another stream"


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "uint64"])
def test_on_the_cpu_only_what_keeps_every_bit_is_read_turned(dtype: str) -> None:
    nodes, tensors = head()
    nodes[2]["op"] = "Identity"
    tensors = {name: row | {"dtype": dtype} for name, row in tensors.items()}
    reason = why(nodes, tensors, ["y"], "cpu")
    assert (reason is not None) == (dtype in ("float32", "float64"))
    assert why(nodes, tensors, ["y"], "cuda") is None


def test_other_permutations_run_and_views_stay_views() -> None:
    for shape, perm, steps in (
        ([4, 8, 50], [1, 2, 0], ["turn", "mm"]),
        ([50, 4, 8], [1, 0, 2], ["turn", "mm"]),
        ([4, 50, 8], [0, 2, 1], ["mm"]),
        ([4, 50, 1], [0, 2, 1], ["mm"]),
    ):
        nodes = [op("turn", "Transpose", ["w"], "t", attributes={"perm": perm}), op("mm", "MatMul", ["x", "t"], "y")]
        rows = [shape[axis] for axis in perm][-2]
        made = program(nodes, {"x": tensor("input", [2, rows], F), "w": tensor("input", shape, F)}, ["y"])
        assert names(made) == steps, perm
        assert made.slots.get("t") == (made.slots["w"] if shape[-1] == 1 else made.slots.get("t"))


def test_a_result_without_a_name_is_nobodys_operand() -> None:
    nodes, tensors = head()
    nodes.append(node("unnamed", ["w"], [None], op="Transpose"))
    assert list(program(nodes, tensors, ["y"]).turned) == ["t"]


def test_a_graph_lowered_node_by_node_runs_it() -> None:
    nodes, tensors = head()
    assert names(lower(bound(nodes, tensors, ["y"]), "cuda", views=False))[:2] == ["turn", "mm"]


def test_waits_across_streams_reach_through_it() -> None:
    nodes = [
        op("keys", "Neg", ["w"], "k", stream="side"),
        op("turn", "Transpose", ["k"], "t"),
        op("mm", "MatMul", ["x", "t"], "y"),
    ]
    made = program(nodes, {"x": tensor("input", [2, 8], F), "w": tensor("input", [50, 8], F)}, ["y"])
    assert names(made) == ["keys", "mm"]
    assert made.steps[1].after == (0,)


@pytest.fixture
def blas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "blas_available", lambda: True)


def library_call(made: Program) -> LibraryCall:
    (work,) = [step.work for step in made.steps if isinstance(step.work, LibraryCall)]
    return work


@pytest.mark.usefixtures("blas")
def test_cublas_is_told_which_operand_is_turned() -> None:
    nodes, tensors = head()
    made = program(nodes, tensors, ["y"])
    call = library_call(made)
    assert call.args == (made.slots["w"], made.slots["x"], made.slots["z"])  # by columns: zᵀ = w·xᵀ
    wanted = {"m": 50, "n": 2, "k": 8, "transpose": (True, False), "ld": (8, 8, 50)}
    assert {key: call.config[key] for key in wanted} == wanted


@pytest.mark.usefixtures("blas")
def test_cublas_gets_the_strides_of_batches_that_lie_turned() -> None:
    tensors = {"q": tensor("input", [3, 4, 7, 8], "float16"), "k": tensor("input", [3, 4, 9, 8], "float16")}
    nodes = [
        op("turn", "Transpose", ["k"], "t", attributes={"perm": [0, 1, 3, 2]}),
        op("mm", "MatMul", ["q", "t"], "y"),
    ]
    config = library_call(program(nodes, tensors, ["y"])).config
    wanted = {"m": 9, "n": 7, "k": 8, "transpose": (True, False), "ld": (8, 8, 9), "batch": 12, "steps": (72, 56, 63)}
    assert {key: config[key] for key in wanted} == wanted
    nodes[0]["inputs"], nodes[1]["inputs"] = ["q"], ["t", "k2"]
    tensors["k2"] = tensor("input", [7, 5], "float16")
    config = library_call(program(nodes, tensors, ["y"])).config  # rows of all batches are no rows of one matrix here
    wanted = {"m": 5, "n": 8, "k": 7, "transpose": (False, True), "ld": (5, 8, 5), "batch": 12, "steps": (0, 56, 40)}
    assert {key: config[key] for key in wanted} == wanted


@pytest.mark.usefixtures("blas")
@pytest.mark.parametrize("trans", [0, 1])
def test_a_gemm_turns_what_lies_turned_back_where_it_wants_it_turned(trans: int) -> None:
    tensors = {"x": tensor("input", [6, 6], F), "w": tensor("input", [6, 6], F)}
    nodes = [
        op("turn", "Transpose", ["w"], "t"),
        op("gemm", "Gemm", ["x", "t"], "y", attributes={"transA": trans, "transB": trans}),
    ]
    assert library_call(program(nodes, tensors, ["y"])).config["transpose"] == (not trans, bool(trans))


def test_explain_says_who_reads_what_in_its_place() -> None:
    nodes, tensors = head()
    made = program(nodes, tensors, ["y"])
    plan = plan_by_hand(made)
    found = explain_tensor(made, plan, "t")
    text = "w is read in its place, last two axes swapped, by mm as input 1"
    assert (found.no_memory, found.buffer, found.written_by) == (text, None, ())
    assert [step.name for step in found.read_by] == ["mm"]
    assert [step.name for step in explain_tensor(made, plan, "w").read_by] == ["mm"]
    kernel = explain_kernel(made, plan, "turn")
    assert (kernel.steps, kernel.not_run) == ((), f"nothing is launched: {text}")
    product = explain_kernel(made, plan, "mm")
    assert (product.inputs, product.turned) == (("x", "w"), (None, "t"))
    assert explain_kernel(made, plan, "n").turned == ()


def test_a_view_of_the_result_keeps_it_made() -> None:
    nodes, tensors = head()
    nodes.append(op("flat", "Flatten", ["t"], "v"))
    made = program(nodes, tensors, ["y", "v"])
    assert names(made)[0] == "turn"
    assert made.slots["t"] != Pointer(made.slots["w"].buffer)
    assert not any(isinstance(step.work, Copy) for step in made.steps)
