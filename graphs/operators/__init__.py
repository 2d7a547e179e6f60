"""Builtin operators, with ONNX's names and semantics: look one up, infer what a use of it gives."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from kgrun.graphs.dtypes import MAX_AXES
from kgrun.graphs.errors import GraphError, did_you_mean
from kgrun.graphs.operators.base import InferenceError, OpCall, OpSchema, TensorType, checked_attributes, registered

FAMILIES = (
    *("elementwise", "views", "movement", "generators", "reduction", "linear", "nn"),
    *("selection", "indexing", "scans", "rearrangement", "normalization"),
    *("resampling", "transposed", "contraction", "sampling", "signal"),
    *("losses", "gradients", "optimizers"),
    *("quantization", "recurrent", "attention", "random_values", "decoding", "collectives"),
)
_loaded = False


def all_schemas() -> Mapping[str, OpSchema]:
    """Every builtin operator by name."""
    global _loaded
    if not _loaded:
        for family in FAMILIES:
            importlib.import_module(f"kgrun.graphs.operators.{family}")
        _loaded = True
    return registered()


def lookup(name: str) -> OpSchema:
    """The schema of operator `name`; GraphError KG331 when there is none."""
    schemas = all_schemas()
    if name not in schemas:
        help = did_you_mean(name, schemas) or "docs/operators.md lists the operators"
        raise GraphError(f"there is no operator {name!r}", code="KG331", help=help)
    return schemas[name]


def alias_of(call: OpCall | None) -> int | None:
    """The input whose bytes output 0 of a call is a view of; None for one that must run, and for no operator."""
    if call is None or call.fused is not None:
        return None
    schema = lookup(call.op)
    if schema.view is not None and schema.view(call):
        return 0
    return schema.alias


def schema_in(domain: str, name: str) -> OpSchema | None:
    """The schema of ONNX's operator `name` of `domain` ("" for ONNX's own), or None where there is none."""
    found = all_schemas().get(name)
    return found if found is not None and found.domain == domain else None


def infer(
    op: str,
    node: str,
    inputs: Sequence[TensorType | None],
    attributes: Mapping[str, Any],
    output_count: int = 1,
) -> OpCall:
    """A use of `op` with its attributes checked and its outputs inferred.

    Args:
        node: the node's name, for messages.
        inputs: types by position, None where an optional input is absent.
        output_count: how many outputs the node names, absent ones before the last included.

    Raises:
        GraphError: KG331, no such operator.
        InferenceError: KG330, wrong number of inputs or outputs, attribute, dtype or shape; its path is in the node.
    """
    schema = lookup(op)
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    _check_arity(schema, inputs, output_count)
    first = inputs[0] if inputs else None
    if first is not None and first.dtype not in schema.dtypes:
        allowed = ", ".join(sorted(schema.dtypes))
        raise InferenceError(f"{op} does not take {first.dtype}", "inputs", 0, help=f"it takes {allowed}")
    call = OpCall(op, node, tuple(inputs), checked_attributes(schema, attributes), output_count)
    call.outputs = tuple(schema.infer(call))
    most = max((len(kind.shape) for kind in call.outputs), default=0)
    if most > MAX_AXES:
        raise InferenceError(f"{op}: its result has {most} axes; a tensor has at most {MAX_AXES}")
    return call


def _check_arity(schema: OpSchema, inputs: Sequence[TensorType | None], output_count: int) -> None:
    for what, count, (least, most) in (
        ("inputs", len(inputs), schema.inputs),
        ("outputs", output_count, schema.outputs),
    ):
        if not least <= count <= most:
            wanted = f"{least}" if least == most else f"{least} or more" if most > 1000 else f"{least} to {most}"
            raise InferenceError(f"{schema.name} takes {wanted} {what}, got {count}", what)
    variadic = schema.inputs[1] > 1000
    for position in range(len(inputs) if variadic else schema.inputs[0]):
        if inputs[position] is None:
            raise InferenceError(f"{schema.name} needs input {position}", "inputs", position)
