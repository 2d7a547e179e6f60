"""Conv in numpy: one product for 1×1, unfolded windows times weights otherwise; depthwise is in `depthwise`.

Windows are unfolded a band of output rows at a time, or several small images at a time, so that scratch stays within a
few MiB whatever the images.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.nn import conv_window
from kgrun.graphs.operators.scalar_code import compute_dtype
from kgrun.graphs.operators.windows import Window
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.depthwise import depthwise
from kgrun.runtime.kernels.cpu.sliding import Method, add_bias, padded, windows

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_BAND_BYTES = 4 << 20
_SMALL = 128  # output places of an image whose product alone would read the weights for little


@on_cpu("Conv")
def conv(call: OpCall) -> HostFunction:
    """Conv of any rank and group, accumulated in float32 (float64 for float64)."""
    window, group = conv_window(call), call.attributes["group"]
    narrow = compute_dtype(call.input(0).dtype) != call.input(0).dtype
    apply = method(call.input(1).shape, window, group, call.input(0).shape[0])

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x, weight = inputs[0], inputs[1]
        bias = inputs[2] if len(inputs) > 2 else None
        assert x is not None
        assert weight is not None
        if narrow:
            x, weight = x.astype(np.float32), weight.astype(np.float32)
            bias = None if bias is None else bias.astype(np.float32)
        out = np.empty(outputs[0].shape, np.float32) if narrow else outputs[0]
        if out.size:
            apply(x, weight, bias, out)
        if narrow:
            np.copyto(outputs[0], out, casting="unsafe")

    return run


def method(weight: tuple[int, ...], window: Window, group: int, batch: int = 1) -> Method:
    """The way that suits a weight of this shape, and so many images."""
    if weight[1] == 1 and group > 1:
        return depthwise(window, group)
    if batch > 1 and prod(window.output) < _SMALL:
        return _together(window, group)
    plain = set(window.kernel) <= {1} and not any((*window.begin, *window.end))
    return _pointwise(window, group) if plain else _unfolded(window, group)


def _pointwise(window: Window, group: int) -> Method:
    steps = tuple(slice(None, (o - 1) * s + 1, s) for o, s in zip(window.output, window.strides, strict=True))
    places = prod(window.output)

    def apply(x: Array, weight: Array, bias: Array | None, out: Array) -> None:
        batch = x.shape[0]
        columns = x[(slice(None), slice(None), *steps)].reshape(batch, group, -1, places)
        np.matmul(weight.reshape(group, -1, weight.shape[1]), columns, out=out.reshape(batch, group, -1, places))
        add_bias(out, bias)

    return apply


def _unfolded(window: Window, group: int) -> Method:
    taps, row = prod(window.kernel), prod(window.output[1:])
    whole = (slice(None),) * (1 + len(window.kernel))

    def apply(x: Array, weight: Array, bias: Array | None, out: Array) -> None:
        view = windows(padded(x, window), window)
        channels, filters = x.shape[1], weight.shape[0] // group
        matrices = weight.reshape(group, filters, -1)
        band = max(1, min(window.output[0], _BAND_BYTES // max(channels * taps * row * x.itemsize, 1)))
        scratch = np.empty(channels * taps * band * row, x.dtype)
        result = out.reshape(x.shape[0], group, filters, -1)
        for image, first in product(range(x.shape[0]), range(0, window.output[0], band)):
            last = min(first + band, window.output[0])
            columns = scratch[: channels * taps * (last - first) * row]
            unfolded = columns.reshape(channels, *window.kernel, last - first, *window.output[1:])
            np.copyto(unfolded, view[image][(*whole, slice(first, last))])
            target = result[image, :, :, first * row : last * row]
            np.matmul(matrices, columns.reshape(group, matrices.shape[2], (last - first) * row), out=target)
            if bias is not None:
                target += bias.reshape(group, filters, 1)

    return apply


def _together(window: Window, group: int) -> Method:
    """One product for as many small images as fit in scratch, side by side."""
    taps, places = prod(window.kernel), prod(window.output)

    def apply(x: Array, weight: Array, bias: Array | None, out: Array) -> None:
        view = windows(padded(x, window), window)
        batch, channels, filters = x.shape[0], x.shape[1], weight.shape[0] // group
        matrices = weight.reshape(group, filters, -1)
        several = max(1, min(batch, _BAND_BYTES // max(channels * taps * places * x.itemsize, 1)))
        scratch = np.empty(channels * taps * several * places, x.dtype)
        result = out.reshape(batch, group, filters, places)
        for first in range(0, batch, several):
            last = min(first + several, batch)
            columns = scratch[: channels * taps * (last - first) * places]
            unfolded = columns.reshape(channels, *window.kernel, last - first, *window.output)
            np.copyto(unfolded, np.moveaxis(view[first:last], 0, 1 + len(window.kernel)))
            products = np.matmul(matrices, columns.reshape(group, matrices.shape[2], (last - first) * places))
            result[first:last] = products.reshape(group, filters, last - first, places).transpose(2, 0, 1, 3)
        add_bias(out, bias)

    return apply
