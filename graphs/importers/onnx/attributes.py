"""Attributes of ONNX nodes as plain Python values, as kgrun's operators take them."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from kgrun.graphs.data_onnx import Message, import_onnx, stored_tensor, type_name
from kgrun.graphs.dtypes import ONNX_DTYPES
from kgrun.graphs.importers.onnx.errors import Unsupported
from kgrun.graphs.importers.onnx.values import shortest
from kgrun.graphs.operators.base import OpSchema


def plain_attributes(node: Message) -> dict[str, Any]:
    """The attributes by name; subgraphs are left out, tensors stay messages."""
    found = {attribute.name: plain_attribute(attribute) for attribute in node.attribute}
    return {name: value for name, value in found.items() if value is not None}


def plain_attribute(attribute: Message) -> Any:
    """One attribute's value: a number, a string, a list of these, or a tensor's message; None for other kinds."""
    kinds = import_onnx().AttributeProto
    match attribute.type:
        case kinds.FLOAT:
            return _number(attribute.f)
        case kinds.INT:
            return attribute.i
        case kinds.STRING:
            return attribute.s.decode("utf-8", "replace")
        case kinds.FLOATS:
            return [_number(item) for item in attribute.floats]
        case kinds.INTS:
            return list(attribute.ints)
        case kinds.STRINGS:
            return [item.decode("utf-8", "replace") for item in attribute.strings]
        case kinds.TENSOR:
            return attribute.t
        case kinds.SPARSE_TENSOR:
            return attribute.sparse_tensor
    return None


def _number(value: float) -> float | str:
    if not isfinite(value):
        return "nan" if value != value else "inf" if value > 0 else "-inf"
    return shortest(value)


def for_schema(schema: OpSchema, given: Mapping[str, Any], defaults: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """`given` as operator `schema` takes them: known names only, element types by name, one-element tensors as numbers.

    Args:
        defaults: of the ONNX operator; an attribute that kgrun does not have may be left out at its default.
        path: the model's file, where large tensors are.

    Raises:
        Unsupported: an attribute that kgrun's operator does not have; an element type that kgrun does not have.
    """
    found: dict[str, Any] = {}
    for name, value in given.items():
        attribute = schema.attributes.get(name)
        if hasattr(value, "data_type"):
            found |= _tensor_attribute(schema, name, value, path)
        elif attribute is None:
            if name not in defaults or defaults[name] != value:
                raise Unsupported(f"attribute {name!r} is not supported")
        elif attribute.kind == "dtype" and isinstance(value, int):
            if value in ONNX_DTYPES:
                found[name] = ONNX_DTYPES[value]
            elif value != attribute.default:  # 0: no type is named
                raise Unsupported(f"attribute {name!r} names element type {type_name(value)}")
        else:
            found[name] = value
    return found


def _tensor_attribute(schema: OpSchema, name: str, tensor: Message, path: Path) -> dict[str, Any]:
    stored = stored_tensor(tensor, name, path)
    items = stored.read().ravel().tolist()
    if name not in schema.attributes or len(items) != 1:
        raise Unsupported(f"attribute {name!r} is a tensor of {len(items)} elements")
    value = _number(items[0]) if isinstance(items[0], float) else items[0]
    return {name: value} | ({"dtype": stored.dtype} if "dtype" in schema.attributes else {})
