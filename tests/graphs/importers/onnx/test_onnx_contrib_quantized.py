"""Quantised operators and packed weights of ONNX Runtime's own domain: each must compute what ONNX Runtime does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .contrib_models import Case, agree, refused
from .models import Array, floats

pytest.importorskip("onnx")

U8, I8, I32 = np.uint8, np.int8, np.int32


def whole(*shape: int, low: int = 0, high: int = 255, dtype: Any = U8, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def signed(*shape: int) -> Array:
    """Seven bits: ONNX Runtime adds pairs of products up in 16 bits on processors without instructions of their own."""
    return whole(*shape, low=-63, high=64, dtype=I8)


def scale(number: float) -> Array:
    return np.array(number, np.float32)


def zero(number: int) -> Array:
    return np.array(number, U8)


def quantized(array: Array) -> tuple[Array, Array, Array]:
    """The numbers, scale and zero point that fit an array."""
    step = (array.max() - array.min()) / 255
    middle = np.round(-array.min() / step)
    return np.clip(np.round(array / step + middle), 0, 255).astype(U8), scale(step), zero(int(middle))


BYTES, IMAGE = whole(2, 6), whole(1, 4, 6, 6)
FROM, TO = [scale(0.1), zero(128)], [scale(0.1), zero(120)]
WIDE = whole(5, low=-999, high=999, dtype=I32)
CONVOLUTION = [scale(0.02), np.array(0, I8), scale(3.0), zero(120)]

CASES: dict[str, Case] = {
    "mean of windows": Case("QLinearAveragePool", [IMAGE, *FROM, *TO], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "mean of windows, channels last": Case(
        "QLinearAveragePool", [IMAGE, *FROM, *TO], {"kernel_shape": [2, 2], "channels_last": 1}
    ),
    "mean of images": Case("QLinearGlobalAveragePool", [IMAGE, *FROM, *TO]),
    "mean of images, channels last": Case("QLinearGlobalAveragePool", [IMAGE, *FROM, *TO], {"channels_last": 1}),
    "largest, channels last": Case("NhwcMaxPool", [IMAGE], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "softmax": Case("QLinearSoftmax", [BYTES, scale(0.02), zero(128), scale(1 / 256), zero(0)], {"opset": 13}),
    "softmax of all axes": Case(
        "QLinearSoftmax",
        [whole(2, 3, 4), scale(0.02), zero(128), scale(1 / 256), zero(0)],
        {"opset": 11, "axis": 1},
    ),
    "concat": Case(
        "QLinearConcat", [scale(0.2), zero(100), BYTES, *FROM, BYTES[:1], scale(0.3), zero(90)], {"axis": 0}
    ),
    "where": Case(
        "QLinearWhere",
        [BYTES > 100, BYTES, *FROM, BYTES[::-1].copy(), scale(0.2), zero(3), scale(0.2), zero(90)],
    ),
    "gemm": Case(
        "QGemm",
        [BYTES, *FROM, signed(6, 5), scale(0.02), np.array(3, I8), WIDE, scale(0.5), zero(100)],
        constants=frozenset({3, 4, 5}),
    ),
    "gemm to floats, a scale a column": Case(
        "QGemm",
        [BYTES, *FROM, signed(5, 6), np.abs(floats(5)) * 0.1, np.zeros(5, I8), WIDE],
        {"transB": 1, "alpha": 0.5},
        constants=frozenset({3, 4, 5}),
    ),
    "conv": Case(
        "QLinearConv",
        [IMAGE, *FROM, signed(3, 4, 3, 3), *CONVOLUTION],
        {"pads": [1, 1, 1, 1]},
        constants=frozenset({3, 4, 5}),
    ),
    "conv, channels last": Case(
        "QLinearConv",
        [IMAGE, *FROM, signed(3, 6, 3, 3), *CONVOLUTION],
        {"channels_last": 1},
        constants=frozenset({3, 4, 5}),
    ),
}

X, X_SCALE, X_ZERO = quantized(floats(2, 5, 12))
WEIGHTS, BIAS = signed(12, 36), floats(36, seed=2)
SEEN = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], I32)
CASES |= {
    "attention": Case(
        "QAttention", [X, WEIGHTS, BIAS, X_SCALE, scale(0.01), SEEN, X_ZERO, np.array(0, I8)], {"num_heads": 3}
    ),
    "attention, a scale a column": Case(
        "QAttention",
        [X, WEIGHTS, BIAS, X_SCALE, np.abs(floats(36)) * 0.01, None, X_ZERO, signed(36) // 20],
        {"num_heads": 3},
    ),
    "attention, a cache": Case(
        "QAttention",
        [X, WEIGHTS, BIAS, X_SCALE, scale(0.01), None, X_ZERO, np.array(0, I8), floats(2, 2, 3, 3, 4)],
        {"num_heads": 3, "unidirectional": 1},
        outputs=2,
    ),
}

IDS, SEGMENTS = np.array([[1, 2, 3], [4, 5, 6]], I32), np.array([[0, 0, 1], [0, 1, 1]], I32)
TABLES = [quantized(floats(*shape, seed=at)) for at, shape in enumerate(((10, 8), (6, 8), (2, 8), (8,), (8,)))]
CASES["embeddings"] = Case(
    "QEmbedLayerNormalization",
    [IDS, SEGMENTS, *(table[0] for table in TABLES), np.array([[1, 1, 0], [1, 0, 1]], I32),
     *(table[1] for table in TABLES), *(table[2] for table in TABLES)],
    {"epsilon": 1e-5},
    outputs=2,
)  # fmt: skip


def packed(
    bits: int, size: int, block: int, zeros: str = "", *, bias: bool = False, flat: bool = False, **more: Any
) -> Case:
    """MatMulNBits with a matrix of 8 rows of `size` elements."""
    rng, blocks = np.random.default_rng(0), -(-size // block)
    weights = rng.integers(0, 256, (8, blocks, block * bits // 8)).astype(U8)
    scales = (rng.random((8, blocks)) * 0.1).astype(np.float32)
    middles: Array | None = None
    if zeros == "packed":
        middles = rng.integers(0, 256, (8, -(-blocks * bits // 8))).astype(U8)
    if zeros == "floats":
        middles = (rng.random((8, blocks)) * 16).astype(np.float32)
    if flat:
        scales, middles = scales.ravel(), None if middles is None else middles.ravel()
    arrays = [floats(2, 3, size), weights, scales, middles, None, floats(8) if bias else None]
    attributes = {"K": size, "N": 8, "bits": bits, "block_size": block, **more}
    return Case("MatMulNBits", arrays, attributes, frozenset({1, 2, 3}))


ROWS = np.array([[0, 3], [6, 2]])
CASES |= {
    "4 bits": packed(4, 64, 32),
    "4 bits, an odd number of middles": packed(4, 96, 32, "packed"),
    "4 bits, middles between numbers": packed(4, 96, 32, "floats"),
    "4 bits, a last block that reaches past, and a bias": packed(4, 40, 16, "packed", bias=True),
    "4 bits, scales in a row": packed(4, 64, 32, "packed", flat=True),
    "8 bits": packed(8, 64, 32, "packed"),
    "2 bits": packed(2, 64, 32, "packed"),
    "rows of 4 bits": Case(
        "GatherBlockQuantized",
        [whole(7, 16), ROWS, np.abs(floats(7, 2)), whole(7, 1, seed=2)],
        {"bits": 4, "block_size": 16, "quantize_axis": 1},
        constants=frozenset({0, 2, 3}),
    ),
    "rows of 4 bits around the middle": Case(
        "GatherBlockQuantized",
        [whole(7, 16), ROWS, np.abs(floats(7, 2))],
        {"bits": 4, "block_size": 16, "quantize_axis": 1},
        constants=frozenset({0, 2}),
    ),
    "rows of 8 bits": Case(
        "GatherBlockQuantized",
        [whole(7, 32), np.array([0, 3]), np.abs(floats(7, 2)), whole(7, 2, seed=2)],
        {"bits": 8, "block_size": 16, "quantize_axis": 1},
        constants=frozenset({0, 2, 3}),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_quantised_operator_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    agree(CASES[name], tmp_path / "m.onnx")


REFUSED: dict[str, tuple[Case, str]] = {
    "3 bits": (packed(3, 64, 32), "3 bits"),
    "weights that a device packed": (packed(4, 64, 32, weight_prepacked=1), "weight_prepacked"),
    "columns gathered": (
        Case("GatherBlockQuantized", [whole(7, 16), ROWS, np.abs(floats(7, 2))], {"gather_axis": 1}, frozenset({0, 2})),
        "other axes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_forms_that_are_not_there_are_named(name: str, tmp_path: Path) -> None:
    refused(tmp_path, *REFUSED[name])
