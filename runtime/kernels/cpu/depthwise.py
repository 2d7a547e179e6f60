"""Depthwise Conv (one input channel a group) in numpy, by the size of the image.

Small images are turned channels-last, so that the innermost loop runs over all channels; large ones are summed tap by
tap, a chunk of channels at a time, so that partial sums stay in the cache.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from kgrun.graphs.operators.shapes import strides_of
from kgrun.graphs.operators.windows import Window
from kgrun.runtime.kernels.cpu.sliding import Method, add_bias, padded, tap_slices

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_SMALL = 1_024  # output places of a channel
_CHUNK = 32_768  # elements of a chunk


def depthwise(window: Window, group: int) -> Method:
    """The method for a window over `group` channels."""
    if prod(window.output) < _SMALL:
        return _channels_last(window, group)
    return _flat_taps(window, group) if set(window.strides) == {1} else _sliced_taps(window, group)


def _channels_last(window: Window, group: int) -> Method:
    rank = len(window.output)
    places, taps = "abcdef"[:rank], "uvwxyz"[:rank]
    subscripts = f"{places}n{taps},{taps}n->{places}n"
    sizes = tuple(b + i + e for b, i, e in zip(window.begin, window.input, window.end, strict=True))
    inner = tuple(slice(b, b + i) for b, i in zip(window.begin, window.input, strict=True))
    turned = (*range(1, rank + 1), 0)
    back = (rank, *range(rank))

    def apply(x: Array, weight: Array, bias: Array | None, out: Array) -> None:
        source = np.zeros((*sizes, group), x.dtype)
        steps = source.strides
        moves = tuple(step * stride for step, stride in zip(steps, window.strides, strict=False))
        reach = tuple(step * dilation for step, dilation in zip(steps, window.dilations, strict=False))
        met = as_strided(source, (*window.output, group, *window.kernel), (*moves, steps[-1], *reach), writeable=False)
        result = out.reshape(x.shape[0], group, -1, *window.output)
        kernels = weight.reshape(group, -1, *window.kernel)
        members = [np.ascontiguousarray(kernels[:, m].transpose(turned)) for m in range(kernels.shape[1])]
        for image in range(x.shape[0]):
            source[inner] = x[image].transpose(turned)
            for member, taps_of in enumerate(members):
                result[image, :, member] = np.einsum(subscripts, met, taps_of).transpose(back)
        add_bias(out, bias)

    return apply


def _flat_taps(window: Window, group: int) -> Method:
    """Stride 1: a tap meets one contiguous run of the padded plane, columns between rows included and cut off later."""
    sizes = tuple(b + i + e for b, i, e in zip(window.begin, window.input, window.end, strict=True))
    steps = strides_of(sizes)
    length = sum((size - 1) * step for size, step in zip(window.output, steps, strict=True)) + 1
    offsets = [
        sum(at * dilation * step for at, dilation, step in zip(tap, window.dilations, steps, strict=True))
        for tap in product(*(range(size) for size in window.kernel))
    ]
    rows = (window.output[0], *sizes[1:])
    crop = tuple(slice(size) for size in window.output)
    chunk = max(1, _CHUNK // prod(rows))

    def apply(x: Array, weight: Array, bias: Array | None, out: Array) -> None:
        source = padded(x, window).reshape(x.shape[0], group, -1)
        taps = weight.reshape(group, -1, len(offsets))
        result = out.reshape(x.shape[0], group, -1, *window.output)
        total, work = np.zeros((chunk, prod(rows)), x.dtype), np.empty((chunk, length), x.dtype)
        for image, first, member in product(range(x.shape[0]), range(0, group, chunk), range(taps.shape[1])):
            last = min(first + chunk, group)
            run, part = total[: last - first, :length], work[: last - first]
            for tap, offset in enumerate(offsets):
                met = source[image, first:last, offset : offset + length]
                np.multiply(met, taps[first:last, member, tap, None], out=part if tap else run)
                if tap:
                    run += part
            whole = total[: last - first].reshape(-1, *rows)
            result[image, first:last, member] = whole[(slice(None), *crop)]
        add_bias(out, bias)

    return apply


def _sliced_taps(window: Window, group: int) -> Method:
    chunk = max(1, _CHUNK // prod(window.output))
    spatial = (1,) * len(window.output)

    def apply(x: Array, weight: Array, bias: Array | None, out: Array) -> None:
        source = padded(x, window)
        taps = weight.reshape(group, -1, prod(window.kernel), *spatial)
        result = out.reshape(x.shape[0], group, -1, *window.output)
        scratch = np.empty((chunk, *window.output), x.dtype)
        for image, first, member in product(range(x.shape[0]), range(0, group, chunk), range(taps.shape[1])):
            last = min(first + chunk, group)
            total, part = result[image, first:last, member], scratch[: last - first]
            for tap, place in enumerate(tap_slices(window)):
                met = source[image, first:last][(slice(None), *place)]
                np.multiply(met, taps[first:last, member, tap], out=part if tap else total)
                if tap:
                    total += part
        add_bias(out, bias)

    return apply
