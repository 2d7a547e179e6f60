"""If, Loop and Scan that are known before the run, and functions: all of them vanish into plain nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError
from kgrun.graphs.importers.onnx import onnx_graph
from kgrun.graphs.operators.base import registered

from .models import agree, floats, ops, run, save_text

onnx = pytest.importorskip("onnx")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tmp_path / "model.onnx"


def test_nested_ifs_with_captures_are_inlined(model: Path) -> None:
    text = """g (float[n, 2] x) => (float[n, 2] y) <float[2] w = {1, 2}> {
        size = Size(x)
        four = Constant<value_int = 4>()
        large = Greater(size, four)
        scaled = Mul(x, w)
        y = If (large) <
            then_branch = a () => (float[n, 2] p) {
                not_large = Not(large)
                p = If (not_large) <
                    then_branch = b () => (float[n, 2] q) { q = Neg(scaled) },
                    else_branch = c () => (float[n, 2] r) { u = Add(scaled, w) \n r = Relu(u) }
                >
            },
            else_branch = d () => (float[n, 2] s) { s = Identity(x) }
        >
    }"""
    save_text(model, text)
    assert ops(agree(model, {"x": floats(3, 2)}, {"n": 3})) == ["Mul", "Add", "Relu"]
    assert ops(agree(model, {"x": floats(2, 2)}, {"n": 2})) == ["Identity"]


def test_a_loop_of_known_length_is_unrolled(model: Path) -> None:
    text = """g (float[2] x) => (float[2] y, float[k, 2] rows) {
        trips = Constant<value_int = 3>()
        go = Constant<value_int = 1>()
        cond = Cast<to = 9>(go)
        y, rows = Loop (trips, cond, x) <
            body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w, float[2] row) {
                f = Cast<to = 1>(i)
                w = Add(v, f)
                row = Mul(w, x)
                d = Identity(c)
            }
        >
    }"""
    save_text(model, text)
    found = run(onnx_graph(model), {"x": np.array([1, 2], np.float32)})
    assert found["y"].tolist() == [4, 5]
    assert found["rows"].tolist() == [[1, 4], [2, 6], [4, 10]]
    assert "Loop" not in ops(onnx_graph(model))


def test_a_loop_may_end_itself(model: Path) -> None:
    text = """g (float[1] x) => (float[1] y) {
        go = Constant<value_int = 1>()
        cond = Cast<to = 9>(go)
        y = Loop (, cond, x) <
            body = b (int64 i, bool c, float[1] v) => (bool d, float[1] w) {
                two = Constant<value_int = 2>()
                w = Add(v, v)
                d = Less(i, two)
            }
        >
    }"""
    save_text(model, text)
    assert run(onnx_graph(model), {"x": np.ones(1, np.float32)})["y"].tolist() == [8]


def test_a_scan_is_unrolled(model: Path) -> None:
    text = """g (float[2] s, float[3, 2] x) => (float[2] total, float[2, 3] sums) {
        total, sums = Scan <num_scan_inputs = 1, scan_input_directions = [1], scan_output_axes = [1],
            body = b (float[2] v, float[2] item) => (float[2] w, float[2] out) { w = Add(v, item) \n out = Neg(w) }
        > (s, x)
    }"""
    save_text(model, text)
    found = run(onnx_graph(model), {"s": np.zeros(2, np.float32), "x": np.arange(6, dtype=np.float32).reshape(3, 2)})
    assert found["total"].tolist() == [6, 9]
    assert found["sums"].tolist() == [[-4, -6, -6], [-5, -8, -9]]


def test_what_the_run_decides_becomes_bodies(model: Path) -> None:
    text = """g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> {
        t = Mul(x, w)
        y = If (c) <
            then_branch = a () => (float[2] p) { p = Neg(t) },
            else_branch = b () => (float[2] q) { u = Add(t, w) \n q = Relu(u) }
        >
    }"""
    save_text(model, text)
    graph = onnx_graph(model)
    node = graph.nodes[1]
    assert getattr(node, "subgraphs", None) == {"then_branch": "If_1/then_branch", "else_branch": "If_1/else_branch"}
    other = graph.graphs["If_1/else_branch"]
    inner = "If_1/else_branch/u", "If_1/else_branch/q"
    assert [each.inputs for each in other.nodes] == [["t", "w"], [inner[0]]]
    assert other.outputs == [inner[1]]


def test_functions_of_the_model_are_inlined_with_their_attributes(model: Path) -> None:
    header = 'ir_version: 10, opset_import: ["" : 21, "local" : 1]'
    text = """g (float[2, 3] x) => (float[2, 3] y) {
        t = local.twice <slope = 0.5> (x)
        y = local.twice (t)
    }
    <domain: "local", opset_import: ["" : 21]>
    leak <slope> (a) => (b) { b = LeakyRelu <alpha: float = @slope> (a) }
    <domain: "local", opset_import: ["" : 21, "local" : 1]>
    twice <slope: float = 0.25> (a) => (b) { h = local.leak <slope: float = @slope> (a) \n b = Add(h, h) }"""
    save_text(model, text, header=header)
    graph, x = onnx_graph(model), floats(2, 3)
    once = 2 * np.where(x < 0, x * np.float32(0.5), x)
    wanted = 2 * np.where(once < 0, once * np.float32(0.25), once)
    np.testing.assert_allclose(run(graph, {"x": x})["y"], wanted, rtol=1e-6)
    assert ops(graph) == ["LeakyRelu", "Add"] * 2
    assert [getattr(node, "attributes", {}).get("alpha") for node in graph.nodes[::2]] == [0.5, 0.25]
    assert len({node.name for node in graph.nodes}) == 4


@pytest.mark.parametrize("text", ["Celu<alpha = 0.5>(x)", "Softmax<axis = 0>(x)", "LayerNormalization(x, s)"])
def test_operators_that_onnx_defines_by_others_are_inlined(
    model: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Functions as they stand, and functions made for the node's attributes and types."""
    op = text.partition("(")[0].partition("<")[0]
    save_text(model, f"g (float[2, 3] x, float[3] s) => (float[2, 3] y) {{ y = {text} }}", 17)
    monkeypatch.delitem(registered(), op)
    graph = agree(model, {"x": floats(2, 3), "s": floats(3, seed=1)})
    assert op not in ops(graph)
    assert len(graph.nodes) > 2


