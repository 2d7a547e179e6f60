"""Resize on the CPU: properties that hold for every size and rule."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import InferenceError, TensorType
from tests.runtime.kernels.cpu.calls import run

TRANSFORMS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
SIZES = st.lists(st.integers(1, 9), min_size=2, max_size=2)


def resized(x: Any, sizes: list[int], **attributes: Any) -> Any:
    """`x` at other sizes."""
    return run("Resize", x, None, None, np.array(sizes), **attributes)[0]


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, st.sampled_from(TRANSFORMS), st.sampled_from(["nearest", "linear", "cubic"]), st.booleans())
def test_what_is_constant_stays_so(
    shape: list[int], sizes: list[int], transform: str, mode: str, antialias: bool
) -> None:
    more = {"antialias": int(antialias)} if mode != "nearest" else {}
    found = resized(np.full(shape, 3.5), sizes, coordinate_transformation_mode=transform, mode=mode, **more)
    np.testing.assert_allclose(found, np.full(sizes, 3.5), rtol=1e-12)


@settings(max_examples=60, deadline=None)
@given(SIZES, SIZES, st.booleans())
def test_linear_of_a_plane_is_the_plane(shape: list[int], sizes: list[int], cubic: bool) -> None:
    rows, columns = np.indices(shape, dtype=float)
    attributes = {"coordinate_transformation_mode": "align_corners", "mode": "linear"}
    if min(sizes) > 1 and not cubic:
        steps = [np.linspace(0, n - 1, m) for n, m in zip(shape, sizes, strict=True)]
        expected = 2 * steps[0][:, None] - 3 * steps[1] + 1
        np.testing.assert_allclose(resized(2 * rows - 3 * columns + 1, sizes, **attributes), expected, atol=1e-12)
    # Axes are independent: one after the other is both at once.
    x = np.random.default_rng(0).normal(size=shape)
    both = resized(x, sizes, mode="cubic" if cubic else "linear")
    first = resized(x, [sizes[0], shape[1]], mode="cubic" if cubic else "linear")
    np.testing.assert_allclose(resized(first, sizes, mode="cubic" if cubic else "linear"), both, atol=1e-12)


@pytest.mark.parametrize("dtype", ["uint8", "bool", "int64", "float16"])
def test_whole_factors_repeat(dtype: str) -> None:
    x = np.arange(6).reshape(2, 3).astype(dtype)
    np.testing.assert_array_equal(resized(x, [4, 9]), np.repeat(np.repeat(x, 2, 0), 3, 1))
    np.testing.assert_array_equal(run("Upsample", x, np.array([2, 3], np.float32))[0], resized(x, [4, 9]))


@pytest.mark.parametrize("factor", [3, 5, 7, 49])
@pytest.mark.parametrize("transform", ["half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn"])
def test_coordinates_that_are_whole_read_that_element(factor: int, transform: str) -> None:
    x = np.arange(6.0)
    rules = {"coordinate_transformation_mode": transform}
    shift = 0.0 if transform == "asymmetric" else 0.5
    back = 0.5 if "half_pixel" in transform and "nn" not in transform else 0.0
    exact = [(Fraction(y) + Fraction(shift)) / factor - Fraction(back) for y in range(6 * factor)]
    floors = [min(max(floor(at), 0), 5) for at in exact]
    ceilings = [min(max(ceil(at), 0), 5) for at in exact]
    assert resized(x, [6 * factor], nearest_mode="floor", **rules).tolist() == floors
    assert resized(x, [6 * factor], nearest_mode="ceil", **rules).tolist() == ceilings


def test_scales_that_float32_rounds_reach_whole_coordinates() -> None:
    scales, rules = np.array([1.6], np.float32), {"coordinate_transformation_mode": "asymmetric"}
    (found,) = run("Resize", np.arange(10.0), None, scales, nearest_mode="floor", **rules)
    assert found.tolist() == [y * 5 // 8 for y in range(16)]


def test_integers_are_rounded_and_limited() -> None:
    x = np.array([[0, 255]], np.uint8)
    found = resized(x, [1, 7], mode="cubic")
    assert found.min() == 0
    assert found.max() == 255  # where the cubic overshoots


def test_faults_name_their_input() -> None:
    x, two = TensorType("float32", (4, 4)), TensorType("float32", (2,), (2.0, 2.0))
    with pytest.raises(InferenceError, match="either scales or sizes"):
        infer("Resize", "n", [x, None, two, TensorType("int64", (2,), (8, 8))], {})
    with pytest.raises(InferenceError, match="for 2 axes") as caught:
        infer("Resize", "n", [x, None, TensorType("float32", (1,), (2.0,))], {})
    assert caught.value.path == ("inputs", 2)
