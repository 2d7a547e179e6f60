"""Resize in numpy, one axis after the other: taps and weights of an axis are worked out when the graph is lowered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.resampling import ResizedAxis, Rules, resize_rules, resized_axes, source_coordinates
from kgrun.graphs.operators.scalar_code import compute_dtype
from kgrun.runtime.kernels.base import HostFunction, on_cpu

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def _required(array: Array | None) -> Array:
    assert array is not None
    return array


def _coordinates(rules: Rules, axis: ResizedAxis) -> Array:
    rule = source_coordinates(rules, axis)
    y = np.arange(axis.output).astype("float32" if rules.mode == "nearest" else "float64")
    found: Array = (y + rule.before) * rule.step / rule.divisor + rule.after
    return found


def _nearest(rules: Rules, axis: ResizedAxis) -> Array:
    """The index that every output reads."""
    x = _coordinates(rules, axis).astype(np.float64)
    match rules.rounding:
        case "round_prefer_floor":
            x = np.ceil(x - 0.5)
        case "round_prefer_ceil":
            x = np.floor(x + 0.5)
        case "floor":
            x = np.floor(x)
        case _:
            x = np.ceil(x)
    return np.clip(x, 0, axis.input - 1).astype(np.intp)


def _filter(rules: Rules, t: Array) -> Array:
    """The weight at distance t: a triangle, or Keys' cubic (R. G. Keys, 1981) with parameter a."""
    t = np.abs(t)
    a = rules.cubic
    near = 1 - t if rules.mode == "linear" else ((a + 2) * t - (a + 3)) * t * t + 1
    far = 0 * t if rules.mode == "linear" else ((t - 5) * t + 8) * t * a - 4 * a
    weights: Array = np.where(t <= 1, near, np.where(t < 2, far, 0.0))
    return weights


def _weighted(rules: Rules, axis: ResizedAxis) -> tuple[Array, Array]:
    """Indices [taps, output] that every output reads, and their weights."""
    x = _coordinates(rules, axis)
    first, count = rules.taps(axis.scale)
    at = np.floor(x) + np.arange(first, first + count)[:, None]
    weights = _filter(rules, (at - x) * rules.stretch(axis.scale))
    if rules.exclude_outside:
        weights[(at < 0) | (at >= axis.input)] = 0
    if rules.exclude_outside or rules.antialias:
        total = weights.sum(0)
        weights /= np.where(total == 0, 1, total)
    return np.clip(at, 0, axis.input - 1).astype(np.intp), weights


@on_cpu("Resize", "Upsample")
def resize(call: OpCall) -> HostFunction:
    """Input 0 resampled; integers are computed in float64, rounded and limited to their range."""
    rules, axes = resize_rules(call), resized_axes(call)
    if call.outputs[0].size == 0:
        return lambda inputs, outputs: None
    outside = _outside(call, rules, axes)
    if rules.mode == "nearest":
        return _nearest_resize(call, rules, axes, outside)
    dtype = call.input(0).dtype
    work = np.dtype(compute_dtype(dtype) if DTYPES[dtype].kind == "float" else "float64")
    # What shrinks goes first; of what grows the innermost, whose elements are gathered one by one.
    order = sorted(axes, key=lambda row: (row.output > row.input, -row.axis if row.output > row.input else row.axis))
    steps = [(row.axis, *_weighted(rules, row)) for row in order]
    limits = DTYPES[dtype].limits

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x = _required(inputs[0]).astype(work, copy=False)
        for axis, at, weights in steps:
            x = _along(x, axis, at, weights.astype(work))
        if limits is not None:
            x = np.clip(np.rint(x), *limits)
        np.copyto(outputs[0], x, casting="unsafe")
        if outside is not None:
            outputs[0][outside] = rules.outside

    return run


def _along(x: Array, axis: int, at: Array, weights: Array) -> Array:
    """Σ over taps of the elements along `axis` times their weights."""
    shape = (-1,) + (1,) * (x.ndim - axis - 1)
    total: Array = np.take(x, at[0], axis)
    total *= weights[0].reshape(shape)
    for places, weight in zip(at[1:], weights[1:], strict=True):
        part = np.take(x, places, axis)
        part *= weight.reshape(shape)
        total += part
    return total


def _nearest_resize(call: OpCall, rules: Rules, axes: Sequence[ResizedAxis], outside: Array | None) -> HostFunction:
    picks = [(row.axis, _nearest(rules, row)) for row in axes]
    repeats = [_repeats(row, places) for row, (_, places) in zip(axes, picks, strict=True)]
    shape = call.input(0).shape
    factors = dict(zip((row.axis for row in axes), repeats, strict=True))
    last = factors.pop(len(shape) - 1, 1)
    apart = tuple(n for axis, size in enumerate(shape[:-1]) for n in (size, factors.get(axis, 1)))
    single = tuple(n for size in shape[:-1] for n in (size, 1))

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x = _required(inputs[0])
        if all(repeats):  # every element so many times: whole rows are copied
            rows = np.empty((*x.shape, last), x.dtype) if last > 1 else x
            for at in range(last if last > 1 else 0):
                rows[..., at] = x
            np.copyto(outputs[0].reshape(*apart, -1), rows.reshape(*single, -1))
        else:
            for axis, places in picks:
                x = x.take(places, axis)
            np.copyto(outputs[0], x)
        if outside is not None:
            outputs[0][outside] = rules.outside

    return run


def _repeats(row: ResizedAxis, places: Array) -> int:
    """How often every index is read in a row, the same for all; 0 where that differs."""
    times = row.output // row.input if row.input else 0
    regular = times * row.input == row.output and np.array_equal(places, np.arange(row.output) // max(times, 1))
    return times if regular else 0


def _outside(call: OpCall, rules: Rules, axes: Sequence[ResizedAxis]) -> Array | None:
    """Where outputs have the value for coordinates outside the input; None where none have."""
    if rules.transform != "tf_crop_and_resize":
        return None
    rank, mask = len(call.outputs[0].shape), np.zeros((1,) * len(call.outputs[0].shape), bool)
    for row in axes:
        x = _coordinates(rules, row)
        mask = mask | ((x < 0) | (x > row.input - 1)).reshape((-1,) + (1,) * (rank - row.axis - 1))
    return np.broadcast_to(mask, call.outputs[0].shape) if mask.any() else None
