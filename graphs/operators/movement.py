"""Movement operators: elements copied to other places, none computed. The index arithmetic is shared by all devices."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod

from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.known import LIMIT, strided, values_of, with_value
from kgrun.graphs.operators.shapes import (
    Shape,
    axis_of,
    broadcast_shape,
    broadcast_strides,
    counted_axes,
    like,
    needs_dtype,
    same_dtype,
    strides_of,
)
from kgrun.graphs.records import dataclass

_INDEX = frozenset({"int32", "int64"})
_MANY = 2**31 - 1


@dataclass(frozen=True, slots=True)
class AxisRange:
    """The indices start, start + step, … of one axis, `size` of them."""

    start: int
    step: int
    size: int


def permutation(call: OpCall) -> tuple[int, ...]:
    """Transpose's axes: output axis i is input axis `permutation[i]`; reversed when not given."""
    rank = len(call.input(0).shape)
    perm = call.attributes.get("perm")
    if perm is None:
        return tuple(reversed(range(rank)))
    if sorted(perm) != list(range(rank)):
        call.fail(f"Transpose: perm {list(perm)} is no permutation of {rank} axes", "attributes", "perm")
    return tuple(perm)


def swaps_last_axes(call: OpCall) -> bool:
    """Whether a Transpose swaps its last two axes and leaves the others where they are."""
    perm = permutation(call)
    rank = len(perm)
    return rank > 1 and perm == (*range(rank - 2), rank - 1, rank - 2)


def _clamped(start: int, end: int, step: int, size: int) -> AxisRange:
    # Unlike Python's slices, which take nothing there, a backward slice from before the first element starts at it.
    first, last = (0, size) if step > 0 else (-1, size - 1)
    start, end = (min(max(at + size if at < 0 else at, first), last) for at in (start, end))
    if step < 0:
        start = max(start, min(0, last))
    return AxisRange(start, step, len(range(start, end, step)))


def slice_ranges(call: OpCall) -> tuple[AxisRange, ...]:
    """Slice's range of every axis, clamped as ONNX says."""
    shape = call.input(0).shape
    starts, ends = call.ints(1, "starts"), call.ints(2, "ends")
    if starts is None or ends is None:
        call.fail("Slice needs starts and ends", "inputs")
    axes = call.ints(3, "axes")
    axes = counted_axes(call, range(len(starts)) if axes is None else axes, len(shape), 3)
    steps = call.ints(4) or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        call.fail("Slice: starts, ends, axes and steps differ in length", "inputs")
    ranges = [AxisRange(0, 1, size) for size in shape]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        if step == 0:
            call.fail("Slice: a step is 0", "inputs", 4)
        ranges[axis] = _clamped(start, end, step, shape[axis])
    return tuple(ranges)


