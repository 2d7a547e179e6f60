"""Transposes that matrix products alone read: these read what the Transpose would, as it lies, and it runs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kgrun.graphs.bound import BoundGraph, BoundNode, BoundTensor
from kgrun.graphs.operators import alias_of, lookup
from kgrun.graphs.schema.kinds import is_op
from kgrun.runtime.lower.classes import set_apart
from kgrun.runtime.program import Turned

# BLAS sums a row vector times a matrix in another order than the same matrix turned.
_SUMMED_BY_LAYOUT = frozenset({"float32", "float64"})


def read_turned(
    bound: BoundGraph, target: str, known: frozenset[int] = frozenset()
) -> tuple[BoundGraph, dict[str, Turned]]:
    """The graph in which products read through their Transposes, and the tensors that no step makes any more.

    A product names the Transpose's input in place of its result, with the position in `OpCall.turned`. The Transpose
    stays where it is in the order; nothing reads its result.

    Args:
        known: indices of nodes whose results are known before the run.
    """
    found = [node for node in bound.nodes if node.index not in known and _swaps(node)]
    if not found:
        return bound, {}
    apart = set_apart(bound)
    nodes, tensors, turned = list(bound.nodes), dict(bound.tensors), {}
    for node in found:
        if why_it_runs(bound, node, target, apart) is None:
            (source,), (result,) = node.read_names(), node.written_names()
            turned[result] = Turned(source, tuple(_positions(bound, result)))
            _redirect(nodes, tensors, result, turned[result])
    if not turned:
        return bound, {}
    return replace(bound, nodes=tuple(nodes), tensors=tensors), turned


def _swaps(node: BoundNode) -> bool:
    """Whether it is a Transpose that swaps its last two axes, and moves bytes by that."""
    call = node.call
    if call is None or call.op != "Transpose" or not node.written_names():
        return False
    from kgrun.graphs.operators.movement import swaps_last_axes  # a graph of launches needs no operators

    return alias_of(call) is None and swaps_last_axes(call)


def why_it_runs(bound: BoundGraph, node: BoundNode, target: str, apart: frozenset[str]) -> str | None:
    """Why a Transpose that swaps its last two axes must run on `target`; None where its readers can do without.

    Args:
        apart: tensors that the file overwrites or places (`set_apart`).
    """
    (source,), (result,) = node.read_names(), node.written_names()
    tensor = bound.tensors[result]
    if tensor.is_output:
        return f"{result} is a graph output"
    if not tensor.consumers:
        return f"nothing reads {result}"
    if wanted(node, tensor):
        return f"the file says where the bytes of {result} are to be"
    for name in (source, result):
        if name in apart:
            return f"the file overwrites or groups bytes that {name} may share"
    origin = bound.tensors[source].spec
    if origin is not None and not origin.valid:
        return f"{source} has no memory"
    if target == "cpu" and tensor.type.dtype in _SUMMED_BY_LAYOUT:
        return f"products of {tensor.type.dtype} on the CPU have other last bits where an operand lies turned"
    for index in tensor.consumers:
        reader = bound.nodes[index]
        if not _takes_turned(reader, result):
            return f"{reader.name} reads it, and is no product that takes it turned"
        if reader.stream != node.stream:
            return f"{reader.name} reads it on another stream"
    return None


def wanted(node: BoundNode, tensor: BoundTensor) -> bool:
    """Whether the file says something of the result's bytes, or that the node is to run."""
    spec = node.spec
    if is_op(spec) and spec.nop is not None:
        return True
    if node.clear or node.workspace or node.collective is not None or spec.no_reuse or spec.offload:
        return True
    own = tensor.spec
    if own is None:
        return False
    return own.pin or own.no_reuse or own.lifelong or own.location != "device" or own.offload != "auto"


def _takes_turned(reader: BoundNode, name: str) -> bool:
    if reader.call is None:
        return False
    takes = lookup(reader.op).turnable
    return all(i in takes for i, read in enumerate(reader.inputs) if read == name)


def _positions(bound: BoundGraph, name: str) -> Iterator[tuple[int, int]]:
    """The node and the position among its inputs of every use of a tensor."""
    for index in bound.tensors[name].consumers:
        yield from ((index, i) for i, read in enumerate(bound.nodes[index].inputs) if read == name)


def _redirect(nodes: list[BoundNode], tensors: dict[str, BoundTensor], result: str, turned: Turned) -> None:
    """Let the readers of `result` read its source."""
    for index, position in turned.readers:
        reader = nodes[index]
        assert reader.call is not None
        inputs = (*reader.inputs[:position], turned.source, *reader.inputs[position + 1 :])
        call = replace(reader.call, turned=reader.call.turned | {position})
        nodes[index] = replace(reader, inputs=inputs, call=call)
    source = tensors[turned.source]
    readers = sorted({*source.consumers, *(index for index, _ in turned.readers)})
    tensors[turned.source] = replace(source, consumers=tuple(readers))
    tensors[result] = replace(tensors[result], consumers=())
