"""Nodes that are not sorted: each is walked after what it reads, subgraphs too; cycles are named."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError
from kgrun.graphs.importers.onnx import onnx_graph

from .models import floats, ops, run

onnx = pytest.importorskip("onnx")


def save(path: Path, nodes: list[str], outputs: str = "float[n] y") -> Path:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[n] x, bool c) => ({outputs}) {{ {" ".join(nodes)} }}'
    )
    path.write_bytes(model.SerializeToString())
    return path


NODES = ["a = Neg(x)", "b = Exp(a)", "d = Add(a, b)", "y = Mul(d, b)"]


@pytest.mark.parametrize("nodes", [*permutations(NODES)], ids=lambda nodes: ";".join(node[0] for node in nodes))
def test_any_order_of_the_file_computes_the_same(nodes: tuple[str, ...], tmp_path: Path) -> None:
    graph = onnx_graph(save(tmp_path / "m.onnx", list(nodes)))
    x = floats(3)
    found = run(graph, {"x": x, "c": np.array(True)})["y"]
    np.testing.assert_allclose(found, (np.exp(-x) - x) * np.exp(-x), rtol=1e-6)


def test_nodes_keep_the_file_s_order_where_they_can(tmp_path: Path) -> None:
    nodes = ["p = Neg(x)", "y = Mul(late, p)", "q = Abs(x)", "late = Exp(x)", "z = Add(q, y)"]
    graph = onnx_graph(save(tmp_path / "m.onnx", nodes, "float[n] z"))
    assert ops(graph) == ["Neg", "Exp", "Mul", "Abs", "Add"]


def test_a_branch_may_read_what_is_made_after_it_in_the_file(tmp_path: Path) -> None:
    branches = [f"{kind}_branch = {kind} () => (o) {{ u = {op}(late) o = Neg(u) }}" for kind, op in
                (("then", "Exp"), ("else", "Abs"))]  # fmt: skip
    graph = onnx_graph(save(tmp_path / "m.onnx", [f"y = If<{', '.join(branches)}>(c)", "late = Neg(x)"]))
    x = floats(3)
    found = run(graph, {"x": x, "c": np.array(False)})["y"]
    np.testing.assert_array_equal(found, -np.abs(x))


def test_a_branch_s_own_names_do_not_count(tmp_path: Path) -> None:
    """Both branches make a tensor that the graph makes of them, too."""
    branches = [f"{kind}_branch = {kind} () => (o) {{ late = {op}(x) o = Neg(late) }}" for kind, op in
                (("then", "Exp"), ("else", "Abs"))]  # fmt: skip
    nodes = [f"y = If<{', '.join(branches)}>(c)", "late = Neg(y)"]
    x = floats(3)
    found = run(onnx_graph(save(tmp_path / "m.onnx", nodes, "float[n] late")), {"x": x, "c": np.array(True)})["late"]
    np.testing.assert_allclose(found, np.exp(x), rtol=1e-6)


@pytest.mark.parametrize("nodes", [["a = Neg(b)", "b = Exp(a)", "y = Add(b, x)"], ["y = Add(y, x)"]])
def test_a_cycle_is_named(nodes: list[str], tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="is not defined") as caught:
        onnx_graph(save(tmp_path / "m.onnx", nodes))
    assert caught.value.code == "KG343"


def test_long_chains_in_reverse(tmp_path: Path) -> None:
    nodes = ["t0 = Neg(x)", *(f"t{at} = Neg(t{at - 1})" for at in range(1, 3_001)), "y = Identity(t3000)"]
    graph = onnx_graph(save(tmp_path / "m.onnx", nodes[::-1]))
    assert len(graph.nodes) == 3_001
