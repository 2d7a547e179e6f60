"""What the format says and a plan, or a run node by node, cannot do: refused, so that nothing is silently left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kgrun.graphs.bound import Warning
from kgrun.graphs.errors import GraphError, PathPart

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph


_NODE_BY_NODE = "`kgrun execute` runs such a graph node by node"


class RunTimeOnly(GraphError):
    """Only the run can tell what the graph does: it must be run node by node."""

    default_code = "KG356"


def refused(graph: KernelGraph, *, run_time: bool = False) -> Iterator[GraphError]:
    """An error (KG356) for each use of a part of the format that cannot be run.

    With `run_time`, the graph is run node by node: what its nodes decide while they run is no hindrance.
    """
    if run_time:
        for path, what in _planned_only(graph):
            text = f"{what} needs a planned run, and this graph runs node by node"
            yield GraphError(text, code="KG356", where=graph.place(*path))
    else:
        for path, what in _run_time_only(graph):
            yield RunTimeOnly(f"{what} cannot be planned", where=graph.place(*path), help=_NODE_BY_NODE)


def _run_time_only(graph: KernelGraph) -> Iterator[tuple[tuple[PathPart, ...], str]]:
    for position, node in enumerate(graph.nodes):
        if node.dynamic:
            yield ("nodes", position, "dynamic"), "a node with data-dependent shapes"
        if getattr(node, "subgraphs", None):
            yield ("nodes", position, "subgraphs"), "a node with subgraphs"


def _planned_only(graph: KernelGraph) -> Iterator[tuple[tuple[PathPart, ...], str]]:
    for name, tensor in graph.tensors.items():
        if tensor.cache is not None:
            yield ("tensors", name, "cache"), "an embedding cache"
    for position, node in enumerate(graph.nodes):
        if getattr(node, "queue", None) is not None:
            yield ("nodes", position, "queue"), "a data queue"


def shapes_unknown(graph: KernelGraph, position: int, op: str) -> GraphError:
    """The error (KG356) for an operator whose output shapes only the run can tell, where they must be known before."""
    return RunTimeOnly(
        f"{op} gives shapes that depend on the elements of its inputs: they are known only after it ran",
        where=graph.place("nodes", position, "op"),
        help=f"{_NODE_BY_NODE}; write inputs that are constants with `value`",
    )


def decided_while_running(graph: KernelGraph, position: int, op: str) -> GraphError:
    """The error (KG356) for a control node where everything must be known before the run."""
    return RunTimeOnly(
        f"{op} decides while the graph runs: nothing after it can be known before",
        where=graph.place("nodes", position, "op"),
        help=_NODE_BY_NODE,
    )


def ignored(graph: KernelGraph) -> Iterator[Warning]:
    """A warning for each wish that a run node by node does not grant: what moves when is a matter of a plan."""
    for name, tensor in graph.tensors.items():
        if tensor.offload == "always":
            yield Warning("W-NO-OFFLOAD", f"{name!r} stays on the device: nothing is planned", ("tensors", name))
    for position, node in enumerate(graph.nodes):
        if node.offload:
            text = f"outputs of {node.name!r} stay on the device: nothing is planned"
            yield Warning("W-NO-OFFLOAD", text, ("nodes", position, "offload"))
