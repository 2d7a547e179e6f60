"""Quantised operators against plain integer arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import TensorType
from tests.runtime.kernels.cpu.calls import run

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)


def whole(shape: tuple[int, ...], dtype: str) -> Array:
    """Any integers of a type."""
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["int8", "uint8", "int16", "uint16"]), st.integers(1, 5), st.data())
def test_quantized_blocks_come_back_within_half_a_step(dtype: str, block: int, data: st.DataObject) -> None:
    shape, axis = data.draw(st.tuples(*[st.integers(1, 6)] * 3)), data.draw(st.integers(-3, 2))
    blocks = list(shape)
    blocks[axis] = -(-shape[axis] // block)
    limits = np.iinfo(dtype)
    scale = RNG.uniform(0.1, 2.0, blocks).astype(np.float32)
    zero = RNG.integers(limits.min, limits.max + 1, blocks).astype(dtype)
    stretched = np.repeat(scale, block, axis)
    stretched = np.take(stretched, range(shape[axis]), axis)
    offset = np.take(np.repeat(zero, block, axis), range(shape[axis]), axis).astype(np.float32)
    low, high = (limits.min - offset) * stretched, (limits.max - offset) * stretched
    x = RNG.uniform(low, np.maximum(high, low + 1e-3)).astype(np.float32)
    layout = {"axis": axis, "block_size": block}
    back = run("DequantizeLinear", run("QuantizeLinear", x, scale, zero, **layout)[0], scale, zero, **layout)[0]
    assert np.all(np.abs(back - np.clip(x, low, high)) <= stretched * 0.5001 + np.abs(x) * 1e-5)


def test_quotients_are_rounded_to_even_and_limited() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 400.0, -400.0, 126.5], np.float32)
    found = run("QuantizeLinear", x, np.float32(1).reshape(()), np.int8(1).reshape(()))[0]
    assert found.tolist() == [1, 3, 3, 1, -1, 127, -128, 127]


def test_division_takes_the_scales_precision_or_the_one_asked_for() -> None:
    x, scale = np.array([1.0005], np.float32), np.array(0.001, np.float32)
    zero = np.array(0, np.int16)
    assert run("QuantizeLinear", x, scale, zero)[0].tolist() == [1000]
    halved = np.rint(np.float16(x) / np.float16(scale)).astype(np.int16)
    assert run("QuantizeLinear", x, scale, zero, precision="float16")[0].tolist() == halved.tolist()
    assert run("QuantizeLinear", x, scale, zero, precision=0)[0].tolist() == [1000]


@pytest.mark.parametrize("terms", [7, 300, 70_000])
@pytest.mark.parametrize("types", [("int8", "uint8"), ("uint8", "int8"), ("uint8", "uint8")])
def test_integer_products_are_exact(terms: int, types: tuple[str, str]) -> None:
    a, b = whole((3, terms), types[0]), whole((terms, 2), types[1])
    zeros = whole((3,), types[0]), whole((2,), types[1])
    wide = (a.astype(np.int64) - zeros[0].reshape(-1, 1)) @ (b.astype(np.int64) - zeros[1])
    np.testing.assert_array_equal(run("MatMulInteger", a, b, *zeros)[0], wide.astype(np.int32))


@pytest.mark.parametrize(
    "shapes",
    [
        ((1, 600), (600, 700)),
        ((40, 600), (600, 9)),
        ((2, 3, 600), (2, 600, 4)),
        ((2, 3, 600), (600, 4)),
        ((600,), (600, 9)),
        ((600,), (600,)),
    ],
)
@pytest.mark.parametrize("zero", [0, 255])
def test_long_integer_products_of_the_largest_numbers_are_exact(shapes: tuple[tuple[int, ...], ...], zero: int) -> None:
    """Sums that float32 cannot hold; few rows are multiplied with a part of the matrix at a time."""
    a, b = (np.full(shape, 255 - zero, np.uint8) for shape in shapes)
    a[..., ::7] = 254 - zero // 2
    b[..., 1:2] = 3
    at = np.uint8(zero).reshape(())
    wide = np.matmul(a.astype(np.int64) - zero, b.astype(np.int64) - zero)
    np.testing.assert_array_equal(run("MatMulInteger", a, b, at, at)[0], wide)


@pytest.mark.parametrize(("channels", "kernel"), [(100, 3), (300, 1), (2, 17)])
def test_deep_integer_convolutions_of_the_largest_numbers_are_exact(channels: int, kernel: int) -> None:
    x, w = np.full((2, channels, 19, 18), 255, np.uint8), np.full((3, channels, kernel, kernel), -128, np.int8)
    x[:, 0], w[1] = 254, 127
    wanted = run("Conv", x.astype(np.float64), w.astype(np.float64))[0]
    np.testing.assert_array_equal(run("ConvInteger", x, w)[0], wanted.astype(np.int32))


def test_a_quantized_convolution_is_its_integer_one_rescaled() -> None:
    x, w, bias = whole((2, 4, 6, 5), "uint8"), whole((6, 2, 3, 3), "int8"), whole((6,), "int16").astype(np.int32)
    zero, each = whole((), "uint8"), whole((6,), "int8")
    layout = {"group": 2, "pads": [1, 1, 1, 1]}
    sums = run("ConvInteger", x, w, zero, each, **layout)[0]
    plain = run("Conv", x.astype(np.float64) - zero, w.astype(np.float64) - each.reshape(-1, 1, 1, 1), **layout)[0]
    np.testing.assert_array_equal(sums, plain.astype(np.int32))
    scales = np.float32(0.02).reshape(()), RNG.uniform(0.01, 0.1, 6).astype(np.float32), np.float32(0.5).reshape(())
    factor = scales[0] * scales[1].reshape(-1, 1, 1) / scales[2]
    wanted = np.rint((sums + bias.reshape(-1, 1, 1)).astype(np.float32) * factor) + 3
    found = run(
        "QLinearConv", x, scales[0], zero, w, scales[1], each, scales[2], np.int8(3).reshape(()), bias, **layout
    )
    np.testing.assert_array_equal(found[0], np.clip(wanted, -128, 127))


@pytest.mark.parametrize(
    ("op", "kinds", "attributes", "text"),
    [
        ("QuantizeLinear", [("float32", (2, 3)), ("float32", (2,))], {}, r"\[3\] is needed"),
        ("QuantizeLinear", [("float32", (2, 5)), ("float32", (2, 2))], {"block_size": 2}, r"\[2, 3\] is needed"),
        ("QuantizeLinear", [("float32", (2,)), ("float32", ())], {"output_dtype": "float32"}, "does not fit"),
        ("DequantizeLinear", [("int8", (2, 3)), ("float32", (3,)), ("int8", ())], {}, "different shapes"),
        ("MatMulInteger", [("int8", (2, 3)), ("int8", (3, 4)), ("int8", (3,))], {}, "one element a row is needed"),
        ("ConvInteger", [("int8", (1, 2, 3)), ("int8", (2, 2, 2)), ("int8", (2,))], {}, "input 2 has shape"),
    ],
)
def test_what_does_not_fit_is_refused(op: str, kinds: Any, attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(GraphError, match=text):
        infer(op, "n", [TensorType(*kind) for kind in kinds], attributes)
