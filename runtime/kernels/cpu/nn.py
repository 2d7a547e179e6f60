"""Network layers in numpy: pooling axis by axis, BatchNormalization; Conv is in `convolution`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.nn import pool_window
from kgrun.graphs.operators.scalar_code import compute_dtype
from kgrun.graphs.operators.windows import Window
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu import convolution
from kgrun.runtime.kernels.cpu.common import widened
from kgrun.runtime.kernels.cpu.sliding import padded, tap_slices, window_counts

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

__all__ = ["convolution"]  # imported for its registration


def _axis_by_axis(x: Array, window: Window, combine: Callable[..., Array]) -> Array:
    """`combine` over every window, one axis after the other: Σk passes instead of Πk."""
    for axis, size in enumerate(window.kernel):
        stride, extent = window.strides[axis], (window.output[axis] - 1) * window.strides[axis] + 1
        lead = (slice(None),) * (axis + 2)
        parts = [
            x[(*lead, slice(start, start + extent, stride))]
            for start in range(0, size * window.dilations[axis], window.dilations[axis])
        ]
        if size == 1:
            x = parts[0]
            continue
        total = combine(parts[0], parts[1])
        for part in parts[2:]:
            combine(total, part, out=total)
        x = total
    return x


@on_cpu("MaxPool")
def max_pool(call: OpCall) -> HostFunction:
    """The largest element of every window; output 1, when asked for, is its index in the whole input."""
    window = pool_window(call)
    limits = DTYPES[call.input(0).dtype].limits
    lowest = limits[0] if limits else -np.inf
    find = _indices(call, window) if len(call.outputs) > 1 else None

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        source = padded(widened(inputs[0]), window, lowest)
        np.copyto(outputs[0], _axis_by_axis(source, window, np.maximum), casting="unsafe")
        if find is not None:
            find(source, outputs[1])

    return run


def _indices(call: OpCall, window: Window) -> Callable[[Array, Array], None]:
    """A function that finds the first largest element of every window of a padded source."""
    shape = call.input(0).shape
    rank = len(window.output)
    sizes = window.input[::-1] if call.attributes["storage_order"] else window.input
    strides = [prod(sizes[axis + 1 :]) for axis in range(rank)]
    if call.attributes["storage_order"]:
        strides.reverse()
    images = np.arange(prod(shape[:2])).reshape(shape[:2] + (1,) * rank) * prod(window.input)

    def coordinates(axis: int, tap: int) -> Array:
        at = np.arange(window.output[axis]) * window.strides[axis] - window.begin[axis] + tap * window.dilations[axis]
        return at.reshape((-1,) + (1,) * (rank - axis - 1))

    def find(source: Array, out: Array) -> None:
        best = np.empty(out.shape, source.dtype)
        out.fill(-1)
        taps = product(*(range(size) for size in window.kernel))
        for tap, place in zip(taps, tap_slices(window), strict=True):
            at = [coordinates(axis, index) for axis, index in enumerate(tap)]
            inside = reduce(np.logical_and, [(c >= 0) & (c < size) for c, size in zip(at, window.input, strict=True)])
            met = source[(slice(None), slice(None), *place)]
            better = inside & ((out < 0) | (met > best))
            np.copyto(best, met, where=better)
            linear = sum(c * stride for c, stride in zip(at, strides, strict=True))
            np.copyto(out, images + linear, where=better)

    return find


@on_cpu("AveragePool")
def average_pool(call: OpCall) -> HostFunction:
    """The mean of every window; padding counts with count_include_pad, what ceil_mode adds beyond it never does."""
    window = pool_window(call)
    work = np.float64 if call.input(0).dtype == "float64" else np.float32
    counts = window_counts(window, bool(call.attributes["count_include_pad"])).astype(work)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        source = padded(widened(inputs[0]), window)
        with np.errstate(all="ignore"):
            np.divide(_axis_by_axis(source, window, np.add), counts, out=outputs[0], casting="unsafe")

    return run


def _powers(x: Array, p: int) -> Array:
    size = np.abs(x)
    return size if p == 1 else np.square(x) if p == 2 else np.power(size, x.dtype.type(p))


def _root(x: Array, p: int) -> Array:
    root: Array = x if p == 1 else np.sqrt(x) if p == 2 else np.power(x, x.dtype.type(1 / p))
    return root


@on_cpu("LpPool")
def lp_pool(call: OpCall) -> HostFunction:
    """The p-norm of every window; padding counts as zeros."""
    window, p = pool_window(call), call.attributes["p"]

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        with np.errstate(all="ignore"):
            sums = _axis_by_axis(padded(_powers(widened(inputs[0]), p), window), window, np.add)
            np.copyto(outputs[0], _root(sums, p), casting="unsafe")

    return run


@on_cpu("GlobalLpPool")
def global_lp_pool(call: OpCall) -> HostFunction:
    """The p-norm of every channel."""
    axes, p = tuple(range(2, len(call.input(0).shape))), call.attributes["p"]

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        with np.errstate(all="ignore"):
            sums = np.add.reduce(_powers(widened(inputs[0]), p), axes, keepdims=True)
            np.copyto(outputs[0], _root(sums, p), casting="unsafe")

    return run


@on_cpu("GlobalAveragePool", "GlobalMaxPool")
def global_pool(call: OpCall) -> HostFunction:
    """The mean or the largest element of every channel."""
    lead = call.input(0).shape[:2]
    places, shape = prod(call.input(0).shape[2:]), call.outputs[0].shape
    average = call.op == "GlobalAveragePool"

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x = widened(inputs[0]).reshape(*lead, places)
        with np.errstate(all="ignore"):
            result = np.add.reduce(x, 2) / places if average else np.maximum.reduce(x, 2)
            np.copyto(outputs[0], result.reshape(shape), casting="unsafe")

    return run


@on_cpu("BatchNormalization")
def batch_normalization(call: OpCall) -> HostFunction:
    """(x - mean) / √(variance + epsilon) · scale + bias a channel, as one product and one sum.

    In training_mode mean and variance are those of the batch, and outputs 1 and 2 the running ones.
    """
    shape = (-1,) + (1,) * max(len(call.input(0).shape) - 2, 0)
    epsilon = call.attributes["epsilon"]
    narrow = compute_dtype(call.input(0).dtype) != call.input(0).dtype
    training, momentum = bool(call.attributes["training_mode"]), call.attributes["momentum"]
    axes = tuple(axis for axis in range(len(call.input(0).shape)) if axis != 1)
    work = np.dtype("float64" if call.input(0).dtype == "float64" else "float32")

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x = widened(inputs[0])
        scale, bias, mean, variance = (widened(array).astype(work, copy=False) for array in inputs[1:5])
        with np.errstate(all="ignore"):
            if training:
                kept = (mean, variance)
                if x.size:
                    mean, variance = np.atleast_1d(np.mean(x, axes), np.var(x, axes))
                else:
                    mean, variance = np.full((2, *mean.shape), np.nan, x.dtype)
                for target, old, new in zip(outputs[1:], kept, (mean, variance), strict=False):
                    np.copyto(target, old * momentum + new * (1 - momentum), casting="unsafe")
            factor = scale / np.sqrt(variance + work.type(epsilon))
            result = np.multiply(x, factor.reshape(shape), out=None if narrow else outputs[0])
            result += (bias - mean * factor).reshape(shape)
        if narrow:
            np.copyto(outputs[0], result, casting="unsafe")

    return run
