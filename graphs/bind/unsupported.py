"""What the format says and a plan, or a run node by node, cannot do: refused, so that nothing is silently left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kgrun.graphs.bound import Warning
from kgrun.graphs.errors import GraphError, PathPart, did_you_mean

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.graphs.schema.tensors import TensorSpec

_NODE_BY_NODE = "`kgrun execute` runs such a graph node by node"


class RunTimeOnly(GraphError):
    """Only the run can tell what the graph does: it must be run node by node."""

    default_code = "KG356"


def refused(graph: KernelGraph, *, run_time: bool = False) -> Iterator[GraphError]:
    """An error (KG356) for each use of a part of the format that cannot be run; KG343, KG354 for wishes that cannot be.

    With `run_time`, the graph is run node by node: what its nodes decide while they run is no hindrance.
    """
    yield from _wishes(graph)
    if run_time:
        for path, what in _planned_only(graph):
            text = f"{what} needs a planned run, and this graph runs node by node"
            yield GraphError(text, code="KG356", where=graph.place(*path))
    else:
        for path, what in _run_time_only(graph):
            yield RunTimeOnly(f"{what} cannot be planned", where=graph.place(*path), help=_NODE_BY_NODE)


def _wishes(graph: KernelGraph) -> Iterator[GraphError]:
    """Tensors that ask for another's memory, or for none, and cannot have that."""
    written = {name for node in graph.nodes for name in node.outputs if name is not None}
    for name, spec in graph.tensors.items():
        if not spec.valid and (name in written or name in graph.outputs):
            why = "a node writes it" if name in written else "it is an output"
            yield GraphError(
                f"{name!r} has no memory (`valid: false`), but {why}",
                code="KG354",
                where=graph.place("tensors", name, "valid"),
            )
        if spec.alias_of is None:
            continue
        place, other = graph.place("tensors", name, "alias_of"), graph.tensors.get(spec.alias_of)
        if other is None:
            text = f"{name!r} is an alias of {spec.alias_of!r}, which does not exist"
            help = did_you_mean(spec.alias_of, graph.tensors)
            yield GraphError(text, code="KG343", where=place, help=help)
        elif other.alias_of is not None or not (_given(name, spec, written) and _given(spec.alias_of, other, written)):
            text = f"{name!r} can only be an alias of an input or parameter, and be one"
            yield GraphError(text, code="KG354", where=place)


def _given(name: str, spec: TensorSpec, written: set[str]) -> bool:
    """Whether the tensor is an input or a parameter."""
    if spec.role is None:
        return name not in written and (spec.init, spec.data, spec.from_graph) != (None, None, None)
    return spec.role in ("input", "parameter")


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