def split_offsets(call: OpCall) -> tuple[int, tuple[AxisRange, ...]]:
    """Split's axis, and the range of it that each output gets."""
    axis = axis_of(call)
    size = call.input(0).shape[axis]
    sizes = call.ints(1, "split")
    count = call.attributes.get("num_outputs", call.output_count)
    if sizes is None:
        if count < 1:
            call.fail(f"Split: {count} parts", "attributes", "num_outputs")
        each = -(-size // count)
        sizes = tuple(min(each, max(size - each * index, 0)) for index in range(count))
    if len(sizes) != call.output_count:
        call.fail(f"Split: {len(sizes)} parts for {call.output_count} outputs", "outputs")
    if sum(sizes) != size or min(sizes) < 0:
        call.fail(f"Split: parts {list(sizes)} do not add up to {size}", "inputs", 1)
    starts = accumulate(sizes, initial=0)
    return axis, tuple(AxisRange(start, 1, part) for start, part in zip(starts, sizes, strict=False))


def pad_amounts(call: OpCall) -> tuple[tuple[int, int], ...]:
    """Pad's elements before and after on every axis; negative ones crop."""
    rank = len(call.input(0).shape)
    pads, axes = call.ints(1, "pads"), call.ints(3)
    if pads is None:
        call.fail("Pad needs pads", "inputs", 1)
    axes = counted_axes(call, range(rank) if axes is None else axes, rank, 3)
    if len(pads) != 2 * len(axes):
        call.fail(f"Pad: {len(pads)} pads for {len(axes)} axes, twice as many are needed", "inputs", 1)
    amounts = [(0, 0)] * rank
    for index, axis in enumerate(axes):
        amounts[axis] = (pads[index], pads[index + len(axes)])
    return tuple(amounts)


@dataclass(frozen=True, slots=True)
class PaddedAxis:
    """One axis of a Pad that repeats elements: it is cropped first, then `before` and `after` are added.

    Attributes:
        start, size: what is left of the axis by cropping, which alone is repeated.
    """

    start: int
    size: int
    before: int
    after: int


def padded_axis(size: int, before: int, after: int) -> PaddedAxis:
    """An axis of `size` with amounts as Pad has them, negative where it crops."""
    start = max(-before, 0)
    return PaddedAxis(start, size - start - max(-after, 0), max(before, 0), max(after, 0))


def _transpose(call: OpCall) -> list[TensorType]:
    source, perm = call.input(0), permutation(call)
    shape = tuple(source.shape[axis] for axis in perm)
    values = values_of(source)
    strides = strides_of(source.shape)
    moved = strided(values[0], shape, tuple(strides[axis] for axis in perm)) if values else None
    return [with_value(TensorType(source.dtype, shape), moved)]


def _concat(call: OpCall) -> list[TensorType]:
    dtype = same_dtype(call, *range(len(call.inputs)))
    types = [call.input(index) for index in range(len(call.inputs))]
    first = types[0].shape
    axis = call.axis(call.attributes["axis"], len(first))
    for index, type_ in enumerate(types):
        if len(type_.shape) != len(first) or any(
            a != b for at, (a, b) in enumerate(zip(type_.shape, first, strict=True)) if at != axis
        ):
            call.fail(f"Concat: {list(type_.shape)} and {list(first)} differ beside axis {axis}", "inputs", index)
    shape = (*first[:axis], sum(type_.shape[axis] for type_ in types), *first[axis + 1 :])
    values = values_of(*types)
    joined = None
    if values is not None:
        inner = [prod(type_.shape[axis:]) for type_ in types]
        joined = [
            item
            for outer in range(prod(first[:axis]))
            for value, width in zip(values, inner, strict=True)
            for item in value[outer * width : (outer + 1) * width]
        ]
    return [with_value(TensorType(dtype, shape), joined)]


def _ranged(source: TensorType, ranges: Sequence[AxisRange]) -> TensorType:
    shape = tuple(axis.size for axis in ranges)
    values, strides = values_of(source), strides_of(source.shape)
    if values is None or 0 in shape:
        return with_value(TensorType(source.dtype, shape), () if 0 in shape and values is not None else None)
    steps = tuple(axis.step * stride for axis, stride in zip(ranges, strides, strict=True))
    offset = sum(axis.start * stride for axis, stride in zip(ranges, strides, strict=True))
    return with_value(TensorType(source.dtype, shape), strided(values[0], shape, steps, offset))


def _slice(call: OpCall) -> list[TensorType]:
    for index in range(1, 5):
        needs_dtype(call, index, _INDEX)
    return [_ranged(call.input(0), slice_ranges(call))]


def _split(call: OpCall) -> list[TensorType]:
    axis, parts = split_offsets(call)
    whole = [AxisRange(0, 1, size) for size in call.input(0).shape]
    return [_ranged(call.input(0), [*whole[:axis], part, *whole[axis + 1 :]]) for part in parts]


def _gather(call: OpCall) -> list[TensorType]:
    needs_dtype(call, 1, _INDEX)
    data, indices = call.input(0), call.input(1)
    axis = call.axis(call.attributes["axis"], len(data.shape))
    shape = data.shape[:axis] + indices.shape + data.shape[axis + 1 :]
    out, size = TensorType(data.dtype, shape), data.shape[axis]
    for index in indices.value or ():
        if not -size <= index < size:
            call.fail(f"Gather: index {index} is outside [-{size}, {size - 1}]", "inputs", 1)
    values = values_of(data, indices)
    if values is None or out.size > LIMIT:
        return [out]
    inner = prod(data.shape[axis + 1 :])
    places = [(int(index) % size) * inner for index in values[1]]
    gathered = [
        item
        for outer in range(prod(data.shape[:axis]))
        for place in places
        for item in values[0][outer * size * inner + place : outer * size * inner + place + inner]
    ]
    return [with_value(out, gathered)]


def _expand(call: OpCall) -> list[TensorType]:
    source, target = call.input(0), call.ints(1)
    if target is None or min(target, default=0) < 0:
        call.fail(f"Expand: {target and list(target)} is no shape", "inputs", 1)
    shape = broadcast_shape(call, [source.shape, target])
    values = values_of(source)
    out = TensorType(source.dtype, shape)
    if values is None or out.size > LIMIT:
        return [out]
    return [with_value(out, strided(values[0], shape, broadcast_strides(source.shape, shape)))]


def _tile(call: OpCall) -> list[TensorType]:
    source, repeats = call.input(0), call.ints(1)
    if repeats is None or len(repeats) != len(source.shape) or min(repeats, default=0) < 0:
        call.fail(f"Tile: repeats {repeats and list(repeats)} do not fit {list(source.shape)}", "inputs", 1)
    return [like(source, tuple(size * times for size, times in zip(source.shape, repeats, strict=True)))]


def _pad(call: OpCall) -> list[TensorType]:
    source = call.input(0)
    same_dtype(call, 0, 2)
    needs_dtype(call, 3, _INDEX)
    fill = call.optional(2)
    if fill is not None and fill.size != 1:
        call.fail("Pad: constant_value is one number", "inputs", 2)
    call.check_range(call.attributes["value"], source.dtype, "value")
    shape: list[int] = []
    for size, (before, after) in zip(source.shape, pad_amounts(call), strict=True):
        padded = size + before + after
        if padded < 0:
            call.fail(f"Pad: cropping {-before} and {-after} of {size} leaves nothing", "inputs", 1)
        reach, left = max(before, after), padded_axis(size, before, after).size
        if call.attributes["mode"] == "reflect" and reach > 0 and left < 2:
            call.fail(f"Pad: reflection needs at least 2 elements, the axis has {max(left, 0)}", "inputs", 1)
        if call.attributes["mode"] in ("edge", "wrap") and reach > 0 and left <= 0:
            call.fail(f"Pad: {call.attributes['mode']} of an empty axis", "inputs", 1)
        shape.append(padded)
    return [like(source, Shape(shape))]


def _keeps_order(call: OpCall) -> bool:
    """Whether a Transpose moves only axes of one element: the bytes stay in their order."""
    shape = call.input(0).shape
    moved = [axis for axis in permutation(call) if shape[axis] != 1]
    return moved == sorted(moved)


def _alone(call: OpCall) -> bool:
    return len(call.inputs) == 1


def _takes_all(call: OpCall) -> bool:
    """Whether a Slice takes every element, in order."""
    shape = call.input(0).shape
    return all(r.size == size and (size < 2 or r.step == 1) for r, size in zip(slice_ranges(call), shape, strict=True))


def _adds_none(call: OpCall) -> bool:
    """Whether the output has no more elements than the input: nothing is repeated, or parted."""
    return call.outputs[0].size == call.input(0).size


def _pads_none(call: OpCall) -> bool:
    return not any(before or after for before, after in pad_amounts(call))


register(
    OpSchema("Transpose", "movement", (1, 1), _transpose, attributes={"perm": Attribute("ints")}, view=_keeps_order),
    OpSchema(
        "Concat", "movement", (1, _MANY), _concat, attributes={"axis": Attribute("int", required=True)}, view=_alone
    ),
    OpSchema(
        "Slice",
        "movement",
        (1, 5),
        _slice,
        attributes={name: Attribute("ints") for name in ("starts", "ends", "axes")},
        host_inputs=frozenset({1, 2, 3, 4}),
        view=_takes_all,
    ),
    OpSchema(
        "Split",
        "movement",
        (1, 2),
        _split,
        outputs=(1, _MANY),
        attributes={"axis": Attribute("int", 0), "num_outputs": Attribute("int"), "split": Attribute("ints")},
        host_inputs=frozenset({1}),
        view=_adds_none,
    ),
    OpSchema("Gather", "movement", (2, 2), _gather, attributes={"axis": Attribute("int", 0)}),
    OpSchema("Expand", "movement", (2, 2), _expand, host_inputs=frozenset({1}), view=_adds_none),
    OpSchema("Tile", "movement", (2, 2), _tile, host_inputs=frozenset({1}), view=_adds_none),
    OpSchema(
        "Pad",
        "movement",
        (1, 4),
        _pad,
        attributes={
            "mode": Attribute("string", "constant", choices=("constant", "reflect", "edge", "wrap")),
            "pads": Attribute("ints"),
            "value": Attribute("float", 0.0),
        },
        host_inputs=frozenset({1, 3}),
        view=_pads_none,
    ),
)
