"""Nodes that decide while the graph runs what runs next: If, Loop, Scan; their bodies and what these capture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kgrun.graphs.errors import GraphError, did_you_mean
from kgrun.graphs.operators.base import Attribute
from kgrun.graphs.records import dataclass

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import GraphBody, KernelGraph
    from kgrun.graphs.schema.nodes import KernelNode, OpNode

_MANY = 1 << 31


@dataclass(frozen=True, slots=True)
class ControlOp:
    """A control operator of ONNX: keys of `subgraphs`, least and most inputs, attributes."""

    bodies: tuple[str, ...]
    inputs: tuple[int, int]
    attributes: dict[str, Attribute]


CONTROL = {
    "If": ControlOp(("then_branch", "else_branch"), (1, 1), {}),
    "Loop": ControlOp(("body",), (2, _MANY), {}),
    "Scan": ControlOp(
        ("body",),
        (1, _MANY),
        {
            "num_scan_inputs": Attribute("int", required=True),
            "scan_input_axes": Attribute("ints"),
            "scan_output_axes": Attribute("ints"),
            "scan_input_directions": Attribute("ints"),
            "scan_output_directions": Attribute("ints"),
        },
    ),
}


def is_control(node: KernelNode | OpNode) -> bool:
    """Whether the node runs bodies of `graphs`."""
    return getattr(node, "op", None) in CONTROL


def body_graph(graph: KernelGraph, name: str) -> KernelGraph:
    """Body `name` of `graph` as a graph of its own, with the same dimensions, kernels, bodies and files."""
    body = graph.graphs[name]
    fields = {key: getattr(body, key) for key in type(body).model_fields}
    made = type(graph).model_construct(
        kgrun=1, name=name, dims=graph.dims, kernels=graph.kernels, graphs=graph.graphs, **fields
    )
    made._file, made._folder, made._allow_external = graph.file, graph._folder, graph.allows_external_data
    made._locate, made._body = graph._locate, name
    return made


def formal_inputs(body: GraphBody) -> list[str]:
    """Names that a body's caller gives values to, in order."""
    if body.inputs is not None:
        return list(body.inputs)
    return [name for name, spec in body.tensors.items() if spec.role == "input"]


def body_names(graph: KernelGraph, position: int, node: OpNode) -> dict[str, str]:
    """The node's bodies by role; GraphError KG343 for one that is missing, KG330 for one too many."""
    wanted = CONTROL[node.op].bodies
    for role, name in node.subgraphs.items():
        if role not in wanted:
            raise GraphError(
                f"{node.op} has no subgraph {role!r}",
                code="KG330",
                where=graph.place("nodes", position, "subgraphs", role),
                help=did_you_mean(role, wanted) or f"it has {', '.join(wanted)}",
            )
        if name not in graph.graphs:
            raise GraphError(
                f"{node.name!r} names body {name!r}, which does not exist",
                code="KG343",
                where=graph.place("nodes", position, "subgraphs", role),
                help=did_you_mean(name, graph.graphs) or "define it under `graphs`",
            )
    for role in wanted:
        if role not in node.subgraphs:
            raise GraphError(
                f"{node.op} {node.name!r} needs subgraph {role!r}",
                code="KG330",
                where=graph.place("nodes", position, "subgraphs"),
                help=f"subgraphs: {{{role}: NAME}}, a name of `graphs`",
            )
    return dict(node.subgraphs)


def captured(graph: KernelGraph, node: KernelNode | OpNode) -> tuple[str, ...]:
    """Names that the node's bodies read from outside, each once, in order.

    Raises:
        GraphError: KG342 for bodies that run themselves.
    """
    subgraphs = getattr(node, "subgraphs", None)
    if not subgraphs:
        return ()
    return tuple(dict.fromkeys(n for name in subgraphs.values() for n in _free_names(graph, name, ())))


def _free_names(graph: KernelGraph, name: str, inside: tuple[str, ...]) -> Iterator[str]:
    from kgrun.graphs.bind.links import flatten

    if name in inside:
        chain = " → ".join([*inside, name])
        raise GraphError(f"body {name!r} runs itself: {chain}", code="KG342", where=graph.place("graphs", name))
    body = graph.graphs.get(name)
    if body is None:
        return  # the node that names it says so, with its place
    own = {*formal_inputs(body), *body.tensors, *(o for node in body.nodes for o in node.outputs)}
    for node in body.nodes:
        yield from (n for n in flatten(node.inputs) if n is not None and n not in own)
        for inner in getattr(node, "subgraphs", {}).values():
            yield from (n for n in _free_names(graph, inner, (*inside, name)) if n not in own)
    yield from (n for n in body.outputs if n not in own)


def run_time_reason(graph: KernelGraph) -> str | None:
    """Why nobody can know before the run what the graph does: a node that decides; None where binding may tell."""
    for node in graph.nodes:
        if is_control(node):
            return f"{node.name!r} decides while it runs what follows"
        if node.dynamic:
            return f"the shapes of {node.name!r} are known only after it ran"
    return None
