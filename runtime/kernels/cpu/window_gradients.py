"""Gradients of convolution and pooling in numpy, one product or one sum a tap of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.gradients import conv_gradient_window, pool_gradient_window
from kgrun.graphs.operators.windows import Window
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.common import widened
from kgrun.runtime.kernels.cpu.sliding import padded, padded_sizes, tap_slices, window_counts

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def _inner(window: Window) -> tuple[slice, ...]:
    return tuple(slice(begin, begin + size) for begin, size in zip(window.begin, window.input, strict=True))


@on_cpu("ConvGrad")
def conv(call: OpCall) -> HostFunction:
    """Gradients of input, weight and bias: products with the weight's and the input's taps, and a sum."""
    window, group = conv_gradient_window(call), call.attributes["group"]
    batch, channels = call.input(1).shape[:2]
    filters, depth = call.input(2).shape[0] // group, channels // group
    taps, places, everywhere = prod(window.kernel), prod(window.output), (slice(None), slice(None))

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        dy, x, weight = (widened(inputs[index]) for index in range(3))
        by_group = dy.reshape(batch, group, filters, places)
        matrices = weight.reshape(group, filters, depth, taps)
        if 0 not in call.unnamed:
            room = np.zeros((batch, channels, *padded_sizes(window)), dy.dtype)
            for tap, place in enumerate(tap_slices(window)):
                part = np.matmul(matrices[..., tap].transpose(0, 2, 1), by_group)
                room[(*everywhere, *place)] += part.reshape(batch, channels, *window.output)
            np.copyto(outputs[0], room[(*everywhere, *_inner(window))], casting="unsafe")
        if len(outputs) > 1 and 1 not in call.unnamed:
            source = padded(x, window)
            result = np.zeros((group, filters, depth, taps), dy.dtype)
            rows = by_group.transpose(1, 2, 0, 3).reshape(group, filters, batch * places)
            for tap, place in enumerate(tap_slices(window)):
                met = source[(*everywhere, *place)].reshape(batch, group, depth, places)
                np.matmul(rows, met.transpose(1, 0, 3, 2).reshape(group, batch * places, depth), out=result[..., tap])
            np.copyto(outputs[1], result.reshape(outputs[1].shape), casting="unsafe")
        if len(outputs) > 2:
            np.copyto(outputs[2], np.add.reduce(dy, (0, *range(2, dy.ndim))), casting="unsafe")

    return run


@on_cpu("AveragePoolGrad")
def average_pool(call: OpCall) -> HostFunction:
    """Every window's gradient, shared out among the elements it averaged."""
    window = pool_gradient_window(call)
    work = np.float64 if call.input(0).dtype == "float64" else np.float32
    counts = window_counts(window, bool(call.attributes["count_include_pad"])).astype(work)
    lead, everywhere = call.input(1).shape[:2], (slice(None), slice(None))

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        with np.errstate(all="ignore"):
            shares = widened(inputs[0]) / counts
        room = np.zeros(lead + padded_sizes(window), work)
        for place in tap_slices(window):
            room[(*everywhere, *place)] += shares
        np.copyto(outputs[0], room[(*everywhere, *_inner(window))], casting="unsafe")

    return run


@on_cpu("MaxPoolGrad")
def max_pool(call: OpCall) -> HostFunction:
    """Every window's gradient, added where the forward operator found its largest element."""
    shape = call.input(1).shape
    plane, column_major = prod(shape[2:]), call.attributes["storage_order"]

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        dy, indices = widened(inputs[0]).reshape(-1), inputs[2]
        assert indices is not None
        found = indices.reshape(-1)
        kept = found >= 0
        found, dy = found[kept], dy[kept]
        if column_major:
            images, inside = np.divmod(found, plane)
            at = np.unravel_index(inside, shape[:1:-1])
            found = images * plane + np.ravel_multi_index(at[::-1], shape[2:])
        total = np.bincount(found, weights=dy, minlength=outputs[0].size)
        np.copyto(outputs[0], total.reshape(outputs[0].shape), casting="unsafe")

    return run
