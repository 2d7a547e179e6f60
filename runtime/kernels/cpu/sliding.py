"""Sliding windows over numpy arrays: padding, and the elements that each tap of a kernel meets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.operators.windows import Window

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

# What applies a Conv: x, weight, bias, out.
Method = Callable[["Array", "Array", "Array | None", "Array"], None]


def padded(x: Array, window: Window, fill: float | int = 0) -> Array:
    """`x` with its spatial axes padded by `fill`, the overhang of ceil_mode included; `x` itself without any."""
    ends = tuple(end + over for end, over in zip(window.end, window.overhang, strict=True))
    if not any(window.begin) and not any(ends):
        return x
    lead = x.ndim - len(window.input)
    sizes = tuple(b + i + e for b, i, e in zip(window.begin, window.input, ends, strict=True))
    result = np.full(x.shape[:lead] + sizes, fill, x.dtype)
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


def add_bias(out: Array, bias: Array | None) -> None:
    """Add a bias along axis 1 of [batch, channels, …]."""
    if bias is not None:
        out += bias.reshape(-1, *(1,) * (out.ndim - 2))
