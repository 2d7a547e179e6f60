"""Decoding operators beyond ONNX's node tests: caches by their pseudocode, states carried from call to call."""

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

RNG = np.random.default_rng(9)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.lists(st.integers(1, 3), min_size=0, max_size=2), st.integers(1, 6), st.data())
def test_caches_are_written_as_onnx_says(batch: int, middle: list[int], size: int, data: st.DataObject) -> None:
    count, circular = data.draw(st.integers(0, size)), data.draw(st.booleans())
    cache = RNG.standard_normal((batch, *middle, size, 2))
    update = RNG.standard_normal((batch, *middle, count, 2))
    most = 2 * size if circular else size - count
    starts = np.array([data.draw(st.integers(0, most)) for _ in range(batch)])
    mode = "circular" if circular else "linear"
    want = cache.copy()
    for prefix in np.ndindex(want.shape[:-2]):
        for step in range(count):
            at = starts[prefix[0]] + step
            want[(*prefix, at % size if circular else at)] = update[(*prefix, step)]
    np.testing.assert_array_equal(run("TensorScatter", cache, update, starts, mode=mode)[0], want)


def test_an_index_that_leaves_the_cache_is_a_fault() -> None:
    cache, update = np.zeros((1, 4, 2)), np.zeros((1, 2, 2))
    with pytest.raises(GraphError, match="index 3 leaves a cache of 4 positions"):
        run("TensorScatter", cache, update, np.array([3]))


def test_a_convolution_in_pieces_is_the_whole_one() -> None:
    x, w, b = (RNG.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 12), (3, 1, 4), (3,)))
    whole, last = run("CausalConvWithState", x, w, b, count=2, activation="silu")
    state, parts = np.zeros((2, 3, 3), np.float32), []
    for piece in np.split(x, [1, 6, 8], 2):
        part, state = run("CausalConvWithState", piece, w, b, state, count=2, activation="silu")
        parts.append(part)
    np.testing.assert_allclose(np.concatenate(parts, 2), whole, rtol=1e-6)
    np.testing.assert_array_equal(state, last)


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_attention_in_pieces_is_the_whole_one(rule: str) -> None:
    shapes: list[tuple[int, ...] | None] = [(2, 7, 8), (2, 7, 4), (2, 7, 6)]
    shapes += [(2, 7, 4) if "gated" in rule else None, (2, 7, 2) if "delta" in rule else None]
    arrays = [None if shape is None else RNG.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    heads = {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": rule}
    whole, last = run("LinearAttention", *arrays[:3], None, *arrays[3:], count=2, **heads)
    state, parts = np.zeros((2, 2, 2, 3), np.float32), []
    for piece in (slice(0, 1), slice(1, 5), slice(5, 7)):
        own = [None if array is None else array[:, piece].copy() for array in arrays]
        part, state = run("LinearAttention", *own[:3], state, *own[3:], count=2, **heads)
        parts.append(part)
    np.testing.assert_allclose(np.concatenate(parts, 1), whole, atol=1e-6)
    np.testing.assert_allclose(state, last, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "text"),
    [
        ("TensorScatter", [(2, 3, 4), (2, 4, 4)], {}, "4 positions for a cache of 3"),
        ("TensorScatter", [(2, 3), (2, 3)], {"axis": 0}, "the sequence is no axis 0"),
        ("SwiGLU", [(2, 3), (3,)], {}, "differ"),
        ("CausalConvWithState", [(1, 2, 3), (3, 1, 2)], {}, "weight"),
        ("LinearAttention", [(1, 2, 4)] * 3, {"q_num_heads": 2, "kv_num_heads": 2}, "needs input 4"),
    ],
)
def test_what_does_not_fit_is_refused(op: str, shapes: Any, attributes: dict[str, Any], text: str) -> None:
    count = 1 if op in ("TensorScatter", "SwiGLU") else 2
    with pytest.raises(GraphError, match=text):
        infer(op, "n", [TensorType("float32", shape) for shape in shapes], attributes, count)
