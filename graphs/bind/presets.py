"""Outputs that take over an input's memory unasked: those of operators that update parameters (S40)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kgrun.graphs.operators import all_schemas
from kgrun.graphs.schema.kinds import is_op

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.graphs.schema.nodes import KernelNode, OpNode


def inplace_of(graph: KernelGraph, node: KernelNode | OpNode, inputs: tuple[str | None, ...]) -> Mapping[str, str]:
    """`inplace` of a node: as written, or by its operator's preset where that names no input that must keep its value.

    Args:
        inputs: the node's inputs, nested lists flattened.
    """
    if node.inplace or not is_op(node) or node.op not in all_schemas():
        return node.inplace
    updates: Mapping[int, int] = all_schemas()[node.op].data.get("updates", {})
    found = {}
    for output, source in updates.items():
        result = node.outputs[output] if output < len(node.outputs) else None
        name = inputs[source] if source < len(inputs) else None
        if result is not None and name is not None and _is_parameter(graph, name):
            found[result] = name
    return found


def _is_parameter(graph: KernelGraph, name: str) -> bool:
    """Whether `name` is a parameter, as written or by its data; inputs and constants keep their bytes."""
    spec = graph.tensors.get(name)
    if spec is None or spec.role is not None:
        return spec is not None and spec.role == "parameter"
    return spec.value is None and spec.string is None and (spec.data is not None or spec.init is not None)
