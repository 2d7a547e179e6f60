"""Normalization in numpy; float16 and bfloat16 are computed in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.normalization import group_count, norm_axes
from kgrun.graphs.operators.shapes import axis_of
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.common import widened

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def _centred(x: Array, axes: tuple[int, ...]) -> Array:
    """x without its mean over `axes`."""
    difference: Array = x - np.mean(x, axes, keepdims=True)
    return difference


def _mean_square(x: Array, axes: tuple[int, ...]) -> Array:
    mean: Array = np.mean(np.square(x), axes, keepdims=True)
    return mean


@on_cpu("InstanceNormalization", "GroupNormalization")
def group_normalization(call: OpCall) -> HostFunction:
    """(x - mean) / √(variance + epsilon) of every group of channels, times a channel's scale, plus its bias."""
    shape, groups, epsilon = call.input(0).shape, group_count(call), call.attributes["epsilon"]
    each = shape[1] // max(groups, 1)
    per_channel = call.input(1).shape == (shape[1],)
    affine = (groups, each if per_channel else 1, 1)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        if outputs[0].size == 0:
            return
        x, scale, bias = (widened(array) for array in inputs[:3])
        with np.errstate(all="ignore"):
            work = _centred(x.reshape(shape[0], groups, each, -1), (2, 3))
            squares = np.einsum("ngcp,ngcp->ng", work, work)[..., None, None] / (work.shape[2] * work.shape[3])
            work *= scale.reshape(affine) / np.sqrt(squares + x.dtype.type(epsilon))
            work += bias.reshape(affine)
            np.copyto(outputs[0], work.reshape(shape), casting="unsafe")

    return run


@on_cpu("RMSNormalization")
def rms_normalization(call: OpCall) -> HostFunction:
    """x / √(mean of x² + epsilon) · scale over the axes from `axis` on."""
    axes, epsilon = tuple(range(axis_of(call), len(call.input(0).shape))), call.attributes["epsilon"]

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        if outputs[0].size == 0:
            return
        x, scale = widened(inputs[0]), widened(inputs[1])
        with np.errstate(all="ignore"):
            work = x / np.sqrt(_mean_square(x, axes) + x.dtype.type(epsilon))
            np.copyto(outputs[0], work * scale, casting="unsafe")

    return run


@on_cpu("MeanVarianceNormalization")
def mean_variance_normalization(call: OpCall) -> HostFunction:
    """(x - mean) / standard deviation over `axes`; 1e-9 keeps constant ones from dividing by zero."""
    axes = norm_axes(call)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        if outputs[0].size == 0:
            return
        with np.errstate(all="ignore"):
            work = _centred(widened(inputs[0]), axes)
            work /= np.sqrt(_mean_square(work, axes)) + work.dtype.type(1e-9)
            np.copyto(outputs[0], work, casting="unsafe")

    return run


@on_cpu("LpNormalization")
def lp_normalization(call: OpCall) -> HostFunction:
    """x / norm along an axis; zeros where the norm is zero."""
    axis, euclidean = axis_of(call), call.attributes["p"] == 2

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x = widened(inputs[0])
        with np.errstate(all="ignore"):
            norm = np.sum(np.square(x) if euclidean else np.abs(x), axis, keepdims=True)
            norm = np.sqrt(norm) if euclidean else norm
            np.copyto(outputs[0], np.where(norm == 0, x.dtype.type(0), x / norm), casting="unsafe")

    return run


@on_cpu("LRN")
def local_response_normalization(call: OpCall) -> HostFunction:
    """x / (bias + alpha / size · sum of squares over `size` neighbouring channels) to the power beta."""
    size, beta = call.attributes["size"], call.attributes["beta"]
    alpha, bias = call.attributes["alpha"] / size, call.attributes["bias"]
    before, channels = (size - 1) // 2, call.input(0).shape[1]

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x = widened(inputs[0])
        squares, total = np.square(x), np.zeros_like(x)
        for offset in range(max(-before, -channels), min(size - before, channels)):
            low, high = max(-offset, 0), channels - max(offset, 0)
            total[:, low:high] += squares[:, low + offset : high + offset]
        with np.errstate(all="ignore"):
            total *= x.dtype.type(alpha)
            total += x.dtype.type(bias)
            np.copyto(outputs[0], x / np.power(total, x.dtype.type(beta)), casting="unsafe")

    return run
