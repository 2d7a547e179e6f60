"""`inplace` of operators: an output may take over only an input that the operator allows to be overwritten."""

from __future__ import annotations

from collections.abc import Iterator

from kgrun.graphs.bound import BoundGraph, BoundNode
from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators import lookup
from kgrun.graphs.operators.base import OpSchema


def refused(bound: BoundGraph, node: BoundNode) -> Iterator[GraphError]:
    """KG354 for each `inplace` of an operator that reads the input after its first write; kernels may do as they like.

    The input must stand at no other position, and have the output's type, for each element to be read before it is
    written. Optimizers say themselves (`overwritable`) which inputs each of their outputs may take over.
    """
    if node.call is None:
        return
    schema = lookup(node.op)
    for output, name in node.inplace.items():
        if output not in node.outputs or name not in node.inputs:
            continue
        problem = _problem(bound, node, schema, output, name)
        if problem is not None:
            yield GraphError(
                f"{node.name!r} cannot write {output!r} over {name!r}: {problem}",
                code="KG354",
                where=bound.source.place("nodes", node.position, "inplace", output),
                help="leave `inplace` out: memory is reused where that is safe",
            )


def _problem(bound: BoundGraph, node: BoundNode, schema: OpSchema, output: str, name: str) -> str | None:
    allowed = _allowed(node, schema, node.outputs.index(output))
    positions = {position for position, given in enumerate(node.inputs) if given == name}
    if not allowed & positions:
        return f"{node.op} needs {name!r} until its end"
    if schema.alias is not None:
        return None  # the same bytes
    target, source = bound.tensors[output].type, bound.tensors[name].type
    if (target.dtype, target.shape) != (source.dtype, source.shape):
        return f"{name!r} is {source.dtype}{list(source.shape)}, not {target.dtype}{list(target.shape)}"
    if len(positions) > 1 and schema.family != "elementwise" and not positions <= allowed:
        return f"{name!r} is an operand twice"
    return None


def _allowed(node: BoundNode, schema: OpSchema, place: int) -> frozenset[int]:
    """Positions of the inputs that output `place` may take over."""
    assert node.call is not None
    if "overwritable" in schema.data:
        found: frozenset[int] = schema.data["overwritable"](node.call, place)
        return found
    if place:
        return frozenset()
    return frozenset(schema.inplace) | ({schema.alias} if schema.alias is not None else frozenset())
