"""Shape and dtype rules that several operator families share: broadcasting, axes, strides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from kgrun.graphs.operators.base import OpCall, TensorType

Shape = tuple[int, ...]


def broadcast_shape(call: OpCall, shapes: Sequence[Shape]) -> Shape:
    """The shape all `shapes` broadcast to (numpy's rule: aligned at the last axis, 1 stretches)."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, start=rank - len(shape)):
            if size != 1 and result[axis] not in (1, size):
                listed = " and ".join(str(list(s)) for s in shapes)
                call.fail(f"{call.op}: shapes {listed} do not broadcast", "inputs")
            result[axis] = size if result[axis] == 1 else result[axis]
    return tuple(result)


def same_dtype(call: OpCall, *positions: int) -> str:
    """The dtype of the first of `positions`; InferenceError when a later one that is there differs."""
    first = call.input(positions[0]).dtype
    for position in positions[1:]:
        other = call.optional(position)
        if other is not None and other.dtype != first:
            call.fail(f"{call.op}: input {position} is {other.dtype}, {first} is needed", "inputs", position)
    return first


def needs_dtype(call: OpCall, position: int, allowed: Iterable[str]) -> None:
    """InferenceError when input `position` is there and its dtype is not among `allowed`."""
    found = call.optional(position)
    if found is not None and found.dtype not in allowed:
        names = ", ".join(sorted(allowed))
        call.fail(f"{call.op}: input {position} is {found.dtype}, allowed are {names}", "inputs", position)


def axis_of(call: OpCall) -> int:
    """Attribute `axis`, of input 0, counted from the front; InferenceError where it is outside the rank."""
    return call.axis(call.attributes["axis"], len(call.input(0).shape))


def counted_axes(call: OpCall, axes: Iterable[int], rank: int, position: int = 1) -> tuple[int, ...]:
    """`axes` counted from the front, in their order; InferenceError for one outside the rank or named twice.

    `position` is the input that newer opsets give them in.
    """
    path = ("attributes", "axes") if call.optional(position) is None else ("inputs", position)
    given = tuple(axes)
    for axis in given:
        if not -rank <= axis < rank:
            call.fail(f"{call.op}: axis {axis} is outside [-{rank}, {rank - 1}]", *path)
    counted = tuple(axis + rank if axis < 0 else axis for axis in given)
    if len(set(counted)) != len(counted):
        call.fail(f"{call.op}: axes {list(given)} name an axis twice", *path)
    return counted


def strides_of(shape: Shape) -> Shape:
    """Row-major strides in elements."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def broadcast_strides(shape: Shape, target: Shape) -> Shape:
    """Strides in elements that read `shape` as if it were `target`: 0 along every stretched axis."""
    own = [0 if size == 1 else stride for size, stride in zip(shape, strides_of(shape), strict=True)]
    return (0,) * (len(target) - len(shape)) + tuple(own)


def like(type_: TensorType, shape: Shape | None = None, dtype: str | None = None) -> TensorType:
    """`type_` with another shape or dtype, its value forgotten."""
    return TensorType(dtype or type_.dtype, type_.shape if shape is None else shape)
