"""`explain_kernel`: the exact argument list (S79), live bytes, births and deaths at each step."""

from __future__ import annotations

import struct

import pytest

from kgrun.graphs.errors import UsageError
from kgrun.runtime.memory.explain_kernel import explain_kernel
from kgrun.runtime.memory.explain_values import value_text
from kgrun.runtime.planning import Planning
from kgrun.runtime.program import Program
from tests.plan_by_hand import plan_by_hand
from tests.support import node, program, tensor


def two() -> Program:
    return program(
        [
            node(
                "scale",
                ["x", None],
                ["a"],
                args=["x", "a", {"float32": 0.1}, {"int32": -7}, None, {"workspace": 0}],
                workspace=[3000],
                grid=[4, 2],
                block=[128],
                shared=64,
            ),
            node("end", ["a"], ["y"]),
        ],
        {"x": tensor("input")},
        outputs=["y"],
    )


def test_S79_arguments_in_launch_order() -> None:
    made = two()
    (step,) = explain_kernel(made, plan_by_hand(made), "scale").steps
    kinds = [(a.kind, a.tensors, a.value) for a in step.arguments]
    assert kinds == [
        ("tensor", ("x",), None),
        ("tensor", ("a",), None),
        ("value", (), "0.1"),
        ("value", (), "-7"),
        ("null", (), None),
        ("workspace", (), None),
    ]
    x, a, scale, *_, scratch = step.arguments
    assert (x.space, x.offset, x.dtype, x.shape, x.nbytes) == ("static", 0, "uint8", (256,), 256)
    assert (a.space, a.buffer) == ("dynamic", "a")
    assert (scale.dtype, scale.data) == ("float32", struct.pack("<f", 0.1))
    assert (scratch.buffer, scratch.nbytes) == ("scale.workspace[0]", 3000)


def test_launch_memory_births_and_deaths() -> None:
    made = two()
    (step,) = explain_kernel(made, plan_by_hand(made), "scale").steps
    assert (step.work, step.grid, step.block, step.shared) == ("launch", (4, 2, 1), (128, 1, 1), 64)
    assert step.live_bytes == 512 + 3072
    assert {b.name for b in step.born} == {"a", "scale.workspace[0]"}
    assert {b.name for b in step.dies} == {"scale.workspace[0]"}
    assert [b.name for b in step.workspace] == ["scale.workspace[0]"]
    assert [b.name for b in step.reads] == ["x"]
    assert step.at_peak


def test_S79_absent_inputs_are_no_arguments() -> None:
    made = two()
    found = explain_kernel(made, plan_by_hand(made), "scale")
    assert found.inputs == ("x", None)
    assert not any(a.tensors == (None,) for a in found.steps[0].arguments)


def test_host_function_arguments_have_roles() -> None:
    made = program(
        [node("act", ["x"], ["y"], op="Relu")],
        {"x": tensor("input", [8], "float32")},
        outputs=["y"],
        target="cpu",
    )
    (step,) = explain_kernel(made, plan_by_hand(made), "act").steps
    assert step.work == "host function"
    assert [(a.role, a.tensors, a.dtype, a.shape) for a in step.arguments] == [
        ("input 0", ("x",), "float32", (8,)),
        ("output 0", ("y",), "float32", (8,)),
    ]


def test_S96_a_node_whose_output_leaves_for_the_host_names_the_copies() -> None:
    made = program([node("a", ["x"], ["y"], op="Abs", offload=True)], {"x": tensor("input", [64], "float32")}, ["y"])
    moved, plan = Planning().plan(made)
    found = [step.work for step in explain_kernel(moved, plan, "a").steps]
    assert found[0] == "launch"
    assert set(found[1:]) <= {"copy to the host", "copy from the host"}
    assert len(found) > 1


def test_S41_a_forwarded_node_says_that_nothing_is_launched() -> None:
    made = program(
        [node("view", ["x", "shape"], ["a"], op="Reshape"), node("end", ["a"], ["y"])],
        {"x": tensor("input"), "shape": tensor("constant", [2], "int64", value=[16, 16])},
        outputs=["y"],
    )
    found = explain_kernel(made, plan_by_hand(made), "view")
    assert (found.steps, found.not_run) == ((), "nothing is launched: a is a view of x")


def test_a_step_by_its_name_and_all_steps_by_the_node() -> None:
    made = program(
        [node("sum", ["x"], ["y"], clear=["y"])],
        {"x": tensor("input")},
        outputs=["y"],
    )
    plan = plan_by_hand(made)
    assert [s.work for s in explain_kernel(made, plan, "sum").steps] == ["clear", "launch"]
    (clear,) = explain_kernel(made, plan, "sum.clear").steps
    assert [(a.role, a.tensors, a.nbytes) for a in clear.arguments] == [("target", ("y",), 256)]


def test_a_kernel_of_several_nodes_must_be_told_apart() -> None:
    made = two()
    with pytest.raises(UsageError) as caught:
        explain_kernel(made, plan_by_hand(made), "k")
    assert caught.value.code == "KG241"
    assert caught.value.help == "they are scale, end"


def test_a_kernel_of_one_node_is_found_and_unknown_names_are_not() -> None:
    made = program([node("only", ["x"], ["y"])], {"x": tensor("input")}, outputs=["y"])
    plan = plan_by_hand(made)
    assert explain_kernel(made, plan, "k").node == "only"
    with pytest.raises(UsageError) as caught:
        explain_kernel(made, plan, "onyl")
    assert caught.value.help == "did you mean 'only'?"


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (struct.pack("<d", 1e-5), "float64", "1e-05"),
        (struct.pack("<e", 0.5), "float16", "0.5"),
        (struct.pack("<f", 3.0)[2:], "bfloat16", "3"),
        (struct.pack("<f", float("inf")), "float32", "inf"),
        (struct.pack("<f", float("nan")), "float32", "nan"),
        (b"\x01", "bool", "true"),
        (struct.pack("<Q", 2**64 - 1), "uint64", "18446744073709551615"),
        (struct.pack("<2f", 1, 2), "float2", "(1, 2)"),
        (b"\x12\x34", "bytes", "0x1234"),
        (b"\x38", "float8_e4m3fn", "0x38"),
        (struct.pack("<i", 5), None, "5 as int32 or 7e-45 as float32"),
        (bytes(40), "struct", f"0x{'00' * 32}… (40 bytes)"),
    ],
)
def test_values_are_read_back(data: bytes, kind: str | None, text: str) -> None:
    assert value_text(data, kind) == text
