"""Random operators: the distribution that was asked for, and the same numbers at every run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import TensorType
from kgrun.graphs.operators.random_values import mixed
from kgrun.runtime.kernels.base import cpu_kernel
from tests.runtime.kernels.cpu.calls import run

Array = np.ndarray[Any, Any]
MANY = 200_000


def drawn(op: str, node: str, size: int = MANY, **attributes: Any) -> Array:
    """What a node of this name draws."""
    call = infer(op, node, [], {"shape": [size], "dtype": "float64", **attributes})
    out = np.zeros(size)
    cpu_kernel(op)(call)([], [out])
    return out


def test_the_sequence_is_splitmix64() -> None:
    # Its first words from state 0, as published with the algorithm.
    assert mixed(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF
    assert mixed(2 * 0x9E3779B97F4A7C15 % 2**64) == 0x6E789E6AA1B965F4


def test_uniform_numbers_fill_their_range_evenly() -> None:
    x = drawn("RandomUniform", "n", low=-2.0, high=6.0)
    assert x.min() >= -2.0
    assert x.max() < 6.0
    counts = np.histogram(x, 64, (-2, 6))[0]
    assert np.abs(counts - MANY / 64).max() < 6 * np.sqrt(MANY / 64)


def test_normal_numbers_have_the_moments_asked_for() -> None:
    x = (drawn("RandomNormal", "n", mean=3.0, scale=2.0) - 3) / 2
    assert abs(x.mean()) < 5 / np.sqrt(MANY)
    assert abs(x.std() - 1) < 5 / np.sqrt(2 * MANY)
    assert abs((x**3).mean()) < 5 * np.sqrt(15 / MANY)
    assert abs((x**4).mean() - 3) < 5 * np.sqrt(96 / MANY)
    assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 5 / np.sqrt(MANY)


def test_streams_follow_the_seed_or_the_name() -> None:
    for op in ("RandomUniform", "RandomNormal"):
        first = drawn(op, "a", 50)
        np.testing.assert_array_equal(first, drawn(op, "a", 50))
        assert not np.any(first == drawn(op, "b", 50))
        np.testing.assert_array_equal(drawn(op, "a", 50, seed=4.0), drawn(op, "b", 50, seed=4.0))
        assert not np.any(drawn(op, "a", 50, seed=4.0) == drawn(op, "a", 50, seed=5.0))


@pytest.mark.parametrize("dtype", ["bool", "float32", "int8"])
def test_bernoulli_draws_with_its_probabilities(dtype: str) -> None:
    chances = np.repeat([0.0, 0.25, 0.5, 1.0], MANY // 4).astype(np.float32)
    found = run("Bernoulli", chances, dtype=dtype)[0].reshape(4, -1).astype(np.float64).mean(1)
    np.testing.assert_allclose(found, [0, 0.25, 0.5, 1], atol=5 * 0.5 / np.sqrt(MANY / 4))
    assert (found[0], found[3]) == (0, 1)


def test_multinomial_draws_classes_by_their_weights() -> None:
    weights = np.array([[1.0, 3.0, 0.0, 4.0], [0.0, 1.0, 0.0, 0.0]])
    with np.errstate(divide="ignore"):
        found = run("Multinomial", np.log(weights), sample_size=MANY)[0]
    share = np.bincount(found[0], minlength=4) / MANY
    np.testing.assert_allclose(share, weights[0] / 8, atol=5 * 0.5 / np.sqrt(MANY))
    assert share[2] == 0
    assert set(found[1].tolist()) == {1}


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "text"),
    [
        ("RandomUniform", [], {"shape": [2], "dtype": "int32"}, "does not give int32"),
        ("RandomNormal", [], {"shape": [-2]}, "is no shape"),
        ("Multinomial", [TensorType("float32", (3,))], {}, r"takes \[batch, classes\]"),
        ("Multinomial", [TensorType("float32", (3, 2))], {"dtype": "float32"}, "does not give float32"),
    ],
)
def test_what_does_not_fit_is_refused(op: str, inputs: Any, attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(GraphError, match=text):
        infer(op, "n", inputs, attributes)
