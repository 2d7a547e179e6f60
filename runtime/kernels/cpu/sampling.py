"""Sampling in numpy: gathers of whole index arrays, one for each corner around the points."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.nn import conv_window
from kgrun.graphs.operators.sampling import sample_mode
from kgrun.graphs.operators.windows import Window
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.common import widened

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_CUBIC = -0.75


def _reflected(x: Array, low: float, high: float) -> Array:
    """x reflected at the borders until it is between them."""
    if high <= low:
        return np.full_like(x, low)
    away = np.where(x < low, low - x, x - high)
    turns = np.floor(away / (high - low))
    rest = away - turns * (high - low)
    from_low = (turns % 2 == 0) == (x < low)
    inside = (x >= low) & (x <= high)
    found: Array = np.where(inside, x, np.where(from_low, low + rest, high - rest))
    return found


def _weights(mode: str, part: Array) -> list[Array]:
    """Weights of the taps around a point that lies `part` behind the tap below it."""
    if mode == "nearest":
        return [np.ones_like(part)]
    if mode == "linear":
        return [1 - part, part]
    a = _CUBIC
    near = [((a + 2) * t - (a + 3)) * t * t + 1 for t in (part, 1 - part)]
    far = [((t - 5) * t + 8) * t * a - 4 * a for t in (1 + part, 2 - part)]
    return [far[0], *near, far[1]]


def _axis_taps(x: Array, size: int, mode: str, padding: str, corners: bool) -> list[tuple[Array, Array]]:
    """(index, weight) of every tap along one axis for source coordinates x."""
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    if mode == "nearest":
        x = np.rint(x)
    if padding == "border" and mode != "cubic":  # its taps are clipped one by one, as PyTorch and ONNX Runtime do
        x = np.where((x < low) | (x > high), np.clip(x, 0, size - 1), x)
    elif padding == "reflection":
        x = _reflected(x, low, high)
    first = np.trunc(x) if mode == "nearest" else np.floor(x)
    weights = _weights(mode, x - first)
    found = []
    for step, weight in enumerate(weights, start=-1 if mode == "cubic" else 0):
        at = first + step
        if padding == "reflection":
            at = np.trunc(_reflected(at, low, high))
        elif padding == "zeros":
            weight = np.where((at >= 0) & (at < size), weight, 0)
        place = np.clip(np.where(np.isnan(at), 0, at), 0, size - 1)  # no place at all: any will do
        found.append((place.astype(np.intp), weight))
    return found


@on_cpu("GridSample")
def grid_sample(call: OpCall) -> HostFunction:
    """Input 0 at the normalized coordinates of the grid, whose last axis counts from the innermost one."""
    mode, padding, corners = sample_mode(call), call.attributes["padding_mode"], bool(call.attributes["align_corners"])
    shape, out = call.input(0).shape, call.outputs[0].shape
    spatial, whole = shape[2:], DTYPES[call.input(0).dtype].kind != "float"

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        if outputs[0].size == 0:
            return
        x, grid = inputs[0], widened(inputs[1]).reshape(shape[0], -1, len(spatial))
        assert x is not None
        flat = x.reshape(*shape[:2], -1)
        if mode != "nearest":
            flat = flat.astype(np.float64) if whole else widened(flat)
        with np.errstate(all="ignore"):
            taps = []
            for axis, size in enumerate(spatial):
                n = grid[..., len(spatial) - 1 - axis]
                at = (n + 1) / 2 * (size - 1) if corners else ((n + 1) * size - 1) / 2
                taps.append(_axis_taps(at, size, mode, padding, corners))
            total = _gathered(flat, spatial, taps)
            np.copyto(outputs[0], total.reshape(out), casting="unsafe")

    return run


def _gathered(flat: Array, spatial: Sequence[int], taps: Sequence[list[tuple[Array, Array]]]) -> Array:
    """Σ over all combinations of the axes' taps; `flat` is [batch, channels, places], taps are [batch, points].

    Channels are turned innermost, so that a point is one run of memory.
    """
    pixels = np.ascontiguousarray(flat.transpose(0, 2, 1))
    total: Array | None = None
    for corner in product(*taps):
        place, weight = np.zeros_like(corner[0][0]), np.ones_like(corner[0][1])
        for (at, factor), size in zip(corner, spatial, strict=True):
            place = place * size + at
            weight = weight * factor
        met = np.stack([image.take(line, 0) for image, line in zip(pixels, place, strict=True)])
        if all(len(axis) == 1 for axis in taps):  # moved, not computed
            met[weight == 0] = 0
            return met.transpose(0, 2, 1)
        met *= weight[..., None].astype(met.dtype, copy=False)
        total = met if total is None else np.add(total, met, out=total)
    assert total is not None
    return total.transpose(0, 2, 1)


@on_cpu("AffineGrid")
def affine_grid(call: OpCall) -> HostFunction:
    """The places of an image's pixels in [-1, 1], innermost axis first, moved by a matrix each image."""
    _, *spatial, rank = call.outputs[0].shape
    ends = []
    for size in spatial:
        line = np.arange(size, dtype=np.float64)
        corners = call.attributes["align_corners"]
        ends.append((line * 2 / max(size - 1, 1) - 1) if corners else ((2 * line + 1) / max(size, 1) - 1))
    mesh = np.meshgrid(*ends, indexing="ij")[::-1] if spatial else []
    base = np.stack([*mesh, np.ones(spatial)], -1).reshape(-1, rank + 1)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        theta = widened(inputs[0])
        result = np.matmul(base.astype(theta.dtype), theta.transpose(0, 2, 1))
        np.copyto(outputs[0], result.reshape(outputs[0].shape), casting="unsafe")

    return run


