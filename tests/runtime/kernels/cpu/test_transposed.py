"""Windows turned round: ConvTranspose and Col2Im are the adjoints of Conv and of cutting out windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrun.graphs.errors import GraphError
from tests.runtime.kernels.cpu.calls import run
from tests.runtime.kernels.cpu.test_windows import window_cases


@settings(max_examples=60, deadline=None)
@given(window_cases(), st.sampled_from([(1, 1, 1), (2, 3, 2), (3, 1, 2)]))
def test_conv_transpose_is_the_adjoint_of_conv(case: tuple[Any, Any], groups: tuple[int, int, int]) -> None:
    spatial, attributes = case
    if attributes.pop("auto_pad", "NOTSET") != "NOTSET":
        attributes.pop("pads", None)
    group, channels, filters = groups
    rng = np.random.default_rng(4)
    image = rng.normal(size=(2, group * channels, *spatial))
    weight = rng.normal(size=(group * filters, channels, *attributes["kernel_shape"]))
    (convolved,) = run("Conv", image, weight, group=group, **attributes)
    small = rng.normal(size=convolved.shape)
    # What a stride skips at the end is output_padding.
    kernel, dilations, strides = (attributes[name] for name in ("kernel_shape", "dilations", "strides"))
    pads, rank = attributes.get("pads", [0] * 2 * len(spatial)), len(spatial)
    sizes = zip(spatial, pads[:rank], pads[rank:], kernel, dilations, strides, strict=True)
    extra = [(n + b + e - (k - 1) * d - 1) % s for n, b, e, k, d, s in sizes]
    (large,) = run("ConvTranspose", small, weight, group=group, output_padding=extra, **attributes)
    assert large.shape == image.shape
    np.testing.assert_allclose((convolved * small).sum(), (image * large).sum(), rtol=1e-9, atol=1e-9)


def test_col2im_counts_how_often_a_place_is_met() -> None:
    columns = np.ones((1, 4, 9), np.int32)
    (found,) = run("Col2Im", columns, np.array([4, 4]), np.array([2, 2]))
    rows = np.array([1, 2, 2, 1])
    np.testing.assert_array_equal(found[0, 0], rows[:, None] * rows)


def test_max_unpool_puts_back_what_max_pool_took() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 6, 4)).astype(np.float32)
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    pooled, places = run("MaxPool", x, count=2, **window)
    (back,) = run("MaxUnpool", pooled, places, **window)
    np.testing.assert_array_equal(back[back != 0], np.where(back != 0, x, 0)[back != 0])
    assert np.count_nonzero(back) == pooled.size
    with pytest.raises(GraphError, match="index 144 is outside"):
        run("MaxUnpool", pooled, places * 0 + 144, **window)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pools_are_norms(p: int) -> None:
    x = np.random.default_rng(1).normal(size=(2, 3, 4, 6))
    norms = (np.abs(x.reshape(2, 3, 2, 2, 3, 2)) ** p).sum((3, 5)) ** (1 / p)
    np.testing.assert_allclose(run("LpPool", x, p=p, kernel_shape=[2, 2], strides=[2, 2])[0], norms)
    whole = (np.abs(x) ** p).sum((2, 3), keepdims=True) ** (1 / p)
    np.testing.assert_allclose(run("GlobalLpPool", x, p=p)[0], whole)
