"""Generators in numpy: what they write is known when the graph is lowered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.generators import constant_items, range_terms, shape_bounds
from kgrun.runtime.kernels.base import HostFunction, on_cpu

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def _writes(value: Any) -> HostFunction:
    """A function that writes `value`, converted to the output's dtype and broadcast to its shape."""

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        with np.errstate(all="ignore"):
            np.copyto(outputs[0], value, casting="unsafe")

    return run


@on_cpu("Shape")
def shape(call: OpCall) -> HostFunction:
    """The dimensions of input 0 from `start` to `end`."""
    first, last = shape_bounds(call)
    return _writes(np.array(call.input(0).shape[first:last], np.int64))


@on_cpu("Size")
def size(call: OpCall) -> HostFunction:
    """The number of elements of input 0."""
    return _writes(np.int64(call.input(0).size))


@on_cpu("ConstantOfShape")
def constant_of_shape(call: OpCall) -> HostFunction:
    """One value everywhere."""
    return _writes(np.array(call.attributes["value"]))


@on_cpu("Range")
def range_(call: OpCall) -> HostFunction:
    """start + index · delta, computed in float32 for narrower floats."""
    start, delta, count = range_terms(call)
    dtype = call.outputs[0].dtype
    if DTYPES[dtype].kind == "float":
        work = np.dtype("float64" if dtype == "float64" else "float32")
        return _writes(np.arange(count, dtype=work) * work.type(delta) + work.type(start))
    return _writes(int(start) + np.arange(count, dtype=np.int64) * int(delta))


@on_cpu("EyeLike")
def eye_like(call: OpCall) -> HostFunction:
    """Ones on diagonal `k`, zeros elsewhere."""
    rows, columns = call.outputs[0].shape
    return _writes(np.eye(rows, columns, call.attributes["k"], dtype=np.bool_))


@on_cpu("Constant")
def constant(call: OpCall) -> HostFunction:
    """The attribute's elements."""
    items = constant_items(call)
    whole = DTYPES[call.outputs[0].dtype].kind != "float" and all(isinstance(item, int) for item in items)
    unsigned = whole and max(items, default=0) > np.iinfo(np.int64).max
    work = (np.uint64 if unsigned else np.int64) if whole else np.float64
    return _writes(np.array(items, work).reshape(call.outputs[0].shape))