@on_cpu("RoiAlign")
def roi_align(call: OpCall) -> HostFunction:
    """The mean, or the largest weighted corner, of points spread over the bins of every region."""
    given, (batches, channels, height, width) = call.attributes, call.input(0).shape
    rows, columns = given["output_height"], given["output_width"]
    half, largest = given["coordinate_transformation_mode"] == "half_pixel", given["mode"] == "max"
    ratio, scale = given["sampling_ratio"], given["spatial_scale"]

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x, regions, images = widened(inputs[0]), widened(inputs[1]), inputs[2]
        assert images is not None
        if ((images < 0) | (images >= batches)).any():
            raise GraphError(f"{call.node}: RoiAlign's batch index is outside [0, {batches - 1}]", code="KG333")
        pixels = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        for index, region in enumerate(regions):
            # In the regions' own precision: one more digit would ask for another point where a bin ends at a whole one.
            left, top, right, bottom = region * scale - (0.5 if half else 0.0)
            ys, wy, ny = _bins(top, bottom, rows, height, ratio, half)
            xs, wx, nx = _bins(left, right, columns, width, ratio, half)
            if ny * nx == 0:
                outputs[0][index] = 0
                continue
            image = pixels[int(images[index])].reshape(-1, channels)
            parts = []
            for i, j in product((0, 1), (0, 1)):
                met = image.take((ys[i][:, None] * width + xs[j]).reshape(-1), 0)
                met *= (wy[i][:, None] * wx[j]).reshape(-1, 1).astype(x.dtype)
                parts.append(met)
            bins = (rows, ny, columns, nx, channels)
            if largest:
                result = np.maximum.reduce(parts).reshape(bins).max((1, 3))
            else:
                result = (parts[0] + parts[1] + parts[2] + parts[3]).reshape(bins).mean((1, 3))
            np.copyto(outputs[0][index], result.transpose(2, 0, 1), casting="unsafe")

    return run


def _bins(
    start: np.floating[Any], end: np.floating[Any], bins: int, size: int, ratio: int, half: bool
) -> tuple[tuple[Array, Array], tuple[Array, Array], int]:
    """Lower and upper index and weight of the points along one axis, and points a bin; outside points weigh 0."""
    length = end - start if half else np.maximum(end - start, start.dtype.type(1))
    width, kind = length / bins, start.dtype
    adaptive = max(int(np.ceil(width)), 0) if np.isfinite(length) else 0
    count = ratio if ratio > 0 else adaptive
    within = (np.arange(count, dtype=kind) + kind.type(0.5)) * width / kind.type(max(count, 1))
    at = (start + np.arange(bins, dtype=kind)[:, None] * width + within).reshape(-1)
    inside = (at >= -1) & (at <= size)
    at = np.maximum(at, 0)
    low = np.minimum(np.where(inside, at, 0).astype(np.intp), size - 1)
    high = np.minimum(low + 1, size - 1)
    part = np.where(inside & (low < size - 1), at - low, 0)
    return (low, high), (inside * (1 - part), inside * part), count


