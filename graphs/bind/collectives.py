"""What binding tells a collective: the ranks of its group, and the rank that the graph is bound for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kgrun.graphs.bind.launches import NodeScope
from kgrun.graphs.errors import did_you_mean
from kgrun.graphs.operators.collectives import NOBODY

if TYPE_CHECKING:
    from kgrun.graphs.schema.nodes import Collective, OpNode


def collective_attributes(scope: NodeScope, node: OpNode) -> dict[str, Any]:
    """The node's attributes, with those that its `collective` record, the graph's groups and the dims tell.

    A `peer` outside of the job is nobody: so the ends of a chain of ranks need no graph of their own.

    Raises:
        GraphError: KG359 for a group that is not there, or an attribute that the record has or binding fills in.
    """
    for name in ("members", "rank", "root", "peer"):
        if name in node.attributes:
            help = f"write `collective: {{{name}: …}}`" if name in ("root", "peer") else "it comes from the group"
            raise scope.error("KG359", f"{name!r} is no attribute of {node.op}", "attributes", name, help=help)
    record = node.collective or _by_default()
    size, rank = scope.dims["world_size"], scope.dims["rank"]
    filled: dict[str, Any] = {"members": _members(scope, record, size), "rank": rank}
    if node.op in ("Broadcast", "Reduce"):
        filled["root"] = scope.evaluate(record.root, "collective", "root") if record.root is not None else 0
    elif record.root is not None:
        raise scope.error("KG359", f"{node.op} has no root", "collective", "root")
    if node.op in ("Send", "Recv"):
        if record.peer is None:
            raise scope.error("KG359", f"{node.op} needs a peer", "collective", help="write `collective: {peer: …}`")
        peer = scope.evaluate(record.peer, "collective", "peer")
        filled["peer"] = peer if 0 <= peer < size else NOBODY
    elif record.peer is not None:
        raise scope.error("KG359", f"{node.op} has no peer", "collective", "peer")
    if node.op == "Recv":
        filled |= _declared(scope, node)
    return {**filled, **node.attributes}


def _by_default() -> Collective:
    from kgrun.graphs.schema.nodes import DEFAULT_COLLECTIVE

    return DEFAULT_COLLECTIVE


def _members(scope: NodeScope, record: Collective, size: int) -> list[int]:
    if record.group is None:
        return list(range(size))
    groups = scope.graph.groups
    if record.group not in groups:
        help = did_you_mean(record.group, groups) or "define it under `groups`"
        raise scope.error("KG359", f"there is no group {record.group!r}", "collective", "group", help=help)
    members = [scope.evaluate(entry, "collective", "group") for entry in groups[record.group]]
    if not members or max(members) >= size:
        text = f"group {record.group!r} is {members}, and there are {size} ranks"
        raise scope.error("KG359", text, "collective", "group", help="groups name ranks from 0 to world_size - 1")
    return members


def _declared(scope: NodeScope, node: OpNode) -> dict[str, Any]:
    """Dtype and shape of what is received, where the output is declared."""
    from kgrun.graphs.bind.dims import bind_shape

    name = node.outputs[0] if node.outputs else None
    spec = scope.graph.tensors.get(name) if name is not None else None
    if spec is None or spec.dtype is None or spec.shape is None:
        return {}
    shape = bind_shape(scope.graph, spec.shape, scope.dims, "tensors", str(name), "shape")
    return {"dtype": spec.dtype, "shape": list(shape)}
