"""Sliding windows over numpy arrays: padding, and the elements that each tap of a kernel meets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from kgrun.graphs.operators.windows import Window

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

# What applies a Conv: x, weight, bias, out.
Method = Callable[["Array", "Array", "Array | None", "Array"], None]


def padded_sizes(window: Window) -> tuple[int, ...]:
    """Sizes of the spatial axes once padded, the overhang of ceil_mode included."""
    rows = zip(window.begin, window.input, window.end, window.overhang, strict=True)
    return tuple(begin + size + end + over for begin, size, end, over in rows)


def window_counts(window: Window, include_pad: bool) -> Array:
    """How many elements the average over a window divides by; what ceil_mode adds beyond the padding never counts."""
    counts = np.ones(window.output, np.int64)
    for axis in range(len(window.output)):
        starts = np.arange(window.output[axis]) * window.strides[axis] - window.begin[axis]
        at = starts[:, None] + np.arange(window.kernel[axis]) * window.dilations[axis]
        reach = (window.begin[axis], window.end[axis]) if include_pad else (0, 0)
        met = ((at >= -reach[0]) & (at < window.input[axis] + reach[1])).sum(1)
        counts *= met.reshape((-1,) + (1,) * (len(window.output) - axis - 1))
    return counts


def padded(x: Array, window: Window, fill: float | int = 0) -> Array:
    """`x` with its spatial axes padded by `fill`, the overhang of ceil_mode included; `x` itself without any."""
    if padded_sizes(window) == window.input:
        return x
    lead = x.ndim - len(window.input)
    result = np.full(x.shape[:lead] + padded_sizes(window), fill, x.dtype)
    inner = tuple(slice(b, b + i) for b, i in zip(window.begin, window.input, strict=True))
    result[(slice(None),) * lead + inner] = x
    return result


def tap_slices(window: Window, first: int = 0, last: int | None = None) -> Iterator[tuple[slice, ...]]:
    """For every tap of the kernel, row-major: the padded elements it meets, for output rows first … last of axis 0."""
    bounds = [(0, size) for size in window.output]
    bounds[0] = (first, window.output[0] if last is None else last)
    for tap in product(*(range(size) for size in window.kernel)):
        yield tuple(
            slice(low * stride + at * dilation, (high - 1) * stride + at * dilation + 1, stride)
            for (low, high), at, stride, dilation in zip(bounds, tap, window.strides, window.dilations, strict=True)
        )


def windows(source: Array, window: Window) -> Array:
    """A view [batch, channels, *kernel, *output] of a padded array: what each tap of the kernel meets."""
    steps = source.strides[-len(window.kernel) :]
    taps = (step * dilation for step, dilation in zip(steps, window.dilations, strict=True))
    places = (step * stride for step, stride in zip(steps, window.strides, strict=True))
    shape = (*source.shape[:2], *window.kernel, *window.output)
    return as_strided(source, shape, (*source.strides[:2], *taps, *places), writeable=False)


def add_bias(out: Array, bias: Array | None) -> None:
    """Add a bias along axis 1 of [batch, channels, …]."""
    if bias is not None:
        out += bias.reshape(-1, *(1,) * (out.ndim - 2))