@on_cpu("MaxRoiPool")
def max_roi_pool(call: OpCall) -> HostFunction:
    """The largest element of every bin of every region; 0 of an empty bin."""
    batches, _, height, width = call.input(0).shape
    (rows, columns), scale = call.attributes["pooled_shape"], call.attributes["spatial_scale"]

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x, regions = widened(inputs[0]), widened(inputs[1]).astype(np.float64)
        if not ((regions[:, 0] >= 0) & (regions[:, 0] < batches)).all():  # NaN is no image
            raise GraphError(f"{call.node}: MaxRoiPool's batch index is outside [0, {batches - 1}]", code="KG333")
        edges = np.floor(regions[:, 1:] * scale + 0.5)
        for index, (left, top, right, bottom) in enumerate(edges):
            image = x[int(regions[index, 0])]
            by_row = _largest(image, 1, _spans(top, bottom, rows, height))
            np.copyto(outputs[0][index], _largest(by_row, 2, _spans(left, right, columns, width)), casting="unsafe")
        outputs[0][np.isneginf(outputs[0])] = 0

    return run


def _spans(start: float, end: float, bins: int, size: int) -> list[slice]:
    each = max(end - start + 1, 1) / bins
    lows = _within(np.floor(np.arange(bins) * each) + start, size)
    highs = _within(np.ceil(np.arange(1, bins + 1) * each) + start, size)
    return [slice(low, max(low, high)) for low, high in zip(lows, highs, strict=True)]


def _within(at: Array, size: int) -> Array:
    """Coordinates as indices in [0, size]; NaN is the end, so that nothing lies behind it."""
    return np.clip(np.where(np.isnan(at), size, at), 0, size).astype(np.intp)


def _largest(x: Array, axis: int, spans: Sequence[slice]) -> Array:
    parts = [x[(slice(None),) * axis + (span,)].max(axis, initial=-np.inf) for span in spans]
    return np.stack(parts, axis)


@on_cpu("DeformConv")
def deform_conv(call: OpCall) -> HostFunction:
    """A convolution whose taps are moved by offsets, and weighted by a mask: bilinear samples times the weights."""
    window, group, parts = conv_window(call), call.attributes["group"], call.attributes["offset_group"]
    taps, places, rank = prod(window.kernel), prod(window.output), len(window.kernel)
    base = _tap_places(window)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        if outputs[0].size == 0:
            return
        x, weight, offset = (widened(array) for array in inputs[:3])
        bias, mask = (widened(a) if a is not None else None for a in [*inputs[3:5], None, None][:2])
        batch, channels = x.shape[:2]
        moved = offset.reshape(batch * parts, taps, rank, places).transpose(2, 0, 1, 3) + base[:, None]
        lines = moved.reshape(rank, batch * parts, -1)
        found = [
            _axis_taps(line, size, "linear", "zeros", True) for line, size in zip(lines, window.input, strict=True)
        ]
        flat = x.reshape(batch * parts, channels // parts, -1)
        columns = _gathered(flat, window.input, found).reshape(batch, parts, -1, taps, places)
        if mask is not None:
            columns *= mask.reshape(batch, parts, 1, taps, places)
        columns = columns.reshape(batch, group, -1, places)
        result = np.matmul(weight.reshape(group, -1, columns.shape[2]), columns).reshape(batch, -1, places)
        if bias is not None:
            result += bias[:, None]
        np.copyto(outputs[0], result.reshape(outputs[0].shape), casting="unsafe")

    return run


def _tap_places(window: Window) -> Array:
    """Coordinates [rank, taps, places] of the taps without offsets."""
    lines = []
    for axis, (size, width) in enumerate(zip(window.output, window.kernel, strict=True)):
        start = np.arange(size) * window.strides[axis] - window.begin[axis]
        at = np.arange(width)[:, None] * window.dilations[axis] + start
        shape = [1] * (2 * len(window.kernel))
        shape[axis], shape[axis + len(window.kernel)] = width, size
        whole = (*window.kernel, *window.output)
        lines.append(np.broadcast_to(at.reshape(shape), whole).reshape(prod(window.kernel), -1))
    return np.stack(lines).astype(np.float32)
