"""A graph cut after one node, as the plain values of a graph file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kgrun.graphs.bound import BoundGraph, BoundNode

Document = dict[str, Any]


def kept_nodes(bound: BoundGraph, last: str | None) -> list[BoundNode]:
    """The nodes that run up to and with `last`, in order of the file; all of them where it is None or unknown.

    What runs earlier is kept although the last node may not need it: it shares memory with what the node reads.
    """
    end = next((node.index for node in bound.nodes if node.name == last), len(bound.nodes))
    return sorted((node for node in bound.nodes if node.index <= end), key=lambda node: node.position)


def cut_graph(bound: BoundGraph, nodes: Iterable[BoundNode]) -> Document:
    """The file's content with these nodes alone, and the dimensions that were bound as their only values.

    What queues feed becomes an input, and no table is cached any more: one run on one batch is to be done again.
    """
    source = bound.source
    document: Document = source.model_dump(mode="json", by_alias=True, exclude_unset=True)
    kept = list(nodes)
    names = {node.name for node in kept}
    document.pop("$schema", None)
    document["nodes"] = [_node(document["nodes"][node.position], names) for node in kept]
    document["dims"] = dict(bound.dims)
    tensors = touched(bound, kept)
    document["tensors"] = {name: row for name, row in document.get("tensors", {}).items() if name in tensors}
    document.pop("queues", None)
    for name in bound.fed & tensors:
        document["tensors"][name]["role"] = "input"  # one batch is among the bundle's data
    for name in bound.cached & tensors:
        del document["tensors"][name]["cache"]
    used = {node.launch.kernel for node in kept if node.launch is not None}
    document["kernels"] = {name: row for name, row in document.get("kernels", {}).items() if name in used}
    if "contiguous" in document:
        groups = ([name for name in group if name in tensors] for group in document["contiguous"])
        document["contiguous"] = [group for group in groups if len(group) > 1]
    if document.get("inputs") is not None:
        document["inputs"] = [name for name in document["inputs"] if name in tensors]
    document["outputs"] = _outputs(bound, kept)
    return document


def touched(bound: BoundGraph, nodes: Iterable[BoundNode]) -> set[str]:
    """Tensors that the nodes read or write, and those that they share memory with."""
    found = {name for node in nodes for name in (*node.read_names(), *node.written_names())}
    pending = list(found)
    while pending:
        tensor = bound.tensors.get(pending.pop())
        owner = tensor.spec.alias_of if tensor is not None and tensor.spec is not None else None
        if owner is not None and owner not in found:
            found.add(owner)
            pending.append(owner)
    return found


def _node(row: Document, names: set[str]) -> Document:
    if "after" in row:
        return row | {"after": [name for name in row["after"] if name in names]}
    return row


def _outputs(bound: BoundGraph, nodes: list[BoundNode]) -> list[str]:
    """The outputs that the nodes still make, and all that the last one makes."""
    made = {name for node in nodes for name in node.written_names()}
    last = max(nodes, key=lambda node: node.index).written_names() if len(nodes) < len(bound.nodes) else ()
    return list(dict.fromkeys([*(name for name in bound.outputs if name in made), *last]))


def set_data(document: Document, name: str, reference: str) -> None:
    """Let a tensor read its data from `reference`."""
    row = {key: value for key, value in document["tensors"].get(name, {}).items() if key != "init"}
    document["tensors"][name] = row | {"data": reference}


def set_kernel(document: Document, name: str, changes: Mapping[str, Any]) -> None:
    """Replace members of a kernel."""
    document["kernels"][name] = document["kernels"][name] | dict(changes)
