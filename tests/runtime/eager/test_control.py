"""If, Loop and Scan: bodies, captured names, carried values, trip counts, and what is wrong with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime.eager import EagerSession
from kgrun.runtime.report import RunReport
from kgrun.runtime.sessions import open_session
from tests.support import graph, node, tensor

F = "float32"


def constant(value: object, dtype: str = F) -> dict[str, object]:
    return {"role": "constant", "dtype": dtype, "value": value}


X = {"x": tensor("input", (3,), F, init={"fill": 1})}


def run(made: KernelGraph, **values: Any) -> RunReport:
    with open_session(made, device="cpu", values={n: np.array(v) for n, v in values.items()}) as session:
        assert isinstance(session, EagerSession)
        report = session.run()
        held = session.device.memory_in_use()
        session.run(iterations=3)
        assert session.device.memory_in_use() == held
        return report


def branching(condition: dict[str, object]) -> KernelGraph:
    bodies = {
        "up": {"nodes": [node("inc", ["x", "one"], ["u"], op="Add")], "outputs": ["u"]},
        "down": {"nodes": [node("dec", ["x", "one"], ["d"], op="Sub")], "outputs": ["d"]},
    }
    chosen = node("pick", ["c"], ["y"], op="If", subgraphs={"then_branch": "up", "else_branch": "down"})
    return graph([chosen], X | {"one": constant([1.0]), "c": condition}, ["y"], graphs=bodies)


@pytest.mark.parametrize(("flag", "wanted"), [(True, 2), (False, 0)])
def test_if_runs_the_branch_that_its_condition_picks(flag: bool, wanted: float) -> None:
    given = run(branching({"role": "input", "dtype": "bool", "shape": []}), c=flag)
    assert given.outputs["y"].tolist() == [wanted] * 3
    known = run(branching(constant(flag, "bool")))
    assert known.outputs["y"].tolist() == [wanted] * 3
    assert [step.name for step in known.steps] == [f"pick.{'inc' if flag else 'dec'}"]


def looping(body: dict[str, Any], inputs: list[str | None], outputs: list[str], **tensors: Any) -> KernelGraph:
    loop = node("loop", inputs, outputs, op="Loop", subgraphs={"body": "body"})
    return graph([loop], X | tensors, outputs, graphs={"body": body})


DOUBLE = {
    "inputs": ["i", "go", "v"],
    "nodes": [node("double", ["v", "v"], ["v2"], op="Add")],
    "outputs": ["go", "v2", "v2"],
}


def test_what_no_iteration_made_has_the_type_that_one_would_make() -> None:
    body = {
        "inputs": ["i", "go", "v"],
        "tensors": {"shape": constant([3, 1], "int64")},
        "nodes": [
            node("column", ["v", "shape"], ["c"], op="Reshape"),
            node("table", ["c", "w"], ["t"], op="Mul"),
            node("rows", ["t", "axes"], ["r"], op="ReduceSum", attributes={"keepdims": 0}),
            node("whole", ["r"], ["n"], op="Cast", attributes={"to": "int32"}),
        ],
        "outputs": ["go", "v", "t", "n"],
    }
    given = {"m": tensor("input", (), "int64"), "w": constant([1.0, 2.0]), "axes": constant([1], "int64")}
    report = run(looping(body, ["m", None, "x"], ["y", "ts", "ns"], **given), m=np.int64(0))
    made = {name: (array.dtype, array.shape) for name, array in report.outputs.items()}
    assert made == {"y": (F, (3,)), "ts": (F, (0, 3, 2)), "ns": ("int32", (0, 3))}
    outside = run(
        looping(DOUBLE | {"outputs": ["go", "v2", "x"]}, ["m", None, "x"], ["y", "xs"], m=constant(0, "int64"))
    )
    assert outside.outputs["xs"].shape == (0, 3)
    empty = run(scanning(scan_output_axes=[1]), m=np.zeros((0, 3), F), zero=np.zeros(3, F))
    assert empty.outputs["all"].shape == (3, 0)


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_loop_runs_as_often_as_its_trip_count_says(trips: int) -> None:
    body = DOUBLE | {"tensors": {"v2": {"dtype": F, "shape": [3]}}}
    made = looping(body, ["m", None, "x"], ["y", "ys"], m=tensor("input", (), "int64"))
    report = run(made, m=np.int64(trips))
    assert report.outputs["y"].tolist() == [2.0**trips] * 3
    assert report.outputs["ys"].tolist() == [[2.0 ** (i + 1)] * 3 for i in range(trips)]
    assert [len(step.samples) for step in report.steps] == ([trips] if trips else [])


def test_loop_ends_when_its_condition_does() -> None:
    body = {
        "inputs": ["i", "go", "v"],
        "tensors": {"limit": constant(2, "int64")},
        "nodes": [node("double", ["v", "v"], ["v2"], op="Add"), node("more", ["i", "limit"], ["on"], op="Less")],
        "outputs": ["on", "v2"],
    }
    report = run(looping(body, [None, "go", "x"], ["y"], go=constant(True, "bool")))
    assert report.outputs["y"].tolist() == [8] * 3


def test_a_carried_value_may_grow() -> None:
    body = {
        "inputs": ["i", "go", "v"],
        "nodes": [node("grow", ["v", "x"], ["v2"], op="Concat", attributes={"axis": 0})],
        "outputs": ["go", "v2"],
    }
    assert run(looping(body, ["m", None, "x"], ["y"], m=constant(3, "int64"))).outputs["y"].shape == (12,)


def test_a_body_may_overwrite_what_it_carries_but_nothing_outside() -> None:
    body = {
        "inputs": ["i", "go", "v"],
        "nodes": [node("double", ["v", "x"], ["v2"], op="Add", inplace={"v2": "v"})],
        "outputs": ["go", "v2", "v2"],
    }
    made = looping(body, ["m", None, "x"], ["y", "ys"], m=constant(3, "int64"))
    report = run(made)
    assert report.outputs["y"].tolist() == [4] * 3
    assert report.outputs["ys"].tolist() == [[2] * 3, [3] * 3, [4] * 3]


def test_bodies_nest_and_see_what_is_outside() -> None:
    inner = {"nodes": [node("mul", ["v", "three"], ["w"], op="Mul")], "outputs": ["w"]}
    other = {"nodes": [node("same", ["v"], ["w2"], op="Identity")], "outputs": ["w2"]}
    body = {
        "inputs": ["i", "go", "v"],
        "tensors": {"one": constant(1, "int64")},
        "nodes": [
            node("first", ["i", "one"], ["early"], op="Less"),
            node("pick", ["early"], ["v2"], op="If", subgraphs={"then_branch": "inner", "else_branch": "other"}),
        ],
        "outputs": ["go", "v2"],
    }
    loop = node("loop", ["m", None, "x"], ["y"], op="Loop", subgraphs={"body": "body"})
    made = graph(
        [loop],
        X | {"m": constant(3, "int64"), "three": constant([3.0])},
        ["y"],
        graphs={"body": body, "inner": inner, "other": other},
    )
    report = run(made)
    assert report.outputs["y"].tolist() == [3] * 3
    assert "loop.pick.mul" in [step.name for step in report.steps]


def scanning(**attributes: Any) -> KernelGraph:
    body = {
        "inputs": ["sum", "part"],
        "nodes": [
            node("add", ["sum", "part"], ["total"], op="Add"),
            node("copy", ["total"], ["shown"], op="Identity"),
        ],
        "outputs": ["total", "shown"],
    }
    scan = node(
        "scan", ["zero", "m"], ["last", "all"], op="Scan", subgraphs={"body": "body"},
        attributes={"num_scan_inputs": 1, **attributes},
    )  # fmt: skip
    tensors = {"m": tensor("input", ("a", "b"), F), "zero": tensor("input", ("c",), F)}
    return graph([scan], tensors, ["last", "all"], graphs={"body": body})


M = np.arange(6, dtype=F).reshape(2, 3)


def test_scan_over_the_first_axis() -> None:
    report = run(scanning(), m=M, zero=np.zeros(3, F))
    np.testing.assert_array_equal(report.outputs["last"], M.sum(axis=0))
    np.testing.assert_array_equal(report.outputs["all"], M.cumsum(axis=0))


def test_scan_over_another_axis_and_backwards() -> None:
    attributes = {"scan_input_axes": [1], "scan_input_directions": [1], "scan_output_axes": [-1]}
    report = run(scanning(**attributes), m=M, zero=np.zeros(2, F))
    np.testing.assert_array_equal(report.outputs["all"], M[:, ::-1].cumsum(axis=1))
    backwards = run(scanning(**attributes, scan_output_directions=[1]), m=M, zero=np.zeros(2, F))
    np.testing.assert_array_equal(backwards.outputs["all"], M[:, ::-1].cumsum(axis=1)[:, ::-1])


def test_what_is_wrong_is_said_with_its_place() -> None:
    lost = DOUBLE | {"nodes": [node("double", ["v", "w"], ["v2"], op="Add")]}
    with pytest.raises(GraphError, match="'w' is not defined") as caught:
        open_session(looping(lost, ["m", None, "x"], ["y"], m=constant(1, "int64")), device="cpu")
    assert (caught.value.code, str(caught.value.where)) == ("KG343", "graphs.body.nodes[0].inputs")
    own = {"inputs": ["i", "go", "v"], "nodes": [], "outputs": ["go", "v"]}
    itself = own | {"nodes": [node("again", ["i", None, "v"], ["w"], op="Loop", subgraphs={"body": "body"})]}
    with pytest.raises(GraphError, match="runs itself") as caught:
        open_session(looping(itself, ["m", None, "x"], ["y"], m=constant(1, "int64")), device="cpu")
    assert caught.value.code == "KG342"
    for inputs, words in (([None, None, "x"], "never end"), (["x", None, "x"], "3 elements")):
        with pytest.raises(GraphError, match=words) as caught:
            run(looping(own, inputs, ["y"]))
        assert (caught.value.code, str(caught.value.where)) == ("KG330", "nodes[0]")
    found = DOUBLE | {"nodes": [node("double", ["v", "v"], ["v2"], op="Add"), node("at", ["v"], ["p"], op="NonZero")]}
    with pytest.raises(GraphError, match=r"tells the type of 'p'"):
        run(looping(found | {"outputs": ["go", "v2", "p"]}, ["m", None, "x"], ["y", "ys"], m=constant(0, "int64")))


def test_a_body_that_is_missing_or_too_many_is_refused() -> None:
    for bodies, code in (({}, "KG330"), ({"body": "b"}, "KG343"), ({"bod": "body"}, "KG330")):
        loop = node("loop", ["m", None, "x"], ["y"], op="Loop", subgraphs=bodies)
        made = graph([loop], X | {"m": constant(1, "int64")}, ["y"], graphs={"body": DOUBLE})
        with pytest.raises(GraphError) as caught:
            open_session(made, device="cpu")
        assert caught.value.code == code
