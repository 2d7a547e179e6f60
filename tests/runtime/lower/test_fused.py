"""Elementwise calls in a row as one kernel: which are, what that changes, and that results stay right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrun.graphs.bound import BoundGraph
from kgrun.graphs.errors import UsageError
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime.devices.cpu import CpuDevice
from kgrun.runtime.loaded import LoadedProgram
from kgrun.runtime.lower import lower
from kgrun.runtime.memory.explain import explain_tensor
from kgrun.runtime.memory.explain_kernel import explain_kernel
from kgrun.runtime.memory.plan import plan_memory
from kgrun.runtime.program import Program
from kgrun.runtime.session import Session
from tests.plan_by_hand import plan_by_hand
from tests.support import bound, node, tensor

F = "float32"
SHAPE = [6, 16]
Array = np.ndarray[Any, Any]
Rows = list[dict[str, Any]]
Tensors = dict[str, dict[str, Any]]


def op(name: str, kind: str, inputs: list[Any], output: str | None = None, **more: Any) -> dict[str, Any]:
    return node(name, inputs, [output or name], op=kind, **more)


def tensors(dtype: str = F) -> Tensors:
    return {
        "x": tensor("input", SHAPE, dtype, init={"uniform": [-2, 2], "seed": 1}),
        "b": tensor("parameter", SHAPE[1:], dtype, init={"uniform": [-1, 1], "seed": 2}),
        "two": tensor("constant", [], dtype, value=2),
    }


def gelu() -> Rows:
    """x + b, and x Φ(x) of that as exporters write it."""
    return [
        op("biased", "Add", ["x", "b"]),
        op("half", "Div", ["biased", "two"]),
        op("erf", "Erf", ["half"]),
        op("one", "Add", ["erf", "two"]),
        op("times", "Mul", ["biased", "one"]),
        op("y", "Mul", ["times", "two"]),
    ]


def fused(rows: Rows, more: Tensors | None = None, outputs: tuple[str, ...] = ("y",)) -> Program:
    return lower(bound(rows, tensors() | (more or {}), outputs), "cuda", fuse=True)


def names(program: Program) -> list[str]:
    return [step.name for step in program.steps]


def test_a_row_of_calls_is_one_kernel_of_its_last_node() -> None:
    program = fused(gelu())
    (step,) = program.steps
    assert (step.name, step.op) == ("y", "Add+Div+Erf+Add+Mul+Mul")
    assert program.fused == dict.fromkeys(["biased", "half", "erf", "one", "times"], 5)
    assert [buffer.name for buffer in program.buffers] == ["x", "b", "two", "y"]
    apart = lower(bound(gelu(), tensors(), ["y"]), "cuda")
    assert len(apart.steps) == 6
    assert step.flops == sum(each.flops or 0 for each in apart.steps)
    assert step.nbytes == (96 + 16 + 1 + 96) * 4
    assert lower(bound(gelu(), tensors(), ["y"]), "cpu", fuse=True).fused == {}


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ({"outputs": ("y", "erf")}, ["biased", "erf", "y"]),  # `biased` is read in both rows
        ({"half": {"stream": "other"}}, ["biased", "half", "y"]),
        ({"y": {"nop": True}}, ["times"]),  # it forwards what it reads
        ({"one": {"no_reuse": True}}, ["biased", "one", "y"]),
        ({"more": {"times": tensor(None, SHAPE, F, pin=True)}}, ["times", "times.pinned", "y"]),
    ],
)
def test_what_the_file_wants_of_a_tensor_ends_a_row(change: dict[str, Any], left: list[str]) -> None:
    rows = [row | change.get(row["name"], {}) for row in gelu()]
    assert names(fused(rows, change.get("more"), change.get("outputs", ("y",)))) == left


def test_rows_end_where_a_shape_a_type_or_the_order_does() -> None:
    assert names(fused([op("s", "Exp", ["b"]), op("y", "Add", ["x", "s"])])) == ["s", "y"]  # [16] before [6, 16]
    cast = [op("s", "Exp", ["x"]), op("c", "Cast", ["s"], attributes={"to": "float16"}), op("y", "Neg", ["c"])]
    assert names(fused(cast)) == ["s", "y"]  # the float16 that the Cast makes is computed with as float32
    between = [
        op("s", "Exp", ["x"]),
        op("m", "ReduceMax", ["x"], attributes={"keepdims": 0}),
        op("y", "Add", ["s", "m"]),
    ]
    assert names(fused(between)) == ["s", "m", "y"]
    shared = [op("s", "Exp", ["x"]), op("m", "Softmax", ["s"]), op("y", "Add", ["s", "m"])]
    assert names(fused(shared)) == ["s", "m", "y"]


def test_a_view_may_stand_inside_a_row_but_not_between_what_is_joined() -> None:
    rows = [
        op("s", "Exp", ["x"]),
        op("flat", "Reshape", ["x", "shape"]),
        op("y", "Neg", ["s"]),
        op("z", "Neg", ["flat"]),
    ]
    more = {"shape": tensor("constant", [1], "int64", value=[96])}
    program = fused(rows, more, ("y", "z"))
    assert [(step.name, step.op) for step in program.steps] == [("y", "Exp+Neg"), ("z", "Neg")]


def test_a_copy_ends_a_row_whose_inputs_may_have_left_their_bytes_to_it() -> None:
    rows = [
        op("r", "Softmax", ["x"]),
        op("p", "Softmax", ["r"]),
        op("q", "Softmax", ["p"]),
        op("s", "Add", ["p", "q"]),
        op("c", "Reshape", ["r", "shape"], nop=False),
        op("t", "Neg", ["s"]),
        op("u", "Softmax", ["t"]),
        op("v", "Add", ["u", "c"]),
        op("y", "ReduceMax", ["v"]),
    ]
    more = {"shape": tensor("constant", [2], "int64", value=SHAPE)}
    program = fused(rows, more)
    assert "s" in names(program)
    assert plan_memory(program).peak_bytes == plan_memory(lower(bound(rows, tensors() | more, ["y"]))).peak_bytes


@pytest.mark.parametrize("waits", [{"inplace": {"z": "i"}}, {"after": ["s"]}])
def test_what_waits_for_a_call_of_a_row_waits_for_the_row(waits: dict[str, Any]) -> None:
    rows = [
        op("i", "Softmax", ["x"]),
        op("m", "Softmax", ["x"]),
        op("s", "Neg", ["i"]),
        op("y", "Exp", ["s"]),
        op("z", "Add", ["i", "b"], stream="other", **waits),
        op("e", "Softmax", ["m"]),
    ]
    program = fused(rows, outputs=("y", "z", "e"))
    at = {step.name: step.index for step in program.steps}
    assert "s" not in at
    assert at["y"] in program.steps[at["z"]].after


def test_what_the_file_says_of_one_call_is_not_said_of_the_row() -> None:
    said = {"erf": {"flops": 1000}, "y": {"flops": 5, "bytes": 7}}
    (step,) = fused([row | said.get(row["name"], {}) for row in gelu()]).steps
    assert step.flops == 4 * 96 + 1000 + 5
    assert step.nbytes == (96 + 16 + 1 + 96) * 4


def test_a_row_reads_at_most_eight_tensors() -> None:
    more = {f"i{k}": tensor("input", SHAPE, F) for k in range(12)}
    rows = [op("t0", "Add", ["i0", "i1"])]
    rows += [op(f"t{k}", "Add", [f"t{k - 1}", f"i{k + 1}"]) for k in range(1, 11)]
    program = fused(rows, more, ("t10",))
    assert [len(step.reads) for step in program.steps] == [5, 8]


def test_the_result_may_take_the_bytes_of_any_input_that_dies() -> None:
    rows = [
        op("p", "Softmax", ["x"]),
        op("q", "Softmax", ["p"]),
        op("s", "Exp", ["p"]),
        op("t", "Mul", ["s", "q"]),
        op("y", "Softmax", ["t"]),
    ]
    program = fused(rows)
    assert names(program) == ["p", "q", "t", "y"]
    assert program.slots["t"] == program.slots["p"]


def test_of_two_inputs_the_result_takes_the_one_that_its_calls_apart_take() -> None:
    """Which one decides what lives how long, and so the peak."""
    rows = [
        op("p", "Softmax", ["x"]),
        op("q", "Softmax", ["x"]),
        op("s", "Add", ["q", "p"]),
        op("t", "Mul", ["s", "q"]),
        op("y", "Softmax", ["t"]),
    ]
    program = fused(rows)
    assert names(program) == ["p", "q", "t", "y"]
    assert program.slots["t"] == program.slots["p"]
    view = [
        op("p", "Softmax", ["x"]),
        op("q", "Softmax", ["x"]),
        op("v", "Identity", ["p"]),
        op("y", "Max", ["p", "q", "v"]),
        op("z", "Neg", ["y"]),
    ]
    program = fused(view, outputs=("z",))
    assert names(program) == ["p", "q", "z"]
    assert program.slots["z"] == program.slots["q"]  # as without `fuse`, where `v` keeps `p` from `y`


def test_the_result_may_take_bytes_that_a_view_of_its_type_shares(device: CpuDevice) -> None:
    rows = [
        op("p", "Softmax", ["x"]),
        op("v", "Identity", ["p"]),
        op("s", "Exp", ["p"]),
        op("y", "Sub", ["v", "s"]),
    ]
    program = fused(rows)
    assert names(program) == ["p", "y"]
    assert program.slots["y"] == program.slots["p"]
    found, _ = ran(bound(rows, tensors(), ["y"]), device, {})
    np.testing.assert_allclose(found["y"], wanted(rows, tensors(), ["y"])["y"], rtol=1e-5)


def test_explain_says_where_a_tensor_is_computed() -> None:
    program = fused(gelu())
    plan = plan_by_hand(program)
    tensor_found = explain_tensor(program, plan, "erf")
    assert tensor_found.no_memory == "y computes erf itself: elementwise calls in a row are fused"
    assert [step.name for step in tensor_found.read_by] == ["y"]
    assert explain_kernel(program, plan, "erf").not_run == (
        "nothing is launched: y computes erf itself: elementwise calls in a row are fused"
    )
    found = explain_kernel(program, plan, "y")
    assert (found.op, found.inputs) == ("Add+Div+Erf+Add+Mul+Mul", ("x", "b", "two"))


# Results: the kernels are run as PTX on the host's memory, under the plan


@pytest.fixture
def device() -> CpuDevice:
    pytest.importorskip("llvmlite")
    pytest.importorskip("cuda.bindings")
    return CpuDevice()


def ran(graph: BoundGraph, device: CpuDevice, arrays: dict[str, Array]) -> tuple[dict[str, Array], int]:
    """The outputs of the fused kernels, and the bytes planned."""
    program = lower(graph, "cuda", fuse=True)
    plan = plan_memory(program)
    loaded = LoadedProgram(device, program, plan)
    try:
        for inputs in (False, True):
            loaded.load(arrays, 0, inputs=inputs)
        loaded.runner.issue()
        device.synchronize()
        found = {name: loaded.read(name) for name in graph.outputs}
    finally:
        loaded.close()
    return {name: array for name, array in found.items() if array is not None}, plan.peak_bytes


def wanted(rows: Rows, more: Tensors, outputs: list[str]) -> dict[str, Array]:
    record = {"kgrun": 1, "name": "g", "nodes": rows, "tensors": more, "outputs": outputs}
    with Session(KernelGraph.model_validate(record), device="cpu") as session:
        return dict(session.run().outputs)


@pytest.mark.parametrize(("dtype", "rtol"), [("float32", 2e-6), ("float16", 2e-3), ("float64", 1e-14)])
def test_what_lies_between_is_rounded_as_if_it_were_stored(device: CpuDevice, dtype: str, rtol: float) -> None:
    found, _ = ran(bound(gelu(), tensors(dtype), ["y"]), device, {})
    right = wanted(gelu(), tensors(dtype), ["y"])["y"]
    np.testing.assert_allclose(found["y"], right, rtol=rtol, atol=rtol)
    if dtype == "float16":  # nothing may be computed as if it were of more bits
        rows = [op("s", "Add", ["x", "big"]), op("y", "Sub", ["s", "big"])]
        more = tensors(dtype) | {"big": tensor("constant", [], dtype, value=1000)}
        found, _ = ran(bound(rows, more, ["y"]), device, {})
        assert found["y"].tobytes() == wanted(rows, more, ["y"])["y"].tobytes()


def test_integers_and_absent_operands(device: CpuDevice) -> None:
    more = {"x": tensor("input", [3, 5], "int32", init={"integers": [-9, 9], "seed": 3})}
    more["most"] = tensor("constant", [], "int32", value=4)
    rows = [
        op("a", "Clip", ["x", None, "most"]),
        op("n", "Neg", ["a"]),
        op("y", "Mul", ["n", "a"]),
    ]
    graph = bound(rows, more, ["y"])
    assert names(lower(graph, "cuda", fuse=True)) == ["y"]
    assert ran(graph, device, {})[0]["y"].tolist() == wanted(rows, more, ["y"])["y"].tolist()


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_integers_wrap_between_calls_too(device: CpuDevice, dtype: str) -> None:
    bits = np.iinfo(dtype).bits
    rows = [op("square", "Mul", ["x", "x"]), op("y", "Relu", ["square"])]
    more = {"x": tensor("parameter", [2], dtype, value=[3 * 2 ** (bits // 2 - 2), 2])}
    graph = bound(rows, more, ["y"])
    assert names(lower(graph, "cuda", fuse=True)) == ["y"]
    assert ran(graph, device, {})[0]["y"].tolist() == [0, 4]  # 9 * 2^(bits - 4) has the sign bit


_ONE = ("Neg", "Abs", "Tanh", "Relu")
_TWO = ("Add", "Sub", "Mul", "Max")


@st.composite
def graphs(draw: st.DrawFn) -> Rows:
    """Up to twelve calls on tensors of one shape, a bias and a number, with a Softmax here and there."""
    have, rows = ["x", "b", "two"], []
    for index in range(draw(st.integers(2, 12))):
        kind = draw(st.sampled_from([*_ONE, *_TWO, *_TWO, "Softmax"]))
        whole = [name for name in have if name not in ("b", "two")]
        first = draw(st.sampled_from(whole))
        inputs = [first, draw(st.sampled_from(have))] if kind in _TWO else [first]
        rows.append(op(f"t{index}", kind, inputs))
        have.append(f"t{index}")
    return rows


@settings(max_examples=25, deadline=None)
@given(graphs(), st.randoms(use_true_random=False))
def test_fused_graphs_give_the_same_and_need_no_more_memory(rows: Rows, random: Any) -> None:
    pytest.importorskip("llvmlite")
    pytest.importorskip("cuda.bindings")
    every = [row["name"] for row in rows]
    outputs = sorted({every[-1], *(name for name in every if random.random() < 0.2)})
    graph = bound(rows, tensors(), outputs)
    apart = lower(graph, "cuda")
    device = CpuDevice()
    found, peak = ran(graph, device, {})
    right = wanted(rows, tensors(), outputs)
    for name in outputs:
        np.testing.assert_allclose(found[name], right[name], rtol=1e-4, atol=1e-4, err_msg=name)
    assert peak <= plan_memory(apart).peak_bytes
    program = lower(graph, "cuda", fuse=True)
    made = {name for name in graph.tensors if name in program.slots}
    assert made.isdisjoint(program.fused)
    assert len(program.steps) + len(program.fused) == len(apart.steps)


# A session with fused kernels


def test_a_session_refuses_what_looks_at_every_tensor() -> None:
    record = {"kgrun": 1, "name": "g", "nodes": gelu(), "tensors": tensors(), "outputs": ["y"]}
    graph = KernelGraph.model_validate(record)
    for setting in ({"checks": ["nan"]}, {"allow_skip": True}):
        with pytest.raises(UsageError, match="needs every kernel by itself") as refused:
            Session(graph, device="cpu", fuse=True, **setting)
        assert refused.value.code == "KG240"
    with Session(graph, device="cpu", fuse=True) as session:
        assert [step.name for step in session.run().steps] == ["biased", "half", "erf", "one", "times", "y"]
