"""Data queues: which node reads which queue, and the types of the tensors that it feeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kgrun.graphs.bind.dims import bind_shape
from kgrun.graphs.bound import BoundQueue
from kgrun.graphs.errors import GraphError, PathPart, did_you_mean
from kgrun.graphs.operators.base import TensorType
from kgrun.graphs.schema.kinds import is_op

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.graphs.schema.nodes import OpNode


GET_NEXT = "GetNext"


def bind_queues(graph: KernelGraph, dims: Mapping[str, int]) -> tuple[tuple[BoundQueue, ...], dict[str, TensorType]]:
    """The queues that GetNext nodes read, and the types of their items by name.

    Raises:
        GraphError: KG343 for a queue that does not exist, KG351 for an item without dtype or shape, KG357 for a node
            or a queue that does not fit the other.
    """
    queues: dict[str, BoundQueue] = {}
    types: dict[str, TensorType] = {}
    for position, node in enumerate(graph.nodes):
        if not is_op(node) or (node.op != GET_NEXT and node.queue is None):
            continue
        queue = _queue_of(graph, position, node)
        queues[queue.name] = queue  # a second reader would write the same tensors: that is refused before
        for i, name in enumerate(queue.items):
            types[name] = _item_type(graph, dims, name, "nodes", position, "outputs", i)
        first = {name: types[name].shape[:1] for name in queue.items}
        if len(set(first.values())) > 1 or () in first.values() or (0,) in first.values():
            text = ", ".join(f"{name} {list(types[name].shape)}" for name in queue.items)
            raise _fault(graph, position, f"the items of queue {queue.name!r} are no batch of one size: {text}")
    return tuple(queues.values()), types


def _queue_of(graph: KernelGraph, position: int, node: OpNode) -> BoundQueue:
    if node.op != GET_NEXT:
        raise _fault(graph, position, f"{node.name!r} ({node.op}) reads no queue: only {GET_NEXT} does", "queue")
    if node.queue is None:
        raise _fault(graph, position, f"{node.name!r} names no queue", help="add `queue: NAME`, one of `queues`")
    if node.queue not in graph.queues:
        raise GraphError(
            f"there is no queue {node.queue!r}",
            code="KG343",
            where=graph.place("nodes", position, "queue"),
            help=did_you_mean(node.queue, graph.queues) or "describe it under `queues`",
        )
    spec = graph.queues[node.queue]
    if node.inputs or node.attributes or node.inplace or node.clear or node.workspace:
        raise _fault(graph, position, f"{GET_NEXT} takes no inputs, attributes, workspace, inplace or clear")
    if list(node.outputs) != spec.items:
        raise _fault(
            graph, position,
            f"outputs of {node.name!r} are not the items of queue {node.queue!r}",
            "outputs",
            help=f"outputs: [{', '.join(spec.items)}]",
        )  # fmt: skip
    return BoundQueue(node.queue, tuple(spec.items), position, spec)


def _item_type(graph: KernelGraph, dims: Mapping[str, int], name: str, *path: PathPart) -> TensorType:
    spec = graph.tensors.get(name)
    if spec is None or spec.dtype is None or spec.shape is None:
        raise GraphError(
            f"{name!r}, which a queue feeds, needs a dtype and a shape",
            code="KG351",
            where=graph.place(*path),
            help=f"add it to tensors: {name}: {{dtype: float32, shape: [batch, …]}}",
        )
    own = [key for key in ("data", "value", "string", "init", "alias_of", "cache") if getattr(spec, key) is not None]
    if own or spec.role in ("parameter", "constant"):
        what = own[0] if own else f"role {spec.role}"
        raise GraphError(
            f"{name!r} is fed by a queue and cannot have {what}", code="KG357", where=graph.place("tensors", name)
        )
    return TensorType(spec.dtype, bind_shape(graph, spec.shape, dims, "tensors", name, "shape"))


def _fault(graph: KernelGraph, position: int, message: str, *path: PathPart, help: str | None = None) -> GraphError:
    return GraphError(message, code="KG357", where=graph.place("nodes", position, *path), help=help)
