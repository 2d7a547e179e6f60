"""What an iteration would make, told without one: the types that a loop of no iterations stacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kgrun.graphs.bind.tensors import MAX_KNOWN_ELEMENTS, host_value
from kgrun.graphs.control import is_control
from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import InferenceError, TensorType
from kgrun.graphs.schema.kinds import is_op

if TYPE_CHECKING:
    from kgrun.runtime.eager.body import Body
    from kgrun.runtime.eager.executor import Executor
    from kgrun.runtime.eager.frame import Frame


def unmade_type(
    executor: Executor, frame: Frame, body: Body, formals: Sequence[TensorType], output: str
) -> TensorType | None:
    """Type of an output that one pass through `body` would make of `formals`; None where only a run tells.

    Args:
        frame: around the body.
    """
    if output not in body.links.producer and output not in body.formals:
        return _outside(executor, frame, body, output, False)
    found = dict(zip(body.formals, formals, strict=True))
    for position in body.links.order:
        node = body.graph.nodes[position]
        if not is_op(node) or is_control(node):
            continue
        host = body.host_inputs(position)
        types: list[TensorType | None] = []
        for index, name in enumerate(body.links.inputs[position]):
            made_here = name is not None and name in body.links.producer
            if name is not None and name not in found and made_here:
                break  # of a node that was passed over
            types.append(
                None if name is None else found.get(name) or _outside(executor, frame, body, name, index in host)
            )
        else:
            try:
                call = infer(node.op, node.name, types, node.attributes, len(node.outputs))
            except InferenceError:
                continue
            if call.exact:
                found |= {n: kind for n, kind in zip(node.outputs, call.outputs, strict=True) if n is not None}
    return found.get(output)


def _outside(executor: Executor, frame: Frame, body: Body, name: str, elements: bool) -> TensorType:
    """Type of a tensor that is there before the body runs, with its elements where they are few and wanted."""
    if name in body.graph.tensors and frame.find(name) is None:
        kind, _ = body.external(name)
        return host_value(body.graph, name, kind, body.dims) if elements else kind
    tensor = executor.tensor(frame, name)
    kind = tensor.type
    if elements and kind.value is None and kind.size <= MAX_KNOWN_ELEMENTS:
        return TensorType(kind.dtype, kind.shape, executor.elements(tensor))
    return kind
