"""Attention and RotaryEmbedding beyond ONNX's node tests: a plain formula on random sizes, and what is refused."""

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
RNG = np.random.default_rng(5)
SIZE = st.integers(1, 4)


@settings(max_examples=60, deadline=None)
@given(st.tuples(SIZE, SIZE, SIZE, st.integers(1, 6), st.integers(1, 6), SIZE, SIZE), st.booleans(), st.data())
def test_attention_is_the_formula_row_by_row(sizes: tuple[int, ...], causal: bool, data: st.DataObject) -> None:
    batch, shared, share, queries, keys, size, value_size = sizes
    past = data.draw(st.integers(0, 3))
    q = RNG.standard_normal((batch, shared * share, queries, size))
    k, v = (RNG.standard_normal((batch, shared, keys, n)) for n in (size, value_size))
    cache = [RNG.standard_normal((batch, shared, past, n)) for n in (size, value_size)]
    mask = RNG.integers(0, 2, (queries, keys + past)).astype(bool)
    given_past = cache if past else [None, None]
    found = run("Attention", q, k, v, mask, *given_past, count=3, is_causal=int(causal))
    k, v = (np.concatenate([old, new], 2) for old, new in zip(cache, (k, v), strict=True))
    np.testing.assert_array_equal(found[1], k)
    np.testing.assert_array_equal(found[2], v)
    for b, h, i in np.ndindex(batch, shared * share, queries):
        seen = [j for j in range(keys + past) if mask[i, j] and (not causal or j <= i + past)]
        scores = k[b, h // share, seen] @ q[b, h, i] / np.sqrt(size)
        weights = np.exp(scores) / np.exp(scores).sum()
        np.testing.assert_allclose(found[0][b, h, i], weights @ v[b, h // share, seen], atol=1e-12)


def test_turning_by_an_angle_keeps_lengths_and_adds_up() -> None:
    x, angles = RNG.standard_normal((2, 3, 5, 8)), RNG.uniform(0, 6, (2, 5, 4))
    once = run("RotaryEmbedding", x.astype(np.float32), *_cache(angles), interleaved=1)[0]
    twice = run("RotaryEmbedding", once, *_cache(angles), interleaved=1)[0]
    double = run("RotaryEmbedding", x.astype(np.float32), *_cache(2 * angles), interleaved=1)[0]
    np.testing.assert_allclose(np.linalg.norm(once, axis=3), np.linalg.norm(x, axis=3), rtol=1e-5)
    np.testing.assert_allclose(twice, double, atol=1e-5)


def _cache(angles: Array) -> tuple[Array, Array]:
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def test_a_position_outside_is_a_fault() -> None:
    x, cache = np.zeros((1, 1, 2, 4), np.float32), np.zeros((3, 2), np.float32)
    with pytest.raises(GraphError, match=r"position 3 is outside \[0, 2\]"):
        run("RotaryEmbedding", x, cache, cache, np.array([[0, 3]]))


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "text"),
    [
        ("Attention", [(1, 3, 2, 4), (1, 2, 2, 4), (1, 2, 2, 4)], {}, "do not fit"),
        ("Attention", [(1, 3, 4), (1, 3, 4), (1, 3, 4)], {}, "kv_num_heads are needed"),
        ("Attention", [(1, 2, 2, 4)] * 3 + [(2, 3)], {}, "do not broadcast"),
        ("Attention", [(1, 2, 2, 4)] * 3 + [(2, 2), (1, 2, 5, 4)], {}, "come together"),
        ("Attention", [(1, 2, 2, 4)] * 3, {"left_window_size": -2}, "left_window_size"),
        ("RotaryEmbedding", [(1, 2, 2, 4), (1, 2, 3), (1, 2, 3)], {}, "input 1 has shape"),
        ("RotaryEmbedding", [(1, 2, 4), (1, 2, 2), (1, 2, 2)], {}, "with num_heads 0"),
    ],
)
def test_what_does_not_fit_is_refused(op: str, shapes: Any, attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(GraphError, match=text):
        infer(op, "n", [TensorType("float32", shape) for shape in shapes], attributes)
