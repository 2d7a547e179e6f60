"""Generators: operators whose elements follow from shapes and constants alone."""

from __future__ import annotations

import math

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators.base import Attribute, Constant, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.known import LIMIT, with_value
from kgrun.graphs.operators.shapes import needs_dtype, same_dtype

_CONSTANTS = {
    # attribute: (dtype, whether it is a list)
    "value_float": ("float32", False),
    "value_floats": ("float32", True),
    "value_int": ("int64", False),
    "value_ints": ("int64", True),
}


def constant_items(call: OpCall) -> Constant:
    """The elements of a Constant, row-major, not yet converted to its dtype."""
    for name in ("value", *_CONSTANTS):
        if name in call.attributes:
            found = call.attributes[name]
            return found if isinstance(found, tuple) else (found,)
    return ()


def range_terms(call: OpCall) -> tuple[int | float, int | float, int]:
    """Range's start, delta and number of elements."""
    terms = []
    for index in range(3):
        if call.input(index).size != 1:
            call.fail(f"Range: input {index} is one number, got {call.input(index).size}", "inputs", index)
        terms.append(call.known(index)[0])
    start, limit, delta = terms
    if delta == 0 or any(not math.isfinite(term) for term in terms):
        call.fail(f"Range: from {start} to {limit} by {delta} has no end", "inputs", 2)
    exact = not any(isinstance(term, float) for term in terms)
    count = -((start - limit) // delta) if exact else math.ceil((limit - start) / delta)
    return start, delta, max(int(count), 0)


def shape_bounds(call: OpCall) -> tuple[int, int]:
    """Shape's first and last axis (half-open), clamped."""
    rank = len(call.input(0).shape)
    bounds = [call.attributes["start"], call.attributes.get("end", rank)]
    first, last = (min(max(at + rank if at < 0 else at, 0), rank) for at in bounds)
    return first, max(first, last)


def _shape(call: OpCall) -> list[TensorType]:
    first, last = shape_bounds(call)
    return [with_value(TensorType("int64", (last - first,)), call.input(0).shape[first:last])]


def _size(call: OpCall) -> list[TensorType]:
    return [with_value(TensorType("int64", ()), (call.input(0).size,))]


def _constant_of_shape(call: OpCall) -> list[TensorType]:
    needs_dtype(call, 0, ("int64",))
    shape = call.ints(0)
    if shape is None or min(shape, default=0) < 0:
        call.fail(f"ConstantOfShape: {shape and list(shape)} is no shape", "inputs", 0)
    out = TensorType(call.attributes["dtype"], shape)
    call.check_range(call.attributes["value"], out.dtype, "value")
    return [with_value(out, (call.attributes["value"],) * out.size) if out.size <= LIMIT else out]


def _range(call: OpCall) -> list[TensorType]:
    dtype = same_dtype(call, 0, 1, 2)
    start, delta, count = range_terms(call)
    out = TensorType(dtype, (count,))
    return [with_value(out, [start + index * delta for index in range(count)]) if count <= LIMIT else out]


def _eye_like(call: OpCall) -> list[TensorType]:
    source = call.input(0)
    if len(source.shape) != 2:
        call.fail(f"EyeLike takes a matrix, got {list(source.shape)}", "inputs", 0)
    return [TensorType(call.attributes.get("dtype", source.dtype), source.shape)]


def _constant(call: OpCall) -> list[TensorType]:
    given = [name for name in ("value", *_CONSTANTS) if name in call.attributes]
    if len(given) != 1:
        call.fail("Constant needs exactly one of value, value_float(s) and value_int(s)", "attributes")
    items = constant_items(call)
    dtype, many = _CONSTANTS.get(given[0], (call.attributes.get("dtype", "float32"), True))
    shape = call.attributes.get("shape", (len(items),) if many else ())
    out = TensorType(dtype, shape)
    for item in items:
        call.check_range(item, dtype, given[0])
    if min(shape, default=0) < 0 or out.size != len(items):
        call.fail(f"Constant: {len(items)} elements for shape {list(shape)}", "attributes", "shape")
    return [with_value(out, items)]


register(
    OpSchema(
        "Shape",
        "generators",
        (1, 1),
        _shape,
        attributes={"start": Attribute("int", 0), "end": Attribute("int")},
        data={"shape_only": frozenset({0})},
    ),
    OpSchema("Size", "generators", (1, 1), _size, data={"shape_only": frozenset({0})}),
    # ONNX's one-element tensor attribute is written as `value` and `dtype`.
    OpSchema(
        "ConstantOfShape",
        "generators",
        (1, 1),
        _constant_of_shape,
        dtypes=frozenset({"int64"}),
        attributes={"value": Attribute("number", 0), "dtype": Attribute("dtype", "float32")},
        host_inputs=frozenset({0}),
    ),
    OpSchema(
        "Range",
        "generators",
        (3, 3),
        _range,
        dtypes=frozenset({"float16", "bfloat16", "float32", "float64", "int16", "int32", "int64"}),
        attributes={"stash_type": Attribute("int", 1)},
        host_inputs=frozenset({0, 1, 2}),
    ),
    OpSchema(
        "EyeLike",
        "generators",
        (1, 1),
        _eye_like,
        dtypes=frozenset(DTYPES) - {"float8_e4m3fn", "float8_e5m2"},
        attributes={"dtype": Attribute("dtype"), "k": Attribute("int", 0)},
        data={"shape_only": frozenset({0})},
    ),
    # ONNX's tensor attribute is written as `value` (row-major), `shape` and `dtype`.
    OpSchema(
        "Constant",
        "generators",
        (0, 0),
        _constant,
        attributes={
            "value": Attribute("numbers"),
            "shape": Attribute("ints"),
            "dtype": Attribute("dtype"),
            "value_float": Attribute("float"),
            "value_floats": Attribute("floats"),
            "value_int": Attribute("int"),
            "value_ints": Attribute("ints"),
        },
    ),
)
