"""Operators whose shapes the run tells: exact arrays from their kernels, ordinary results where shapes are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrun.graphs.errors import DeviceUnavailable
from kgrun.graphs.operators import all_schemas, infer
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.kernels.base import cuda_kernel, dynamic_kernel
from tests.runtime.kernels.cpu.calls import dtype_of, run, typed

Array = np.ndarray[Any, Any]


def selected(op: str, *arrays: Array, count: int = 1, **attributes: Any) -> list[Array]:
    """What the kernel of a dynamic operator gives with nothing known while binding."""
    call = infer(op, "node", [typed(array) for array in arrays], attributes, count)
    assert not call.exact
    found = dynamic_kernel(op)(call)(arrays)
    for array, bound in zip(found, call.outputs, strict=True):
        assert array.dtype == dtype_of(bound.dtype)
        assert all(size <= most for size, most in zip(array.shape, bound.shape, strict=True))
    return found


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "uint8", "bool"])
def test_every_dtype_is_selected(dtype: str) -> None:
    x = np.array([[0, 1, 1], [3, 0, 1]]).astype(dtype_of(dtype))
    np.testing.assert_array_equal(selected("NonZero", x)[0], [[0, 0, 1, 1], [1, 2, 0, 2]])
    values, first, back, counts = selected("Unique", x, count=4, sorted=0)
    assert counts.sum() == x.size
    assert first.tolist() == sorted(first.tolist())
    np.testing.assert_array_equal(values[back], x.reshape(-1))
    np.testing.assert_array_equal(selected("Compress", x, np.array([True, False, True]), axis=1)[0], x[:, [0, 2]])


def test_a_scalar_has_no_coordinates() -> None:
    assert selected("NonZero", np.float32(3).reshape(()))[0].shape == (0, 1)


def plain_suppression(boxes: Array, scores: Array, most: int, overlap: float) -> list[int]:
    """Indices kept, one box after the other."""
    kept: list[int] = []
    for index in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        shares = []
        for other in kept:
            low = np.maximum(boxes[index][:2], boxes[other][:2])
            high = np.minimum(boxes[index][2:], boxes[other][2:])
            shared = np.prod(np.maximum(high - low, 0))
            areas = [np.prod(boxes[i][2:] - boxes[i][:2]) for i in (index, other)]
            shares.append(shared / (sum(areas) - shared))
        if len(kept) < most and all(share <= overlap for share in shares):
            kept.append(index)
    return kept


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 12), st.integers(1, 5), st.sampled_from([0.0, 0.3, 0.7]), st.integers(0, 2**32 - 1))
def test_suppression_is_greedy(count: int, most: int, overlap: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    low = rng.integers(0, 6, (1, count, 2))
    boxes = np.concatenate([low, low + rng.integers(1, 5, (1, count, 2))], 2).astype(np.float32)
    scores = rng.integers(0, 4, (1, 2, count)).astype(np.float32)
    limits = (np.array([most]), np.array([overlap], np.float32))
    (found,) = selected("NonMaxSuppression", boxes, scores, *limits)
    expected = [[0, kind, i] for kind in (0, 1) for i in plain_suppression(boxes[0], scores[0, kind], most, overlap)]
    assert found.tolist() == expected


def test_a_known_condition_makes_an_ordinary_operator() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    known = TensorType("bool", (3,), (True, False, True))
    call = infer("Compress", "node", [typed(x), known], {"axis": 0})
    assert call.exact
    assert call.outputs == (TensorType("float32", (2, 4)),)
    assert [type(work).__name__ for work in cuda_kernel("Compress")(call).work] == ["KernelCall", "KernelCall"]


def test_cuda_says_what_it_cannot_know() -> None:
    call = infer("NonZero", "node", [TensorType("float32", (3,))], {})
    with pytest.raises(DeviceUnavailable, match="known after the run only"):
        cuda_kernel("NonZero")(call)


def test_dynamic_operators_have_both_kernels() -> None:
    for name, schema in all_schemas().items():
        if schema.dynamic:
            assert dynamic_kernel(name)
    np.testing.assert_array_equal(
        run("NonMaxSuppression", np.zeros((1, 2, 4), np.float32), np.zeros((1, 1, 2), np.float32))[0], np.zeros((0, 3))
    )
