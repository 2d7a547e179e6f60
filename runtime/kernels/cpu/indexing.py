"""Indexing in numpy: fancy indexing over whole index tensors; reductions of float16 and bfloat16 in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.indexing import one_hot_axis
from kgrun.graphs.operators.scalar_code import compute_dtype
from kgrun.graphs.operators.shapes import axis_of, strides_of
from kgrun.runtime.kernels.base import HostFunction, on_cpu

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_REDUCTIONS: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _required(array: Array | None) -> Array:
    assert array is not None
    return array


def _counted(call: OpCall, indices: Array, size: int) -> Array:
    """Indices counted from the front; GraphError for one outside the axis."""
    if not indices.size:
        return indices
    low, high = indices.min(), indices.max()
    if low < -size or high >= size:
        message = f"{call.node}: {call.op}'s index {low if low < -size else high} is outside [-{size}, {size - 1}]"
        raise GraphError(message, code="KG333", help="check the indices, or the axis")
    return indices if low >= 0 else np.where(indices < 0, indices + size, indices)


def _element_places(call: OpCall, indices: Array) -> tuple[Array, ...]:
    """The coordinates in data that every element of `indices` stands for."""
    axis = axis_of(call)
    own = list(np.ix_(*(np.arange(size) for size in indices.shape))) if indices.size else [indices] * indices.ndim
    own[axis] = _counted(call, indices, call.input(0).shape[axis])
    return tuple(own)


def _slice_places(call: OpCall, indices: Array) -> tuple[Array, ...]:
    """The coordinates of the slices that the index tuples name, batch axes first."""
    batch = call.attributes.get("batch_dims", 0)
    shape = call.input(0).shape[batch:]
    lead = indices.shape[:-1]
    axes = [np.arange(size).reshape((-1,) + (1,) * (len(lead) - at - 1)) for at, size in enumerate(lead[:batch])]
    return (*axes, *(_counted(call, indices[..., at], shape[at]) for at in range(indices.shape[-1])))


@on_cpu("GatherElements")
def gather_elements(call: OpCall) -> HostFunction:
    """The element of every line along `axis` that the index at the same place names."""
    axis, strides = axis_of(call), strides_of(call.input(0).shape)
    lines = tuple(1 if at == axis else size for at, size in enumerate(call.input(1).shape))
    starts = np.zeros(lines, np.intp)
    for at, size in enumerate(lines):
        starts += (np.arange(size) * (strides[at] if at != axis else 0)).reshape((-1,) + (1,) * (len(lines) - at - 1))

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        indices = _counted(call, _required(inputs[1]), call.input(0).shape[axis])
        if indices.size:
            places = indices * strides[axis] + starts
            np.take(_required(inputs[0]).reshape(-1), places, out=outputs[0], mode="wrap")

    return run


@on_cpu("GatherND")
def gather_nd(call: OpCall) -> HostFunction:
    """The slices that index tuples name."""

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        np.copyto(outputs[0], _required(inputs[0])[_slice_places(call, _required(inputs[1]))])

    return run


@on_cpu("ScatterElements", "Scatter", "ScatterND")
def scatter(call: OpCall) -> HostFunction:
    """A copy of data (or its own memory) with updates written, or combined with what is there."""
    places = _slice_places if call.op == "ScatterND" else _element_places
    combine = _REDUCTIONS.get(call.attributes.get("reduction", "none"))
    narrow = combine is not None and compute_dtype(call.input(0).dtype) != call.input(0).dtype

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        data, indices, updates, out = _required(inputs[0]), _required(inputs[1]), _required(inputs[2]), outputs[0]
        found = places(call, indices)
        work = data.astype(np.float32) if narrow else out
        if not narrow:
            np.copyto(out, data)
        if indices.size and combine is None:
            work[found] = updates
        elif indices.size and combine is not None:
            combine.at(work, found, updates.astype(work.dtype, copy=False))
        if narrow:
            np.copyto(out, work, casting="unsafe")

    return run


@on_cpu("OneHot")
def one_hot(call: OpCall) -> HostFunction:
    """values[1] where the index along `axis` is the one given, values[0] elsewhere."""
    axis = one_hot_axis(call)
    depth = call.outputs[0].shape[axis]
    classes = np.arange(depth).reshape((-1,) + (1,) * (len(call.outputs[0].shape) - axis - 1))

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        indices = _required(inputs[0]).astype(np.int64)
        indices = np.where(indices < 0, indices + depth, indices)
        off, on = _required(inputs[2])
        np.copyto(outputs[0], np.where(np.expand_dims(indices, axis) == classes, on, off))

    return run