def test_a_function_inside_itself_is_refused(model: Path) -> None:
    header = 'ir_version: 10, opset_import: ["" : 21, "local" : 1]'
    text = """g (float[2] x) => (float[2] y) { y = local.f(x) }
    <domain: "local", opset_import: ["" : 21, "local" : 1]> f (a) => (b) { b = local.f(a) }"""
    save_text(model, text, header=header)
    with pytest.raises(GraphError, match="functions inside functions"):
        onnx_graph(model)


def test_faults_inside_branches_are_listed_with_their_place(model: Path) -> None:
    text = """g (float[2] x, bool c) => (float[2] y) {
        y = If (c) <
            then_branch = a () => (float[2] p) { p = vendor.One(x) },
            else_branch = b () => (float[2] q) { q = vendor.Two(x) }
        >
    }"""
    save_text(model, text, header='ir_version: 10, opset_import: ["" : 21, "vendor" : 1]')
    with pytest.raises(GraphError, match=r"vendor\.One") as failure:
        onnx_graph(model)
    assert [str(each.where).rpartition(": ")[2] for each in (failure.value, *failure.value.others)] == [
        "graph.node[0].then_branch.node[0]",
        "graph.node[0].else_branch.node[0]",
    ]


def test_shapes_that_do_not_fit_are_no_fault_in_a_branch_that_may_not_run(model: Path) -> None:
    """A model for two sampling rates, its sizes bound for one of them: the other branch cannot be inferred."""
    text = """g (float[n] x, int64 rate) => (float[m] y) <float[4] w = {1, 2, 3, 4}, float[2] v = {1, 2}> {
        k = Constant<value_int = 16>()
        c = Equal(rate, k)
        y = If (c) <
            then_branch = a () => (float[4] p) { p = Mul(x, w) },
            else_branch = b () => (float[2] q) { q = Mul(x, v) }
        >
    }"""
    save_text(model, text)
    graph = onnx_graph(model, dims={"n": 4})
    assert [len(body.nodes) for body in graph.graphs.values()] == [1, 1]
    assert ops(onnx_graph(model, dims={"n": 4}, values={"rate": np.int64(16)})) == ["Mul"]
    with pytest.raises(GraphError, match="do not broadcast"):
        onnx_graph(model, dims={"n": 4}, values={"rate": np.int64(8)})


