"""Selection: operators whose output shapes depend on their inputs' elements.

Where these elements are known, inference gives the exact result, and the node runs nothing; a Compress whose condition
alone is known runs with a known shape. Otherwise the shapes given are upper bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress, product
from math import prod

from kgrun.graphs.operators.base import Attribute, Constant, OpCall, OpSchema, Scalar, TensorType, register
from kgrun.graphs.operators.known import strided, values_of, with_value
from kgrun.graphs.operators.shapes import Shape, needs_dtype, strides_of


def selection_axis(call: OpCall) -> int | None:
    """`axis` of a Compress or Unique counted from the front; None: over the flattened input."""
    axis = call.attributes.get("axis")
    return None if axis is None else call.axis(axis, len(call.input(0).shape))


def _non_zero(call: OpCall) -> list[TensorType]:
    source = call.input(0)
    rank, values = len(source.shape), values_of(source)
    if values is None:
        call.exact = source.size == 0
        return [TensorType("int64", (rank, source.size))]
    places = list(compress(product(*map(range, source.shape)), values[0]))
    columns = [place[axis] for axis in range(rank) for place in places]
    return [with_value(TensorType("int64", (rank, len(places))), columns)]


def kept_places(call: OpCall) -> tuple[int, ...] | None:
    """The indices along the axis that a Compress keeps; None where the condition is not known."""
    condition = call.input(1).value
    return None if condition is None else tuple(index for index, keep in enumerate(condition) if keep)


def _compress(call: OpCall) -> list[TensorType]:
    source, condition = call.input(0), call.input(1)
    needs_dtype(call, 1, ("bool",))
    axis = selection_axis(call)
    shape, along = (source.shape, axis) if axis is not None else ((source.size,), 0)
    if len(condition.shape) != 1 or condition.size > shape[along]:
        call.fail(f"Compress: a condition of shape {list(condition.shape)} for {shape[along]} elements", "inputs", 1)
    kept = kept_places(call)
    if kept is None:
        call.exact = condition.size == 0
        return [_resized(source, shape, along, condition.size)]
    out = _resized(source, shape, along, len(kept))
    values = values_of(source)
    return [with_value(out, _picked(values[0], shape, along, kept)) if values else out]


def _resized(source: TensorType, shape: Shape, axis: int, size: int) -> TensorType:
    return TensorType(source.dtype, (*shape[:axis], size, *shape[axis + 1 :]))


def _picked(value: Constant, shape: Shape, axis: int, indices: Sequence[int]) -> Constant:
    """`value` of `shape` with only the slices at `indices` of an axis."""
    strides = strides_of(shape)
    outer, inner = shape[:axis], shape[axis + 1 :]
    slices = [strided(value, outer + inner, strides[:axis] + strides[axis + 1 :], at * strides[axis]) for at in indices]
    width = prod(inner)
    return tuple(
        item for row in range(prod(outer)) for part in slices for item in part[row * width : (row + 1) * width]
    )


def _unique(call: OpCall) -> list[TensorType]:
    source, axis = call.input(0), selection_axis(call)
    shape, along = (source.shape, axis) if axis is not None else ((source.size,), 0)
    count, values = shape[along], values_of(source)
    if values is None or (0 in shape and count):
        call.exact = 0 in shape and count == 0
        found = [_resized(source, shape, along, count), *[TensorType("int64", (count,))] * 3]
        return found[: call.output_count]
    rows = [_picked(values[0], shape, along, (index,)) for index in range(count)]
    first: dict[tuple[Scalar, ...], int] = {}
    for index, row in enumerate(rows):
        first.setdefault(row, index)
    order = sorted(first) if call.attributes["sorted"] else list(first)
    rank_of = {row: rank for rank, row in enumerate(order)}
    inverse = [rank_of[row] for row in rows]
    firsts = [first[row] for row in order]
    results = [
        with_value(_resized(source, shape, along, len(order)), _picked(values[0], shape, along, firsts)),
        with_value(TensorType("int64", (len(order),)), firsts),
        with_value(TensorType("int64", (count,)), inverse),
        with_value(TensorType("int64", (len(order),)), [inverse.count(rank) for rank in range(len(order))]),
    ]
    return results[: call.output_count]


def _non_max_suppression(call: OpCall) -> list[TensorType]:
    boxes, scores = call.input(0), call.input(1)
    for index, dtype in ((1, "float32"), (2, "int64"), (3, "float32"), (4, "float32")):
        needs_dtype(call, index, (dtype,))
        found = call.optional(index)
        if index > 1 and found is not None and found.size > 1:
            call.fail(f"NonMaxSuppression: input {index} is one number", "inputs", index)
    fits = len(boxes.shape) == 3 and boxes.shape[2] == 4 and len(scores.shape) == 3
    if not fits or (boxes.shape[0], boxes.shape[1]) != (scores.shape[0], scores.shape[2]):
        call.fail(
            "NonMaxSuppression takes boxes [batch, boxes, 4] and scores [batch, classes, boxes], "
            f"got {list(boxes.shape)} and {list(scores.shape)}",
            "inputs",
        )
    most, limit = boxes.shape[1], call.optional(2)
    if limit is None or limit.size == 0:
        most = 0
    elif limit.value is not None:
        most = min(most, max(int(limit.value[0]), 0))
    out = TensorType("int64", (scores.shape[0] * scores.shape[1] * most, 3))
    call.exact = out.size == 0
    return [with_value(out, () if call.exact else None)]


register(
    OpSchema("NonZero", "selection", (1, 1), _non_zero, dynamic=True),
    OpSchema("Compress", "selection", (2, 2), _compress, attributes={"axis": Attribute("int")}, dynamic=True),
    OpSchema(
        "Unique",
        "selection",
        (1, 1),
        _unique,
        outputs=(1, 4),
        attributes={"axis": Attribute("int"), "sorted": Attribute("int", 1)},
        dynamic=True,
    ),
    OpSchema(
        "NonMaxSuppression",
        "selection",
        (2, 5),
        _non_max_suppression,
        dtypes=frozenset({"float32"}),
        attributes={"center_point_box": Attribute("int", 0)},
        dynamic=True,
    ),
)
