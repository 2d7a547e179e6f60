"""Elementwise calls in a row as one kernel: what lies between them is neither written nor read, and has no memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kgrun.graphs.bound import BoundGraph, BoundNode, BoundTensor
from kgrun.graphs.operators import alias_of, lookup
from kgrun.graphs.operators.base import Fused
from kgrun.graphs.operators.scalar_code import compute_dtype
from kgrun.runtime.lower.classes import set_apart, view_source
from kgrun.runtime.lower.turned import wanted

_MOST_INPUTS = 8
_MOST_CALLS = 24


def fuse_elementwise(
    bound: BoundGraph, folded: frozenset[int], unmade: frozenset[str]
) -> tuple[BoundGraph, dict[str, int]]:
    """The graph in which the last of a row of elementwise calls computes them all, and the tensors between by its node.

    A row has one shape, one type of its results and one type to compute in; nothing else runs in between, and nothing
    else reads what it makes. So it needs no more memory than before: all its inputs were there when its first call ran.
    Each result is rounded to its own type as if it had been stored, but for a float32 or float64 product and the sum it
    goes into, which the compiler may round at once. Calls that are computed elsewhere stay where they are in the order.

    Args:
        folded: indices of nodes whose results are known before the run.
        unmade: tensors that no step makes.
    """
    apart = set_apart(bound)
    nodes = list(bound.nodes)
    fused: dict[str, int] = {}
    within: dict[int, int] = {}
    for node in reversed(bound.nodes):
        if node.index in folded or node.index in within or not _computes_elements(node):
            continue
        row = _row_before(bound, node, folded, unmade, apart)
        if len(row) == 1:
            continue
        within.update((member.index, node.index) for member in row[:-1])
        nodes[node.index] = _joined(row)
        fused.update((member.written_names()[0], node.index) for member in row[:-1])
    if not fused:
        return bound, {}
    tensors = {name: _reread(tensor, within, fused) for name, tensor in bound.tensors.items()}
    return replace(bound, nodes=tuple(_awaited(node, within) for node in nodes), tensors=tensors), fused


def _computes_elements(node: BoundNode) -> bool:
    """Whether a generated kernel computes the one result of a node, and the file says nothing of how."""
    call = node.call
    if call is None or not call.exact or len(node.outputs) != 1 or node.outputs[0] is None:
        return False
    if node.inplace or node.clear or node.workspace or node.collective is not None or getattr(node.spec, "nop", False):
        return False
    schema = lookup(call.op)
    return schema.family == "elementwise" and "shape_only" not in schema.data and alias_of(call) is None


def _row_before(
    bound: BoundGraph, last: BoundNode, folded: frozenset[int], unmade: frozenset[str], apart: frozenset[str]
) -> list[BoundNode]:
    """The calls that `last` can compute with its own, in order; `last` alone where there are none."""
    assert last.call is not None
    shape, kind = last.call.outputs[0].shape, (last.call.outputs[0].dtype, compute_dtype(last.call.input(0).dtype))
    row, members = [last], {last.index}
    for index in range(last.index - 1, -1, -1):
        node = bound.nodes[index]
        if node.index in folded or _runs_nothing(bound, node, unmade, apart):
            continue
        if not _computes_elements(node) or node.stream != last.stream or len(row) == _MOST_CALLS:
            break
        assert node.call is not None
        result = bound.tensors[node.written_names()[0]]
        alike = result.type.shape == shape and (result.type.dtype, compute_dtype(node.call.input(0).dtype)) == kind
        inside = bool(result.consumers) and members.issuperset(result.consumers) and not result.is_output
        if not (alike and inside) or result.name in apart or wanted(node, result):
            break
        if len(_inputs([node, *row])) > _MOST_INPUTS:
            break
        row.insert(0, node)
        members.add(node.index)
    return row


def _runs_nothing(bound: BoundGraph, node: BoundNode, unmade: frozenset[str], apart: frozenset[str]) -> bool:
    """Whether a node is a view or makes what nothing reads: it may stand inside a row."""
    if not unmade.isdisjoint(node.written_names()):
        return True
    # A view that must own its bytes is a copy, whose memory the row's inputs may have left before it.
    return len(node.written_names()) == 1 and not node.inplace and view_source(bound, node, apart) is not None


def _inputs(row: Sequence[BoundNode]) -> list[str]:
    """What a row reads of what it does not make, once each."""
    made = {name for node in row for name in node.written_names()}
    return list(dict.fromkeys(name for node in row for name in node.inputs if name is not None and name not in made))


def _joined(row: Sequence[BoundNode]) -> BoundNode:
    """The last node of a row with the calls of all."""
    names, last = _inputs(row), row[-1]
    assert last.call is not None
    at = {name: index for index, name in enumerate(names)}
    at |= {node.written_names()[0]: len(names) + index for index, node in enumerate(row)}
    types = {
        name: kind
        for node in row
        if node.call is not None
        for name, kind in zip(node.inputs, node.call.inputs, strict=False)
        if name is not None
    }
    calls = tuple(node.call for node in row if node.call is not None)
    operands = tuple(tuple(None if name is None else at[name] for name in node.inputs) for node in row)
    call = replace(last.call, inputs=tuple(types[name] for name in names), fused=Fused(calls, operands))
    return replace(last, inputs=tuple(names), call=call, flops=_declared_flops(row), bytes=None)


def _declared_flops(row: Sequence[BoundNode]) -> int | None:
    """Operations of all calls where the file says something of one's; None where their operators say it."""
    if all(node.flops is None for node in row):
        return None
    total = 0
    for node in row:
        cost = lookup(node.op).flops
        each = cost(node.call) if node.flops is None and cost is not None and node.call is not None else node.flops
        if each is None:
            return None
        total += each
    return total


def _reread(tensor: BoundTensor, within: Mapping[int, int], fused: Mapping[str, int]) -> BoundTensor:
    """A tensor whose readers are the last nodes of the rows that read it; nothing reads what lies in a row."""
    if tensor.name in fused:
        return replace(tensor, consumers=())
    if not any(reader in within for reader in tensor.consumers):
        return tensor
    return replace(tensor, consumers=tuple(sorted({within.get(reader, reader) for reader in tensor.consumers})))


def _awaited(node: BoundNode, within: Mapping[int, int]) -> BoundNode:
    """A node that waits for the last call of a row where it would have waited for one of the others."""
    last = {within[before] for before in node.predecessors if before in within} - {node.index}
    return replace(node, predecessors=tuple(sorted({*node.predecessors, *last}))) if last else node
