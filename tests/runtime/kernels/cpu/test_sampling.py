"""Sampling on the CPU, held against what it must give where the places are simple."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError
from tests.runtime.kernels.cpu.calls import run

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 3, 4, 5, 3)])
def test_the_identity_grid_samples_every_pixel(corners: int, mode: str, shape: tuple[int, ...]) -> None:
    rank = len(shape) - 2
    x = RNG.normal(size=shape)
    theta = np.repeat(np.eye(rank, rank + 1)[None], 2, 0)
    (grid,) = run("AffineGrid", theta, np.array(shape), align_corners=corners)
    (found,) = run("GridSample", x, grid, align_corners=corners, mode=mode)
    np.testing.assert_allclose(found, x, atol=1e-9)


def test_borders_are_zeros_the_edge_or_a_mirror() -> None:
    x = np.array([[[1.0, 2.0, 3.0]]])
    grid = (np.array([-2, -1, 0, 1, 2, 3, 4]) - 1.0).reshape(1, -1, 1)  # with align_corners, pixel p is at p - 1
    for padding, expected in (
        ("zeros", [0, 0, 1, 2, 3, 0, 0]),
        ("border", [1, 1, 1, 2, 3, 3, 3]),
        ("reflection", [3, 2, 1, 2, 3, 2, 1]),
    ):
        (found,) = run("GridSample", x, grid, align_corners=1, padding_mode=padding)
        np.testing.assert_allclose(found[0, 0], expected)


def test_a_cubic_repeats_the_edge_tap_by_tap() -> None:
    x = np.array([[[1.0, 2.0, 4.0]]])
    (found,) = run("GridSample", x, np.array([[[-1.5]]]), align_corners=1, padding_mode="border", mode="cubic")
    far, near = ((1.5 - 5) * 1.5 + 8) * 1.5 * -0.75 + 3, (1.25 * 0.5 - 2.25) * 0.25 + 1
    weights = np.array([far, near, near, far])  # half a pixel before the first: taps at -2, -1, 0 and 1
    np.testing.assert_allclose(found.item(), weights @ [1, 1, 1, 2])


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_of_a_constant_are_constant(mode: str) -> None:
    x = np.full((2, 3, 8, 8), 5.0)
    x[1] = 7
    regions = np.array([[1.0, 1, 6, 6], [2, 2, 7, 5]])
    more = {"output_height": 2, "output_width": 3, "mode": mode, "coordinate_transformation_mode": "output_half_pixel"}
    (found,) = run("RoiAlign", x, regions, np.array([1, 0]), sampling_ratio=1 if mode == "max" else 2, **more)
    if mode == "avg":
        np.testing.assert_allclose(found[0], 7)
        np.testing.assert_allclose(found[1], 5)
    assert found.max() <= 7
    with pytest.raises(GraphError, match="batch index"):
        run("RoiAlign", x, regions, np.array([2, 0]), **more)


def test_max_roi_pool_is_the_largest_of_every_bin() -> None:
    x = RNG.normal(size=(2, 3, 9, 7))
    regions = np.array([[0, 0, 0, 13, 17], [1, 3, 2, 9, 9], [1, 12, 12, 2, 2], [0, 40, 40, 50, 50]], float)
    (found,) = run("MaxRoiPool", x, regions, pooled_shape=[2, 3], spatial_scale=0.5)
    for index, (image, *edges) in enumerate(regions):
        left, top, right, bottom = (math.floor(edge * 0.5 + 0.5) for edge in edges)
        high, wide = max(bottom - top + 1, 1) / 2, max(right - left + 1, 1) / 3
        for row in range(2):
            for column in range(3):
                y0, y1 = math.floor(row * high) + top, math.ceil((row + 1) * high) + top
                x0, x1 = math.floor(column * wide) + left, math.ceil((column + 1) * wide) + left
                part = x[int(image), :, max(y0, 0) : max(y1, 0), max(x0, 0) : max(x1, 0)]
                expected = part.max((1, 2)) if part.size else np.zeros(3)
                np.testing.assert_array_equal(found[index, :, row, column], expected)


def test_a_deformable_convolution_without_offsets_is_a_convolution() -> None:
    x, weight, bias = RNG.normal(size=(2, 4, 6, 7)), RNG.normal(size=(6, 2, 3, 2)), RNG.normal(size=6)
    window = {"group": 2, "strides": [2, 1], "pads": [1, 0, 1, 1], "dilations": [1, 2]}
    (expected,) = run("Conv", x, weight, bias, **window)
    places = expected.shape[2:]
    offset = np.zeros((2, 2 * 6 * 2, *places))
    (found,) = run("DeformConv", x, weight, offset, bias, offset_group=2, **window)
    np.testing.assert_allclose(found, expected)
    (halved,) = run("DeformConv", x, weight, offset, bias, np.full((2, 12, *places), 0.5), offset_group=2, **window)
    np.testing.assert_allclose(halved - bias[:, None, None], (expected - bias[:, None, None]) / 2)
    # Offsets of whole pixels move the image.
    offset[:, 0::2] = 1
    (moved,) = run("DeformConv", np.roll(x, 1, 2), weight, offset, bias, offset_group=2, **window)
    np.testing.assert_allclose(moved[:, :, 1:-1], expected[:, :, 1:-1])


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_are_placed_in_their_own_precision(mode: str) -> None:
    # 6 · 0.8 - 1 · 0.8 is 4 in float32, and a little more with more digits: 2 points a bin would be 3.
    x, regions = np.arange(72, dtype=np.float32).reshape(1, 2, 6, 6) ** 2, np.array([[1, 1, 6, 6]], np.float32)
    more = {"output_height": 2, "output_width": 2, "spatial_scale": 0.8, "mode": mode}
    (found,) = run("RoiAlign", x, regions, np.array([0]), **more)
    (wanted,) = run("RoiAlign", x, regions, np.array([0]), sampling_ratio=2, **more)
    np.testing.assert_array_equal(found, wanted)
