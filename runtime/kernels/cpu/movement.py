"""Movement operators in numpy: strided copies planned when the graph is lowered."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.movement import (
    AxisRange,
    pad_amounts,
    padded_axis,
    permutation,
    slice_ranges,
    split_offsets,
)
from kgrun.graphs.operators.shapes import axis_of
from kgrun.runtime.kernels.base import HostFunction, on_cpu

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def _slice(axis: AxisRange) -> slice:
    if axis.size == 0:
        return slice(0, 0)
    end = axis.start + axis.size * axis.step
    return slice(axis.start, None if end < 0 else end, axis.step)


def _required(array: Array | None) -> Array:
    assert array is not None
    return array


@on_cpu("Transpose")
def transpose(call: OpCall) -> HostFunction:
    """Axes reordered."""
    axes = permutation(call)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        np.copyto(outputs[0], _required(inputs[0]).transpose(axes))

    return run


@on_cpu("Concat")
def concat(call: OpCall) -> HostFunction:
    """Inputs side by side along an axis."""
    axis = call.axis(call.attributes["axis"], len(call.outputs[0].shape))
    starts = accumulate((call.input(index).shape[axis] for index in range(len(call.inputs))), initial=0)
    before = (slice(None),) * axis
    places = [(*before, slice(start, end)) for start, end in pairwise(starts)]

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        for place, source in zip(places, inputs, strict=True):
            np.copyto(outputs[0][place], _required(source))

    return run


@on_cpu("Slice")
def slice_(call: OpCall) -> HostFunction:
    """A strided part of input 0."""
    place = tuple(_slice(axis) for axis in slice_ranges(call))

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        np.copyto(outputs[0], _required(inputs[0])[place])

    return run


@on_cpu("Split")
def split(call: OpCall) -> HostFunction:
    """Consecutive parts along an axis."""
    axis, parts = split_offsets(call)
    places = [(*(slice(None),) * axis, _slice(part)) for part in parts]

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        source = _required(inputs[0])
        for place, target in zip(places, outputs, strict=True):
            np.copyto(target, source[place])

    return run


@on_cpu("Gather")
def gather(call: OpCall) -> HostFunction:
    """Slices along `axis` picked by indices, negative ones from the back; GraphError for one outside."""
    axis = axis_of(call)
    size = call.input(0).shape[axis]

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        source, indices = _required(inputs[0]), _required(inputs[1])
        wrong = indices[(indices < -size) | (indices >= size)]
        if wrong.size:
            message = f"{call.node}: Gather's index {wrong.flat[0]} is outside [-{size}, {size - 1}]"
            raise GraphError(message, code="KG333", help="check the indices, or the axis")
        if size:
            # In range by now; "wrap" counts from the back and lets numpy write without a buffer.
            np.take(source, indices, axis=axis, out=outputs[0], mode="wrap")

    return run


@on_cpu("Expand")
def expand(call: OpCall) -> HostFunction:
    """Input 0 broadcast."""

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        np.copyto(outputs[0], _required(inputs[0]))

    return run


@on_cpu("Tile")
def tile(call: OpCall) -> HostFunction:
    """Input 0 repeated along every axis."""
    shape = call.input(0).shape
    repeats = call.ints(1) or ()
    apart = tuple(size for pair in zip(repeats, shape, strict=True) for size in pair)
    single = tuple(size for length in shape for size in (1, length))

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        np.copyto(outputs[0].reshape(apart), _required(inputs[0]).reshape(single))

    return run


@on_cpu("Pad")
def pad(call: OpCall) -> HostFunction:
    """Elements added around input 0, or cropped where an amount is negative."""
    shape, amounts = call.input(0).shape, pad_amounts(call)
    if call.attributes["mode"] == "constant":
        return constant_pad(shape, amounts, call.attributes["value"])
    places = [_reflected(call.attributes["mode"], size, *amount) for size, amount in zip(shape, amounts, strict=True)]
    picked = [(axis, place) for axis, place in enumerate(places) if amounts[axis] != (0, 0)]

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        source = _required(inputs[0])
        for axis, place in picked:
            source = source.take(place, axis)
        np.copyto(outputs[0], source)

    return run


def constant_pad(shape: tuple[int, ...], amounts: Sequence[tuple[int, int]], default: float) -> HostFunction:
    """Input 0 of `shape` with `amounts` added on every axis, cropped where negative; input 2 or `default` around it."""
    rows = list(zip(shape, amounts, strict=True))
    source_place = tuple(slice(max(-before, 0), size - max(-after, 0)) for size, (before, after) in rows)
    target_place = tuple(slice(max(b, 0), max(b, 0) + max(size + min(b, 0) + min(a, 0), 0)) for size, (b, a) in rows)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        given = inputs[2] if len(inputs) > 2 else None
        outputs[0].fill(default if given is None else given.reshape(-1)[0])
        target, source = outputs[0], _required(inputs[0])
        if shape:  # an element of a 0-d array would be a number
            target, source = target[target_place], source[source_place]
        np.copyto(target, source)

    return run


def _reflected(mode: str, size: int, before: int, after: int) -> Array:
    """Source index of every padded index along one axis."""
    row = padded_axis(size, before, after)
    index = np.arange(-row.before, row.size + row.after)
    if mode == "edge":
        return row.start + np.clip(index, 0, row.size - 1)
    if mode == "wrap" or row.size < 2:
        return row.start + index % max(row.size, 1)
    # Reflection repeats with period 2 (size - 1): 0 1 … size-1 size-2 … 1.
    index = np.abs(index) % (2 * row.size - 2)
    return row.start + np.minimum(index, 2 * row.size - 2 - index)