def test_a_name_that_two_nodes_write_is_refused(model: Path) -> None:
    save_text(model, "g (float[2] x) => (float[2] y) { y = Relu(x) z = Abs(y) y = Neg(x) }")
    with pytest.raises(GraphError, match="'y' is there already") as failure:
        onnx_graph(model)
    assert failure.value.code == "KG341"


def test_values_of_another_size_than_the_bound_dimensions_decide_nothing(model: Path) -> None:
    save_text(model, "g (bool[n] c, float[a, b] x) => (float[m, k] y) { y = Where(c, x, x) }")
    given = {"c": np.ones(1, bool), "x": np.array([[1, 2]], np.float32)}
    assert run(onnx_graph(model, values=given), given)["y"].tolist() == [[1, 2]]


LOOPS = {
    "a branch that an input decides": """g (float[2] x, bool c) => (float[k] y) <float[2] w = {1, 2}> {
        t = Mul(x, w)
        y = If (c) <
            then_branch = a () => (float[2] p) { p = Neg(t) },
            else_branch = b () => (float[1, 2] q) { z = Constant<value_ints = [0]>() \n q = Unsqueeze(t, z) }
        >
    }""",
    "a loop that its values end": """g (float[2] x, bool c) => (float[2] y, float[k, 2] rows) <float[2] w = {1, 2}> {
        y, rows = Loop (, c, x) <
            body = b (int64 i, bool go, float[2] v) => (bool more, float[2] n, float[2] row) {
                n = Add(v, w)
                row = Mul(n, x)
                s = ReduceSum<keepdims = 0>(n)
                limit = Constant<value_float = 12.0>()
                more = Less(s, limit)
            }
        >
    }""",
    "a loop with a branch inside": """g (float[2] x, bool c) => (float[2] y) {
        trips = Constant<value_int = 4>()
        m = ReduceMax<keepdims = 0>(x)
        y = Loop (trips, c, x) <
            body = b (int64 i, bool go, float[2] v) => (bool more, float[2] n) {
                s = ReduceSum<keepdims = 0>(v)
                large = Greater(s, m)
                n = If (large) <
                    then_branch = p () => (float[2] half) { two = Constant<value_float = 2.0>() \n half = Div(v, two) },
                    else_branch = q () => (float[2] sum) { sum = Add(v, x) }
                >
                more = Identity(go)
            }
        >
    }""",
    "a length that only the run tells": """g (float[2] x, bool c) => (float[k] y) {
        places = NonZero(x)
        first = Constant<value_int = 0>()
        flat = Gather(places, first)
        y = Gather(x, flat)
    }""",
}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("go", [True, False])
def test_what_the_run_decides_runs_node_by_node(model: Path, name: str, go: bool) -> None:
    save_text(model, LOOPS[name])
    if name == "a loop that its values end" and not go:
        pytest.skip("a loop of no trips: ONNX's evaluator makes no rows")
    agree(model, {"x": np.array([1, 2], np.float32), "c": np.array(go)})


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("y = If (c) <then_branch = t () => (float[2] p) { p = Neg(x) }>", "'else_branch'"),
        ("y = Scan (x) <body = t (float p) => (float q) { q = Neg(p) }>", "'num_scan_inputs'"),
        ("y = Scan (x) <num_scan_inputs = 1>", "'body'"),
        ("y = Loop (, c, x)", "'body'"),
    ],
)
def test_what_a_node_lacks_is_said(model: Path, text: str, lacks: str) -> None:
    save_text(model, f"g (float[2] x, bool c) => (float[2] y) {{ {text} }}")
    with pytest.raises(GraphError, match=f"lacks {lacks}") as caught:
        onnx_graph(model)
    assert caught.value.code == "KG330"
