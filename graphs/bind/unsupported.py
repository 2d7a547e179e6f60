"""What the format can say and this version cannot do yet: refused, so that nothing is silently left out."""

from __future__ import annotations

from collections.abc import Iterator

from kgrun.graphs.errors import GraphError, PathPart
from kgrun.graphs.schema.graph import KernelGraph


def refused(graph: KernelGraph) -> Iterator[GraphError]:
    """An error (KG356) for each use of a part of the format that cannot be run."""
    for path, what in _uses(graph):
        yield GraphError(f"{what} cannot be run by this version of kgrun", code="KG356", where=graph.place(*path))


def _uses(graph: KernelGraph) -> Iterator[tuple[tuple[PathPart, ...], str]]:
    for name, tensor in graph.tensors.items():
        if tensor.from_graph is not None:
            yield ("tensors", name, "from_graph"), "an output of another graph"
        if tensor.cache is not None:
            yield ("tensors", name, "cache"), "an embedding cache"
        if tensor.queue is not None:
            yield ("tensors", name, "queue"), "a data queue"
    for position, node in enumerate(graph.nodes):
        if node.dynamic:
            yield ("nodes", position, "dynamic"), "a node with data-dependent shapes"
        if getattr(node, "queue", None) is not None:
            yield ("nodes", position, "queue"), "a data queue"
        if getattr(node, "subgraphs", None):
            yield ("nodes", position, "subgraphs"), "a node with subgraphs"


def shapes_unknown(graph: KernelGraph, position: int, op: str) -> GraphError:
    """The error (KG356) for an operator whose output shapes only the run can tell."""
    return GraphError(
        f"{op} gives shapes that depend on the elements of its inputs, which cannot be run by this version of kgrun",
        code="KG356",
        where=graph.place("nodes", position, "op"),
        help="where these inputs are constants, write them with `value`: the result is then known",
    )
