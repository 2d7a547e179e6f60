"""Adds kgrun nodes to the graph in the making: types inferred where they can be, known results folded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kgrun.graphs.importers.onnx.errors import Unsupported
from kgrun.graphs.importers.onnx.values import FOLDED, Body, Emitted, Value, inline
from kgrun.graphs.operators import all_schemas, infer
from kgrun.graphs.operators.base import InferenceError, OpSchema, TensorType, ValueUnknown, checked_attributes


class Emitter:
    """Writes into one body at a time. `mark` and `rollback` undo an attempt.

    Attributes:
        lenient: types that do not fit an operator are no fault: the node may never run.
    """

    def __init__(self) -> None:
        self.body = Body()
        self.lenient = False

    def mark(self) -> int:
        """Where the body ends now."""
        return len(self.body.nodes)

    def rollback(self, mark: int) -> None:
        """Forget the nodes added since `mark`."""
        del self.body.nodes[mark:]

    def op(
        self,
        op: str,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Any],
        outputs: int,
        name: str,
    ) -> list[Value]:
        """The results of operator `op`: constants where they are known already, else those of a new node.

        Raises:
            Unsupported: kgrun has no such operator, or it does not take these inputs or attributes.
        """
        schema = all_schemas().get(op)
        if schema is None:
            raise Unsupported(f"kgrun has no operator {op}")
        operands, outputs = list(inputs), max(outputs, schema.outputs[0])
        while operands and operands[-1] is None:
            operands.pop()
        try:
            checked_attributes(schema, attributes)
        except InferenceError as error:
            raise Unsupported(error.message, help=error.help) from None
        found, exact = self._inferred(schema, name, operands, attributes, outputs)
        if found is not None and exact and all(kind.value is not None and kind.size <= FOLDED for kind in found):
            return [inline(name, kind.dtype, kind.shape, kind.value or ()) for kind in found]
        operands = [_stated(value) if i in schema.host_inputs else value for i, value in enumerate(operands)]
        kinds: Sequence[TensorType | None] = found or (None,) * outputs
        made = [Value(f"{name}.{index}" if index else name, kind, exact) for index, kind in enumerate(kinds)]
        self.body.nodes.append(Emitted(op, name, operands, list(made), dict(attributes)))
        return made

    def _inferred(
        self, schema: OpSchema, name: str, inputs: Sequence[Value | None], attributes: Mapping[str, Any], outputs: int
    ) -> tuple[Sequence[TensorType] | None, bool]:
        """Types of the outputs, None where an input's is unknown; whether they hold for whatever the dimensions are."""
        if any(value is not None and value.type is None for value in inputs):
            return None, False
        exact = all(value is None or value.exact for value in inputs)
        try:
            call = infer(schema.name, name, [None if v is None else v.type for v in inputs], attributes, outputs)
        except ValueUnknown:
            return None, False
        except InferenceError as error:
            if not exact or self.lenient:
                return None, False  # a guess of the dimensions that does not fit; a branch that is not taken
            raise Unsupported(error.message, help=error.help, types=True) from None
        if len(call.outputs) < outputs:
            return None, False
        return call.outputs, exact and not getattr(schema, "dynamic", False)


def _stated(value: Value | None) -> Value | None:
    """A value that an operator looks at while the graph is bound, as a constant where it is known now."""
    if value is None or value.constant or value.known is None or value.type is None:
        return value
    return inline(value.name, value.type.dtype, value.type.shape, value.known)
