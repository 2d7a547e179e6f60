"""Reductions and row-wise operators in numpy; float16 and bfloat16 are accumulated in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.reduction import reduced_axes
from kgrun.graphs.operators.scalar_code import compute_dtype
from kgrun.graphs.operators.shapes import axis_of
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.common import widened

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

Axes = tuple[int, ...]


def _sum(x: Array, axes: Axes) -> Array:
    return np.asarray(np.add.reduce(x, axes, dtype=x.dtype, keepdims=True))


def _mean(x: Array, axes: Axes) -> Array:
    count = prod(x.shape[axis] for axis in axes)
    total = _sum(x, axes)
    if x.dtype.kind == "f":
        np.divide(total, count, out=total)
        return total
    # Integers round toward zero, as the integer division of a C kernel does.
    quotient: Array = np.abs(total) // np.asarray(max(count, 1), x.dtype)
    return np.where(total < 0, np.negative(quotient), quotient)


def _extreme(function: np.ufunc, least: bool) -> Callable[[Array, Axes], Array]:
    """The largest or smallest element; of none, the dtype's other end."""

    def apply(x: Array, axes: Axes) -> Array:
        if x.dtype.kind == "f":
            start: Any = np.inf if least else -np.inf
        elif x.dtype.kind == "b":
            start = least
        else:
            start = np.iinfo(x.dtype).max if least else np.iinfo(x.dtype).min
        return np.asarray(function.reduce(x, axes, keepdims=True, initial=start))

    return apply


def _log_sum_exp(x: Array, axes: Axes) -> Array:
    largest = _extreme(np.maximum, False)(x, axes)
    largest = np.where(np.isfinite(largest), largest, x.dtype.type(0))
    return np.log(_sum(np.exp(x - largest), axes)) + largest


def _root_of_squares(x: Array, axes: Axes) -> Array:
    total = _sum(x * x, axes)
    return np.sqrt(total) if x.dtype.kind == "f" else np.sqrt(total.astype(np.float64))


_REDUCTIONS: dict[str, Callable[[Array, Axes], Array]] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceProd": lambda x, axes: np.multiply.reduce(x, axes, dtype=x.dtype, keepdims=True),
    "ReduceMax": _extreme(np.maximum, False),
    "ReduceMin": _extreme(np.minimum, True),
    "ReduceL1": lambda x, axes: _sum(np.abs(x), axes),
    "ReduceL2": _root_of_squares,
    "ReduceSumSquare": lambda x, axes: _sum(x * x, axes),
    "ReduceLogSum": lambda x, axes: np.log(_sum(x, axes)),
    "ReduceLogSumExp": _log_sum_exp,
}


@on_cpu(*_REDUCTIONS)
def reduce(call: OpCall) -> HostFunction:
    """Any operator of _REDUCTIONS."""
    function, axes, shape = _REDUCTIONS[call.op], reduced_axes(call), call.outputs[0].shape

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x = widened(inputs[0])
        with np.errstate(all="ignore"):
            np.copyto(outputs[0], np.asarray(function(x, axes)).reshape(shape), casting="unsafe")

    return run


@on_cpu("ArgMax", "ArgMin")
def arg_extreme(call: OpCall) -> HostFunction:
    """Index of the largest or smallest element along an axis, the first or the last of equal ones."""
    axis, last = axis_of(call), bool(call.attributes["select_last_index"])
    find = np.argmax if call.op == "ArgMax" else np.argmin
    shape, size = call.outputs[0].shape, call.input(0).shape[axis_of(call)]

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x = widened(inputs[0])
        found = find(np.flip(x, axis), axis) if last else find(x, axis)
        np.copyto(outputs[0], (size - 1 - found if last else found).reshape(shape))

    return run


def _softmax(x: Array, axis: int, out: Array) -> None:
    np.subtract(x, np.maximum.reduce(x, axis, keepdims=True), out=out)
    np.exp(out, out=out)
    np.divide(out, np.add.reduce(out, axis, keepdims=True), out=out)


def _log_softmax(x: Array, axis: int, out: Array) -> None:
    np.subtract(x, np.maximum.reduce(x, axis, keepdims=True), out=out)
    np.subtract(out, np.log(np.add.reduce(np.exp(out), axis, keepdims=True)), out=out)


def _hardmax(x: Array, axis: int, out: Array) -> None:
    first = np.expand_dims(np.argmax(x, axis), axis)
    out.fill(0)
    np.put_along_axis(out, first, 1, axis)


@on_cpu("Softmax", "LogSoftmax", "Hardmax")
def row_wise(call: OpCall) -> HostFunction:
    """A function of each row along `axis`, the largest element subtracted first."""
    function = {"Softmax": _softmax, "LogSoftmax": _log_softmax, "Hardmax": _hardmax}[call.op]
    axis = axis_of(call)
    empty = call.input(0).size == 0
    narrow = compute_dtype(call.input(0).dtype) != call.input(0).dtype

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        if empty:
            return
        x = widened(inputs[0])
        with np.errstate(all="ignore"):
            function(x, axis, x if narrow else outputs[0])
        if narrow:
            np.copyto(outputs[0], x, casting="unsafe")

    return run


@on_cpu("LayerNormalization")
def layer_normalization(call: OpCall) -> HostFunction:
    """(x - mean) / √(variance + epsilon) · scale + bias over the axes from `axis` on; float64 stays float64."""
    axes = tuple(range(axis_of(call), len(call.input(0).shape)))
    count = prod(call.input(0).shape[axis] for axis in axes)
    epsilon = call.attributes["epsilon"]
    assert DTYPES[call.input(0).dtype].kind == "float"

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x, scale = widened(inputs[0]), widened(inputs[1])
        bias = widened(inputs[2]) if len(inputs) > 2 and inputs[2] is not None else None
        with np.errstate(all="ignore"):
            mean = _sum(x, axes) / count
            work = x - mean
            inverse = 1 / np.sqrt(_sum(work * work, axes) / count + epsilon)
            work *= inverse
            work *= scale
            if bias is not None:
                work += bias
            for target, result in zip(outputs, (work, mean, inverse), strict=False):
                np.copyto(target, result, casting="unsafe")

    return run
