"""View operators: another shape over the same bytes, so no kernel and no memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kgrun.graphs.dtypes import FLOATS, itemsize
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.known import with_value
from kgrun.graphs.operators.shapes import Shape, counted_axes, needs_dtype


def _viewed(call: OpCall, shape: Shape) -> list[TensorType]:
    source = call.input(0)
    return [with_value(TensorType(source.dtype, shape), source.value)]


def _identity(call: OpCall) -> list[TensorType]:
    return _viewed(call, call.input(0).shape)


def _bit_cast(call: OpCall) -> list[TensorType]:
    source, to = call.input(0), call.attributes["to"]
    if itemsize(to) != itemsize(source.dtype):
        call.fail(f"BitCast: {source.dtype} and {to} differ in width", "attributes", "to")
    return [TensorType(to, source.shape)]


def _reshape(call: OpCall) -> list[TensorType]:
    source, wanted = call.input(0), call.ints(1, "shape")
    if wanted is None:
        call.fail("Reshape needs the new shape", "inputs", 1)
    return _viewed(call, _resolved(call, source, wanted))


def _resolved(call: OpCall, source: TensorType, wanted: Sequence[int]) -> Shape:
    """`wanted` with 0 (copy that dimension, unless allowzero) and -1 (what is left) filled in."""
    sizes = list(wanted)
    for axis, size in enumerate(wanted):
        if size < -1:
            call.fail(f"Reshape: dimension {size} in {list(wanted)}", "inputs", 1)
        if size == 0 and not call.attributes["allowzero"]:
            if axis >= len(source.shape):
                call.fail(
                    f"Reshape: dimension {axis} of {list(source.shape)} is to be copied but is not there", "inputs", 1
                )
            sizes[axis] = source.shape[axis]
    fixed = prod(size for size in sizes if size != -1)
    if sizes.count(-1) > 1:
        call.fail(f"Reshape: only one dimension of {list(wanted)} may be -1", "inputs", 1)
    if -1 in sizes and fixed and source.size % fixed == 0:
        sizes[sizes.index(-1)] = source.size // fixed
    if -1 in sizes or prod(sizes) != source.size:
        call.fail(f"Reshape: {list(source.shape)} has {source.size} elements, {list(wanted)} does not fit", "inputs", 1)
    return tuple(sizes)


def _flatten(call: OpCall) -> list[TensorType]:
    shape = call.input(0).shape
    axis = call.attributes["axis"]
    if not -len(shape) <= axis <= len(shape):
        call.fail(f"axis {axis} is outside [-{len(shape)}, {len(shape)}]", "attributes", "axis")
    axis += len(shape) if axis < 0 else 0
    return _viewed(call, (prod(shape[:axis]), prod(shape[axis:])))


def _squeeze(call: OpCall) -> list[TensorType]:
    shape = call.input(0).shape
    given = call.ints(1, "axes")
    if given is None:
        axes: Sequence[int] = [axis for axis, size in enumerate(shape) if size == 1]
    else:
        axes = counted_axes(call, given, len(shape))
    for axis in axes:
        if shape[axis] != 1:
            call.fail(f"Squeeze: axis {axis} of {list(shape)} has size {shape[axis]}, not 1", "inputs", 0)
    return _viewed(call, tuple(size for axis, size in enumerate(shape) if axis not in axes))


def _unsqueeze(call: OpCall) -> list[TensorType]:
    given = call.ints(1, "axes")
    if given is None:
        call.fail("Unsqueeze needs axes", "inputs", 1)
    rank = len(call.input(0).shape) + len(given)
    axes = counted_axes(call, given, rank)
    rest = iter(call.input(0).shape)
    return _viewed(call, tuple(1 if axis in axes else next(rest) for axis in range(rank)))


def _dropout(call: OpCall) -> list[TensorType]:
    training = call.optional(2)
    needs_dtype(call, 1, FLOATS)
    needs_dtype(call, 2, ("bool",))
    if training is not None and (training.value is None or training.value[0]):
        call.fail(
            "Dropout runs in inference only", "inputs", 2, help="leave training_mode out, or give a constant false"
        )
    mask = TensorType("bool", call.input(0).shape)
    return [*_viewed(call, call.input(0).shape), mask][: call.output_count]


register(
    OpSchema("Identity", "views", (1, 1), _identity, alias=0, inplace=(0,)),
    OpSchema(
        "Reshape",
        "views",
        (1, 2),
        _reshape,
        attributes={"allowzero": Attribute("int", 0), "shape": Attribute("ints")},
        host_inputs=frozenset({1}),
        alias=0,
        inplace=(0,),
    ),
    OpSchema("Flatten", "views", (1, 1), _flatten, attributes={"axis": Attribute("int", 1)}, alias=0, inplace=(0,)),
    OpSchema(
        "Squeeze",
        "views",
        (1, 2),
        _squeeze,
        attributes={"axes": Attribute("ints")},
        host_inputs=frozenset({1}),
        alias=0,
        inplace=(0,),
    ),
    OpSchema(
        "Unsqueeze",
        "views",
        (1, 2),
        _unsqueeze,
        attributes={"axes": Attribute("ints")},
        host_inputs=frozenset({1}),
        alias=0,
        inplace=(0,),
    ),
    OpSchema("BitCast", "views", (1, 1), _bit_cast, attributes={"to": Attribute("dtype", required=True)}, alias=0),
    # Output 0 is a view; the mask, when it is asked for, is a kernel's work.
    OpSchema(
        "Dropout",
        "views",
        (1, 3),
        _dropout,
        outputs=(1, 2),
        dtypes=FLOATS,
        attributes={"seed": Attribute("int"), "ratio": Attribute("float")},
        host_inputs=frozenset({1, 2}),
        alias=0,
        inplace=(0,),
    ),
)
