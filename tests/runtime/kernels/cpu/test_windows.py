"""Convolutions and pooling against windows that are made the slow way."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrun.graphs.operators.windows import Window
from tests.runtime.kernels.cpu.calls import Array, call_of, run


def windows(x: Array, kernel: tuple[int, ...], window: Window, fill: float) -> Array:
    """Every window of `x`, flattened last: [batch, channels, output …, taps]; the slow way."""
    wide = [(0, 0), (0, 0), *((b, e + 64) for b, e in zip(window.begin, window.end, strict=True))]
    source = np.pad(x, wide, constant_values=fill)
    out = np.empty((*x.shape[:2], *window.output, math.prod(kernel)), x.dtype)
    for place in product(*(range(size) for size in window.output)):
        for tap, at in enumerate(product(*(range(size) for size in kernel))):
            rows = zip(place, at, window.strides, window.dilations, strict=True)
            spot = tuple(p * s + a * d for p, a, s, d in rows)
            out[(slice(None), slice(None), *place, tap)] = source[(slice(None), slice(None), *spot)]
    return out


@st.composite
def window_cases(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Spatial sizes and window attributes that fit them."""
    rank = draw(st.integers(1, 3))
    several = lambda low, high: draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))  # noqa: E731
    kernel, dilations, strides = several(1, 3), several(1, 2), several(1, 3)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    spatial = [size + draw(st.integers(0, 5)) for size in reach]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "dilations": dilations, "strides": strides}
    auto = draw(st.sampled_from(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if auto == "NOTSET":
        attributes["pads"] = [draw(st.integers(0, size - 1)) for size in (*reach, *reach)]
    else:
        attributes["auto_pad"] = auto
    return tuple(spatial), attributes


def check_conv(x: Array, weight: Array, bias: Array, group: int, **attributes: Any) -> None:
    """Compare Conv with a sum over windows made the slow way."""
    from kgrun.graphs.operators.nn import conv_window

    call = call_of("Conv", [x, weight, bias], group=group, **attributes)
    kernel, taps = weight.shape[2:], math.prod(weight.shape[2:])
    met = windows(x, kernel, conv_window(call), 0.0).reshape(x.shape[0], group, weight.shape[1], -1, taps)
    filters = weight.reshape(group, -1, weight.shape[1], taps)
    expected = np.einsum("ngcok,gfck->ngfo", met, filters, optimize=True).reshape(call.outputs[0].shape)
    (found,) = run("Conv", x, weight, bias, group=group, **attributes)
    np.testing.assert_allclose(found, expected + bias.reshape(-1, *(1,) * len(kernel)), rtol=1e-9, atol=1e-9)


@settings(max_examples=80, deadline=None)
@given(window_cases(), st.sampled_from([(1, 1, 1), (2, 3, 2), (4, 1, 1), (3, 1, 2), (1, 4, 3)]), st.integers(1, 2))
def test_conv_is_a_sum_over_windows(
    case: tuple[tuple[int, ...], dict[str, Any]], groups: tuple[int, int, int], batch: int
) -> None:
    spatial, attributes = case
    group, channels, filters = groups
    rng = np.random.default_rng(4)
    x = rng.normal(size=(batch, group * channels, *spatial))
    weight = rng.normal(size=(group * filters, channels, *attributes["kernel_shape"]))
    check_conv(x, weight, rng.normal(size=group * filters), group, **attributes)


@pytest.mark.parametrize("strides", [[1, 1], [2, 1]])
@pytest.mark.parametrize(("group", "channels", "filters"), [(20, 1, 1), (10, 1, 2), (2, 40, 3)])
def test_large_images_are_walked_in_parts(strides: list[int], group: int, channels: int, filters: int) -> None:
    # Several chunks of channels, several bands of rows; small images take other ways.
    rng = np.random.default_rng(7)
    x = rng.normal(size=(2, group * channels, 63, 52))
    weight = rng.normal(size=(group * filters, channels, 3, 3))
    bias = rng.normal(size=group * filters)
    check_conv(x, weight, bias, group, strides=strides, pads=[1, 2, 0, 1], dilations=[2, 1])


@pytest.mark.parametrize(("group", "weight"), [(1, (5, 6, 3)), (3, (6, 2, 1)), (2, (4, 3, 3))])
@pytest.mark.parametrize("budget", [1, 600, 1 << 20])
def test_small_images_share_a_product(
    group: int, weight: tuple[int, ...], budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of them fit in scratch at a time, the last ones too."""
    monkeypatch.setattr("kgrun.runtime.kernels.cpu.convolution._BAND_BYTES", budget)
    rng = np.random.default_rng(3)
    x, w, bias = (rng.standard_normal(shape) for shape in ((7, 6, 9), weight, weight[:1]))
    check_conv(x, w, bias, group, pads=[weight[2] // 2] * 2, strides=[2])


@settings(max_examples=80, deadline=None)
@given(window_cases(), st.integers(0, 1), st.integers(0, 1))
def test_pooling_is_a_statistic_of_windows(
    case: tuple[tuple[int, ...], dict[str, Any]], ceil_mode: int, include: int
) -> None:
    from kgrun.graphs.operators.nn import pool_window

    spatial, attributes = case
    rng = np.random.default_rng(5)
    x = rng.normal(size=(2, 3, *spatial))
    kernel = tuple(attributes["kernel_shape"])
    attributes = attributes | {"ceil_mode": ceil_mode}
    window = pool_window(call_of("AveragePool", [x], **attributes))
    met = windows(x, kernel, window, np.nan)
    weight = np.isfinite(met).astype(float)
    if include:
        padded = np.pad(
            np.ones_like(x), [(0, 0), (0, 0), *zip(window.begin, window.end, strict=True)], constant_values=1
        )
        bare = Window(
            padded.shape[2:], window.kernel, window.strides, window.dilations, *[(0,) * len(spatial)] * 2, window.output
        )
        weight = windows(padded, kernel, bare, 0.0)
    with np.errstate(all="ignore"):
        average = np.nansum(met, -1) / weight.sum(-1)
    (found,) = run("AveragePool", x, count_include_pad=include, **attributes)
    np.testing.assert_allclose(found, average, rtol=1e-9, atol=1e-12)
    largest, places = run("MaxPool", x, count=2, **attributes)
    np.testing.assert_array_equal(largest, np.where(np.isnan(met), -np.inf, met).max(-1))
    np.testing.assert_array_equal(x.reshape(-1)[places[np.isfinite(largest)]], largest[np.isfinite(largest)])
