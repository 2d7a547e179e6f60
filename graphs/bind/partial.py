"""What can be known before the run of a graph with branches and loops: the nodes whose inputs all are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kgrun.graphs.bind.checks import node_faults
from kgrun.graphs.bind.dims import bind_dims
from kgrun.graphs.bind.graph import DEFAULT_ARCH, Binder, bound_tensors
from kgrun.graphs.bind.links import link
from kgrun.graphs.bind.unsupported import refused
from kgrun.graphs.bound import BoundGraph, BoundNode, Warning
from kgrun.graphs.control import is_control, run_time_reason
from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators.base import ValueUnknown

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph


def bind_known(
    graph: KernelGraph, *, dims: Mapping[str, int] | None = None, strict: bool = False, target: str | None = None
) -> BoundGraph:
    """The nodes that can be bound before the run, checked; a warning says how many those are not.

    Raises:
        UsageError: dimensions unbound, unknown or out of range.
        GraphError: what is wrong with a node that can be bound; with `strict` that some cannot.
    """
    links = link(graph)
    binder = Binder(graph, links, bind_dims(graph, dims or {}), {}, run_time=True)
    nodes: list[BoundNode] = []
    unknown: set[str] = set()
    for position in links.order:
        spec, index = graph.nodes[position], len(nodes)
        if is_control(spec) or spec.dynamic or not unknown.isdisjoint(links.inputs[position]):
            unknown.update(name for name in spec.outputs if name is not None)
            continue
        try:
            bound_node = binder.bind_node(index, position, ())
        except ValueUnknown:
            unknown.update(name for name in spec.outputs if name is not None)
            continue
        if bound_node.call is not None and not bound_node.call.exact:
            unknown.update(bound_node.written_names())
        nodes.append(bound_node)
    tensors = bound_tensors(binder, tuple(nodes))
    outputs = tuple(name for name in graph.outputs if name in tensors)
    bound = BoundGraph(graph, binder.dims, tensors, tuple(nodes), outputs)
    faults = [
        *refused(graph, run_time=True),
        *(f for n in nodes for f in node_faults(bound, n, target or DEFAULT_ARCH)),
    ]
    if faults:
        faults[0].others = tuple(faults[1:])
        raise faults[0]
    missing = len(graph.nodes) - len(nodes)
    text = f"{run_time_reason(graph)}: the types of {missing} of {len(graph.nodes)} nodes are known only then"
    warnings = (Warning("W-NODE-BY-NODE", text),)
    if strict:
        raise GraphError(text, code="KG399", where=graph.place("nodes"))
    return BoundGraph(graph, binder.dims, tensors, tuple(nodes), outputs, warnings)
