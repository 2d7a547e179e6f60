"""Graphs with data queues, and ways to run them, for the tests of queues."""

from __future__ import annotations

from typing import Any

from kgrun.graphs.schema.graph import KernelGraph
from tests.support import graph, node, tensor

F = "float32"


def fed_graph(batch: int = 4, **queue: Any) -> KernelGraph:
    """`y = -x` and `total += sum(x)` over batches of x [batch, 2]."""
    tensors = {
        "x": tensor(None, (batch, 2), F),
        "total": tensor("parameter", (), F, init={"fill": 0}),
    }
    nodes = [
        node("next", [], ["x"], op="GetNext", queue="q"),
        node("neg", ["x"], ["y"], op="Neg"),
        node("sum", ["x"], ["s"], op="ReduceSum", attributes={"keepdims": 0}),
        node("add", ["total", "s"], ["total2"], op="Add", inplace={"total2": "total"}),
    ]
    return graph(nodes, tensors, ["y", "total2"], queues={"q": {"items": ["x"], **queue}})
