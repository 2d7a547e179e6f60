"""Scans and TopK on the CPU against orders and sums made the plain way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrun.graphs.operators.base import InferenceError
from tests.runtime.kernels.cpu.calls import run

NUMBERS = st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.0, np.inf, -np.inf, np.nan])


def plain_order(row: list[float], largest: bool) -> list[int]:
    """Indices in order: NaN above all, the lower index first among equals."""
    sign = -1 if largest else 1
    return sorted(
        range(len(row)), key=lambda i: (sign * (row[i] != row[i]), sign * (row[i] if row[i] == row[i] else 0), i)
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=12), st.booleans(), st.data())
def test_top_k_is_a_stable_sort(row: list[float], largest: bool, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(row)))
    x = np.array([row, row[::-1]], np.float32)
    values, indices = run("TopK", x, np.array([count]), count=2, largest=int(largest))
    expected = [plain_order(line, largest)[:count] for line in x.tolist()]
    assert indices.tolist() == expected
    np.testing.assert_array_equal(values, np.take_along_axis(x, np.array(expected, int).reshape(2, count), 1))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 30), st.booleans(), st.integers(0, 2**32 - 1))
def test_top_k_of_long_rows_is_the_same(nans: int, largest: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-40, 40, 5_000).astype(np.float16)
    x[rng.permutation(x.size)[:nans]] = np.nan
    _, indices = run("TopK", x, np.array([20]), count=2, largest=int(largest))
    assert indices.tolist() == plain_order(x.tolist(), largest)[:20]


def test_top_k_of_more_than_there_are_is_refused() -> None:
    with pytest.raises(InferenceError, match=r"TopK: \[4\] of 3 elements"):
        run("TopK", np.zeros(3, np.float32), np.array([4]), count=2)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["CumSum", "CumProd"]), st.integers(0, 2), st.booleans(), st.booleans(), st.integers(0, 4))
def test_scans_are_sums_and_products_of_parts(op: str, axis: int, reverse: bool, exclusive: bool, size: int) -> None:
    shape = [2, 3, 2]
    shape[axis] = size
    x = np.random.default_rng(9).integers(-3, 4, shape)
    function = np.sum if op == "CumSum" else np.prod
    lines = np.moveaxis(x, axis, 0)[:: -1 if reverse else 1]
    parts = [function(lines[: i + (not exclusive)], axis=0) for i in range(size)]
    expected = np.moveaxis(np.array(parts).reshape(lines.shape)[:: -1 if reverse else 1], 0, axis)
    (found,) = run(op, x, np.array(axis), reverse=int(reverse), exclusive=int(exclusive))
    np.testing.assert_array_equal(found, expected)


def test_sums_of_halves_are_carried_in_float32() -> None:
    (found,) = run("CumSum", np.full(4096, 0.5, np.float16), np.array(0))
    assert found[-1] == 2048
