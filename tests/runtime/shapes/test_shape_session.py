"""One graph at many shapes: planned once each, parameters once, buckets where padding cannot be seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError, UsageError
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.devices.cpu import CpuDevice
from kgrun.runtime.shapes import ShapeSession
from tests.support import graph, node, tensor

F = "float32"
RNG = np.random.default_rng(5)


def layers(**dim: Any) -> KernelGraph:
    nodes = [
        node("m1", ["x", "w"], ["t"], op="MatMul"),
        node("a1", ["t", "b"], ["u"], op="Add"),
        node("r1", ["u"], ["v"], op="Relu"),
        node("s1", ["v"], ["p"], op="Softmax", attributes={"axis": 1}),
        node("q1", ["p"], ["y"], op="ReduceMax", attributes={"keepdims": 0, "axes": [1]}),
    ]
    tensors = {
        "x": tensor("input", ["n", 16], F),
        "w": tensor("parameter", (16, 32), F, init={"uniform": [-1, 1]}),
        "b": tensor("parameter", (32,), F, init={"uniform": [-1, 1]}),
    }
    return graph(nodes, tensors, ["v", "y"], dims={"n": dim} if dim else {})


def rows(n: int) -> np.ndarray[Any, Any]:
    return RNG.uniform(-1, 1, (n, 16)).astype(F)


def exact(made: KernelGraph, **values: Any) -> dict[str, np.ndarray[Any, Any]]:
    with Session(made, device="cpu", values=values) as session:
        return session.run().outputs


def same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].tobytes() == array.tobytes(), name


def test_S20_fifty_shapes_are_planned_once_each() -> None:
    made = layers()
    inputs = {n: rows(n) for n in range(1, 51)}
    with ShapeSession(made, device="cpu") as session:
        for x in inputs.values():
            session({"x": x})
        assert (session.statistics.plans, session.statistics.hits) == (50, 0)
        held = session.device.memory_in_use()
        for x in inputs.values():
            same(session({"x": x}), exact(made, x=x))
        assert (session.statistics.plans, session.statistics.hits) == (50, 50)
        assert session.device.memory_in_use() == held
        device = session.device
    assert device.memory_in_use() == 0


def test_a_run_reports_as_a_session_does() -> None:
    made, x = layers(), rows(7)
    with ShapeSession(made, device="cpu") as session:
        report = session.run({"x": x}, iterations=3)
        same(report.outputs, exact(made, x=x))
        assert report.iterations == 3
        assert report.program.graph.dims == {"n": 7}


def test_parameters_are_there_once_and_dynamic_memory_overlaps() -> None:
    made, device = layers(), CpuDevice()
    with ShapeSession(made, device=device) as session:
        for n in (100, 50, 100, 75):
            session({"x": rows(n)})
        sessions = [kept.session for kept in session._kept.values()]
        places = {each.loaded.address(each.program.slots["w"]) for each in sessions}
        assert len(places) == 1
        static = [each.plan.static_bytes for each in sessions]
        dynamic = [each.plan.dynamic_bytes for each in sessions]
        assert device.memory_in_use() == sum(static) + max(dynamic)
        assert max(dynamic) < sum(dynamic)


def test_S39_updates_are_seen_at_every_shape() -> None:
    tensors = {
        "x": tensor("input", ["n"], F),
        "w": tensor("parameter", (1,), F, init={"fill": 0}),
        "one": {"role": "constant", "dtype": F, "value": [1.0]},
    }
    nodes = [
        node("step", ["w", "one"], ["w2"], op="Add", inplace={"w2": "w"}),
        node("use", ["x", "w2"], ["y"], op="Mul"),
    ]
    with ShapeSession(graph(nodes, tensors, ["y"]), device="cpu") as session:
        found = [session({"x": np.ones(n, F)})["y"].tolist() for n in (1, 2, 1, 3)]
    assert found == [[1], [2, 2], [3], [4, 4, 4]]


def test_the_shape_used_longest_ago_is_given_up() -> None:
    device = CpuDevice()
    with ShapeSession(layers(), device=device, capacity=3) as session:
        for n in (1, 2, 3, 2, 4):  # 3 goes: 1 holds the parameters, 2 was used since
            session({"x": rows(n)})
        assert (session.statistics.plans, session.statistics.evictions) == (4, 1)
        for n in (1, 2, 4):
            session({"x": rows(n)})
        assert session.statistics.plans == 4
        same(session({"x": (x := rows(3))}), exact(layers(), x=x))
        assert (session.statistics.plans, session.statistics.evictions) == (5, 2)
    assert device.memory_in_use() == 0


def test_dyn_01_dyn_03_wrong_dimensions_are_told() -> None:
    with ShapeSession(layers(min=2, max=40), device="cpu") as session:
        with pytest.raises(UsageError, match="greater than its maximum 40") as caught:
            session({"x": rows(41)})
        assert caught.value.code == "KG222"
        with pytest.raises(UsageError, match="n is unbound"):
            session({})
        with pytest.raises(UsageError, match="no input 'xx'"):
            session({"xx": rows(3)})
        with pytest.raises(GraphError, match="has shape"):
            session({"x": np.zeros((3, 15), F)})
        assert session({"x": rows(3)})["y"].shape == (3,)


def test_buckets_are_rounded_up_to_and_outputs_are_cut() -> None:
    made = layers(buckets=[8, 32])
    with ShapeSession(made, device="cpu") as session:
        for n in (1, 3, 8, 9, 31, 32):
            x = rows(n)
            found, wanted = session({"x": x}), exact(layers(), x=x)
            assert {name: a.shape for name, a in found.items()} == {name: a.shape for name, a in wanted.items()}
            for name, array in wanted.items():
                np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)
        assert session.statistics.plans == 2
        assert session.unpadded == {}
        assert session({"x": rows(40)})["y"].shape == (40,)  # above the largest: as it is
        assert session.statistics.plans == 3
        report = session.run({"x": rows(5)})
        assert (report.outputs["y"].shape, report.program.graph.dims["n"]) == ((5,), 8)


def mixing(*nodes: dict[str, Any], **tensors: Any) -> KernelGraph:
    last = nodes[-1]["outputs"][0]
    made = {"x": tensor("input", ["n", 4], F), **tensors}
    return graph(list(nodes), made, [last], dims={"n": {"buckets": [8, 16]}})


W = tensor("parameter", ("n",), F, init={"fill": 1})
MIXED = {
    "softmax along it": mixing(node("s", ["x"], ["y"], op="Softmax", attributes={"axis": 0})),
    "sum over it": mixing(node("s", ["x"], ["y"], op="ReduceSum", attributes={"axes": [0], "keepdims": 1})),
    "sum over all": mixing(node("s", ["x"], ["y"], op="ReduceSum", attributes={"keepdims": 0})),
    "inner axis": mixing(
        node("t", ["x"], ["xt"], op="Transpose", attributes={"perm": [1, 0]}),
        node("m", ["xt", "x"], ["y"], op="MatMul"),
    ),
    "outer product": mixing(
        node("t", ["x"], ["xt"], op="Transpose", attributes={"perm": [1, 0]}),
        node("m", ["x", "xt"], ["y"], op="MatMul"),
    ),
    "running sum": mixing(
        node("c", ["x", "axis"], ["y"], op="CumSum"), axis={"role": "constant", "dtype": "int64", "value": 0}
    ),
    "concatenated along it": mixing(node("c", ["x", "x"], ["y"], op="Concat", attributes={"axis": 0})),
    "mean by its size": mixing(
        node("s", ["x"], ["s"], op="Shape"),
        node("c", ["s"], ["f"], op="Cast", attributes={"to": F}),
        node("g", ["f", "zero"], ["g"], op="Gather"),
        node("d", ["x", "g"], ["y"], op="Div"),
        zero={"role": "constant", "dtype": "int64", "value": 0},
    ),
    "a parameter along it": mixing(
        node("t", ["x"], ["xt"], op="Transpose", attributes={"perm": [1, 0]}),
        node("a", ["xt", "w"], ["y"], op="Add"),
        w=W,
    ),
    "flattened": mixing(
        node("f", ["x", "flat"], ["y"], op="Reshape"), flat={"role": "constant", "dtype": "int64", "value": [-1]}
    ),
}


@pytest.mark.parametrize("name", MIXED)
def test_a_graph_that_padding_would_change_runs_at_its_exact_size(name: str) -> None:
    made = MIXED[name]
    with ShapeSession(made, device="cpu") as session:
        for n in (5, 8):
            x = RNG.uniform(0.5, 1, (n, 4)).astype(F)
            same(session({"x": x}), exact(made, x=x))
        assert session.statistics.plans == 2
        assert list(session.unpadded) == ["n"]
        report = session.run({"x": x})
        assert "W-NO-BUCKET" in [warning.code for warning in report.warnings]


def test_token_numbers_are_padded_too() -> None:
    tensors = {
        "ids": tensor("input", ["n"], "int64"),
        "table": tensor("parameter", (50, 8), F, init={"uniform": [-1, 1]}),
    }
    nodes = [
        node("g", ["table", "ids"], ["e"], op="Gather"),
        node("l", ["e"], ["y"], op="Softmax"),
    ]
    made = graph(nodes, tensors, ["y"], dims={"n": {"buckets": [4, 16]}})
    with ShapeSession(made, device="cpu") as session:
        for n in (2, 4, 7, 16):
            ids = RNG.integers(0, 50, n)
            np.testing.assert_allclose(session({"ids": ids})["y"], exact(made, ids=ids)["y"], rtol=1e-6)
        assert (session.statistics.plans, session.unpadded) == (2, {})


def test_parameters_that_are_given_are_those_of_every_shape() -> None:
    made = layers(default=3)
    b = {k: np.full(32, k, F) for k in (2, 3, 4)}
    with ShapeSession(made, device="cpu") as session:
        for n, k in ((3, 2), (5, 3), (3, 4)):
            x = rows(n)
            same(session({"x": x, "b": b[k]}), exact(made, x=x, b=b[k]))
        x = rows(5)
        same(session({"x": x}), exact(made, x=x, b=b[4]))
        same(session.run({"x": x, "b": b[2]}).outputs, exact(made, x=x, b=b[2]))


def test_what_is_no_array_is_refused() -> None:
    with ShapeSession(layers(), device="cpu") as session, pytest.raises(UsageError, match="a list, which is no array"):
        session({"x": [[1.0] * 16]})  # type: ignore[dict-item]
