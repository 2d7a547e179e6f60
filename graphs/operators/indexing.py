"""Indexing: elements gathered from, or scattered to, places that an index tensor names; OneHot.

Negative indices count from the back. An index outside its axis is a fault of the run, except in OneHot, which then
marks nothing. Where a scatter names a place twice its `reduction` combines the updates; without one, any of them stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kgrun.graphs.dtypes import DTYPES, NUMBERS
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.known import values_of, with_value
from kgrun.graphs.operators.shapes import Shape, axis_of, needs_dtype, same_dtype, strides_of

_INDEX = frozenset({"int32", "int64"})


def one_hot_axis(call: OpCall) -> int:
    """The output axis that OneHot adds."""
    return call.axis(call.attributes["axis"], len(call.input(0).shape) + 1)


def _check_elements(call: OpCall) -> None:
    """Indices have data's rank, and reach no further than data beside `axis`."""
    needs_dtype(call, 1, _INDEX)
    data, indices, axis = call.input(0).shape, call.input(1).shape, axis_of(call)
    if len(indices) != len(data) or any(
        at != axis and size > own for at, (size, own) in enumerate(zip(indices, data, strict=True))
    ):
        call.fail(f"{call.op}: indices {list(indices)} do not fit data {list(data)} along axis {axis}", "inputs", 1)
    _check_known(call, (data[axis],))


def _check_known(call: OpCall, sizes: Sequence[int]) -> None:
    """InferenceError for a known index outside its axis; `sizes` repeat along the last axis of indices."""
    for position, index in enumerate(call.input(1).value or ()):
        size = sizes[position % len(sizes)]
        if not -size <= index < size:
            call.fail(f"{call.op}: index {index} is outside [-{size}, {size - 1}]", "inputs", 1)


def _gather_elements(call: OpCall) -> list[TensorType]:
    _check_elements(call)
    data, indices, axis = call.input(0), call.input(1), axis_of(call)
    out, values = TensorType(data.dtype, indices.shape), values_of(data, indices)
    if values is None:
        return [out]
    strides, own = strides_of(data.shape), strides_of(indices.shape)
    found = []
    for flat, index in enumerate(values[1]):
        place = int(index) % data.shape[axis] * strides[axis]
        for at, (step, stride) in enumerate(zip(own, strides, strict=True)):
            if at != axis:
                place += flat // step % indices.shape[at] * stride
        found.append(values[0][place])
    return [with_value(out, found)]


def nd_sizes(call: OpCall) -> tuple[int, Shape, int]:
    """Of a GatherND or ScatterND: batches, the data's axes that an index tuple names, and elements of a slice."""
    data, depth = call.input(0).shape, call.input(1).shape[-1]
    batch = call.attributes.get("batch_dims", 0)
    return prod(data[:batch]), data[batch : batch + depth], prod(data[batch + depth :])


def _slice_shape(call: OpCall) -> Shape:
    """The shape of the slice that one index tuple names."""
    needs_dtype(call, 1, ("int64",))
    data, indices = call.input(0).shape, call.input(1).shape
    batch = call.attributes.get("batch_dims", 0)
    if not indices or not data:
        call.fail(f"{call.op} takes no scalars", "inputs")
    if not 0 <= batch < min(len(data), len(indices)) or data[:batch] != indices[:batch]:
        call.fail(f"{call.op}: batch_dims {batch} for {list(data)} and {list(indices)}", "attributes", "batch_dims")
    if not 1 <= indices[-1] <= len(data) - batch:
        call.fail(f"{call.op}: index tuples of {indices[-1]} into {list(data[batch:])}", "inputs", 1)
    _check_known(call, data[batch : batch + indices[-1]])
    return data[batch + indices[-1] :]


def _gather_nd(call: OpCall) -> list[TensorType]:
    data, indices = call.input(0), call.input(1)
    out = TensorType(data.dtype, indices.shape[:-1] + _slice_shape(call))
    values = values_of(data, indices)
    if values is None:
        return [out]
    batches, axes, width = nd_sizes(call)
    steps = [prod(axes[at + 1 :]) * width for at in range(len(axes))]
    rows = prod(indices.shape[:-1])
    found: list[bool | int | float] = []
    for row in range(rows):
        place = row * batches // max(rows, 1) * prod(axes) * width
        tuple_ = values[1][row * len(axes) : (row + 1) * len(axes)]
        place += sum(int(i) % size * step for i, size, step in zip(tuple_, axes, steps, strict=True))
        found += values[0][place : place + width]
    return [with_value(out, found)]


def _scattered(call: OpCall, updates: Shape) -> list[TensorType]:
    dtype = same_dtype(call, 0, 2)
    if call.input(2).shape != updates:
        call.fail(f"{call.op}: updates {list(call.input(2).shape)}, {list(updates)} are needed", "inputs", 2)
    return [TensorType(dtype, call.input(0).shape)]


def _scatter_elements(call: OpCall) -> list[TensorType]:
    _check_elements(call)
    return _scattered(call, call.input(1).shape)


def _scatter_nd(call: OpCall) -> list[TensorType]:
    return _scattered(call, call.input(1).shape[:-1] + _slice_shape(call))


def _one_hot(call: OpCall) -> list[TensorType]:
    axis, indices, depth = one_hot_axis(call), call.input(0).shape, call.known(1)
    needs_dtype(call, 1, NUMBERS - {"bfloat16"})
    if len(depth) != 1 or not 0 <= depth[0] < 2**63:
        call.fail(f"OneHot: {list(depth)} is no depth", "inputs", 1)
    if call.input(2).shape != (2,):
        call.fail(f"OneHot: values are [off, on], got shape {list(call.input(2).shape)}", "inputs", 2)
    return [TensorType(call.input(2).dtype, (*indices[:axis], int(depth[0]), *indices[axis:]))]


_AXIS = Attribute("int", 0)
_REDUCTION = Attribute("string", "none", choices=("none", "add", "mul", "max", "min"))
register(
    OpSchema("GatherND", "indexing", (2, 2), _gather_nd, attributes={"batch_dims": Attribute("int", 0)}),
    OpSchema("GatherElements", "indexing", (2, 2), _gather_elements, attributes={"axis": _AXIS}),
    OpSchema(
        "ScatterElements",
        "indexing",
        (3, 3),
        _scatter_elements,
        attributes={"axis": _AXIS, "reduction": _REDUCTION},
        inplace=(0,),
    ),
    # The name of ScatterElements before opset 11.
    OpSchema(
        "Scatter",
        "indexing",
        (3, 3),
        _scatter_elements,
        dtypes=frozenset(DTYPES) - {"bfloat16"},
        attributes={"axis": _AXIS},
        inplace=(0,),
    ),
    OpSchema("ScatterND", "indexing", (3, 3), _scatter_nd, attributes={"reduction": _REDUCTION}, inplace=(0,)),
    OpSchema(
        "OneHot",
        "indexing",
        (3, 3),
        _one_hot,
        dtypes=NUMBERS - {"bfloat16"},
        attributes={"axis": Attribute("int", -1)},
        host_inputs=frozenset({1}),
    ),
)
