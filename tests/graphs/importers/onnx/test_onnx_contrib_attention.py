"""Attention as ONNX Runtime fuses it: masks of all forms, caches, packed operands, turned heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError
from kgrun.graphs.importers.onnx import onnx_graph

from .contrib_models import Case, agree, by_onnx_runtime, save
from .models import Array, floats, run

pytest.importorskip("onnx")

I32 = np.int32
BATCH, LENGTH, HEADS, SIZE = 2, 5, 3, 4
WIDTH = HEADS * SIZE
X, WEIGHTS, BIAS = floats(BATCH, LENGTH, WIDTH), floats(WIDTH, 3 * WIDTH, seed=1) * 0.3, floats(3 * WIDTH, seed=2)
KEYS, VALUES = floats(BATCH, 7, WIDTH, seed=5), floats(BATCH, 7, WIDTH, seed=6)
KEPT_KEYS, KEPT_VALUES = floats(BATCH, HEADS, 3, SIZE, seed=1), floats(BATCH, HEADS, 3, SIZE, seed=2)
PAST = floats(2, BATCH, HEADS, 3, SIZE, seed=3)
MASK = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], I32)
SEEN = np.random.default_rng(0).integers(0, 2, (BATCH, LENGTH, LENGTH)).astype(I32)
_ANGLES = np.arange(16)[:, None] / 10 ** (np.arange(2) / 3)
COS, SIN = np.cos(_ANGLES).astype(np.float32), np.sin(_ANGLES).astype(np.float32)


def attention(*more: Array | None, outputs: int = 1, **attributes: Any) -> Case:
    return Case("Attention", [X, WEIGHTS, BIAS, *more], {"num_heads": HEADS, **attributes}, outputs=outputs)


def multi_head(*arrays: Array | None, outputs: int = 1, **attributes: Any) -> Case:
    return Case("MultiHeadAttention", arrays, {"num_heads": HEADS, **attributes}, outputs=outputs)


def rotary(x: Array, positions: Array, **attributes: Any) -> Case:
    return Case("RotaryEmbedding", [x, positions, COS, SIN], attributes)


def new(seed: int) -> Array:
    return floats(BATCH, LENGTH, WIDTH, seed=seed)


CASES: dict[str, Case] = {
    "attention": attention(),
    "attention, keys masked": attention(MASK),
    "attention, masked by another value": attention(MASK, mask_filter_value=-5.0),
    "attention, where sequences end": attention(np.array([4, 3], I32)),
    "attention, where sequences end and start": attention(np.array([5, 4, 1, 0], I32)),
    "attention, a mask for each query": attention(SEEN),
    "attention, to the past alone": attention(unidirectional=1),
    "attention, a cache begins": attention(MASK, outputs=2, unidirectional=1),
    "attention, a cache grows": attention(None, PAST, outputs=2, unidirectional=1),
    "attention, a masked cache": attention(np.ones((BATCH, 8), I32), PAST, outputs=2, scale=0.3),
    "attention, added scores": attention(None, None, floats(BATCH, HEADS, LENGTH, LENGTH, seed=9)),
    "attention, narrow values": Case(
        "Attention", [X, floats(WIDTH, 30, seed=4), floats(30)], {"num_heads": HEADS, "qkv_hidden_sizes": [12, 12, 6]}
    ),
    "attention, no bias": Case("Attention", [X, WEIGHTS, None], {"num_heads": HEADS}),
    "heads": multi_head(X, KEYS, VALUES),
    "heads, a bias": multi_head(X, KEYS, VALUES, BIAS),
    "heads, keys masked": multi_head(X, KEYS, VALUES, BIAS, np.array([[1] * 6 + [0], [1] * 3 + [0] * 4], I32)),
    "heads, where keys end": multi_head(X, KEYS, VALUES, None, np.array([6, 3], I32)),
    "heads, added scores": multi_head(X, KEYS, VALUES, None, None, floats(1, HEADS, LENGTH, 7, seed=8)),
    "heads, narrow values": multi_head(X, KEYS, floats(BATCH, 7, 6, seed=4), floats(30)),
    "heads, keys by head": multi_head(X, floats(BATCH, HEADS, 7, SIZE, seed=1), floats(BATCH, HEADS, 7, SIZE, seed=2)),
    "heads, keys by head and a bias": multi_head(
        X, floats(BATCH, HEADS, 7, SIZE, seed=1), floats(BATCH, HEADS, 7, SIZE, seed=2), BIAS
    ),
    "heads, a cache begins": multi_head(X, new(4), new(7), BIAS, outputs=3),
    "heads, a cache grows": multi_head(
        X, new(4), new(7), None, None, None, KEPT_KEYS, KEPT_VALUES, outputs=3, unidirectional=1
    ),
    "turned, positions of each": rotary(X, np.arange(10).reshape(2, 5)),
    "turned, the first position": rotary(X, np.array([4])),
    "turned, pairs side by side": rotary(X, np.array([4]), interleaved=1),
    "turned, by head": rotary(floats(BATCH, HEADS, LENGTH, SIZE), np.array([4])),
    "turned, a part of each head": rotary(
        floats(BATCH, LENGTH, HEADS * 8), np.array([4]), num_heads=HEADS, rotary_embedding_dim=4
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_attention_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    agree(CASES[name], tmp_path / "m.onnx")


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("packed", ["all", "keys and values"])
def test_packed_heads_are_what_they_are_made_of(packed: str, biased: bool, tmp_path: Path) -> None:
    """ONNX Runtime's CPU kernel does not take packed ones: it is given the parts."""
    apart, bias = [new(seed) for seed in range(3)], BIAS if biased else None
    by_head = [each.reshape(BATCH, LENGTH, HEADS, 1, SIZE) for each in apart]
    together = [np.concatenate(by_head, 3), None, None]
    if packed != "all":
        together = [apart[0], np.concatenate(by_head[1:], 3), None]
    wanted = by_onnx_runtime(tmp_path / "m.onnx", save(tmp_path / "m.onnx", multi_head(*apart, bias)))[0]
    inputs = save(tmp_path / "p.onnx", multi_head(*together, bias))
    found = run(onnx_graph(tmp_path / "p.onnx"), inputs)
    np.testing.assert_allclose(found["y0"], wanted, rtol=1e-4, atol=1e-4)


GROUPED = {"num_heads": 4, "kv_num_heads": 2}


def grouped(
    batch: int, new: int, past: int, ends: list[int], total: int, *, turned: bool = False, packed: bool = False,
    places: Array | None = None, bias: Array | None = None, valid: tuple[int, ...] = (), **attributes: Any,
) -> Case:  # fmt: skip
    """GroupQueryAttention; `ends`: the last key of each sequence. Rows of caches past it mean nothing."""
    parts = [floats(batch, new, width, seed=seed) for seed, width in enumerate((64, 32, 32))]
    arrays: list[Array | None] = [np.concatenate(parts, 2), None, None] if packed else [*parts]
    arrays += [floats(batch, 2, past, 16, seed=3), floats(batch, 2, past, 16, seed=4)]
    arrays += [np.array(ends, I32), np.array(total, I32)]
    angles = np.arange(16)[:, None] / 10 ** (np.arange(8) / 8)
    arrays += [np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)] if turned else [None, None]
    settings = GROUPED | attributes | ({"do_rotary": 1} if turned else {})
    held = {1: tuple(end + 1 for end in ends), 2: tuple(end + 1 for end in ends)}
    return Case("GroupQueryAttention", [*arrays, places, bias], settings, frozenset({6}), 3,
                valid={0: valid, **held} if valid else held)  # fmt: skip


GROUPED_CASES: dict[str, Case] = {
    "a prompt": grouped(2, 5, 0, [4, 4], 5),
    "a turned prompt": grouped(1, 5, 0, [4], 5, turned=True),
    "prompts of different lengths": grouped(2, 5, 0, [4, 2], 5, turned=True, valid=(5, 3)),
    "one token": grouped(1, 1, 6, [6], 7, turned=True),
    "one token, packed": grouped(1, 1, 6, [6], 7, turned=True, packed=True),
    "one token each, at different places": grouped(2, 1, 6, [6, 4], 7, turned=True),
    "pairs side by side": grouped(1, 1, 6, [6], 7, turned=True, rotary_interleaved=1),
    "several tokens": grouped(1, 3, 6, [8], 9, turned=True),
    "given positions": grouped(1, 3, 6, [8], 9, turned=True, places=np.array([[7, 8, 9]])),
    "added scores": grouped(1, 3, 6, [8], 9, turned=True, bias=floats(1, 1, 3, 9)),
    "a cache with room": grouped(1, 1, 12, [6], 7, turned=True),
    "a window": grouped(1, 1, 6, [6], 7, local_window_size=3),
    "a window over a prompt": grouped(1, 6, 0, [5], 6, local_window_size=3),
    "capped and scaled": grouped(1, 1, 6, [6], 7, softcap=2.0, scale=0.5),
    "every key": grouped(1, 4, 0, [3], 4, causal=0),
}


@pytest.mark.parametrize("name", GROUPED_CASES)
def test_grouped_heads_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    agree(GROUPED_CASES[name], tmp_path / "m.onnx")


REFUSED: dict[str, tuple[Case, str]] = {
    "turned inside": (attention(do_rotary=1), "do_rotary"),
    "a shared cache": (attention(past_present_share_buffer=1), "past_present_share_buffer"),
    "a mask of three numbers": (attention(np.array([1, 2, 3], I32)), "3 numbers for 2 sequences"),
    "scores as an output": (multi_head(X, KEYS, VALUES, outputs=4), "products of queries and keys"),
    "a smooth softmax": (grouped(1, 4, 0, [3], 4, smooth_softmax=1), "smooth_softmax"),
    "a scale of angles": (rotary(X, np.array([4]), scale=0.5), "scale"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_forms_that_are_not_there_are_named(name: str, tmp_path: Path) -> None:
    case, message = REFUSED[name]
    save(tmp_path / "m.onnx", case)
    with pytest.raises(GraphError, match=message) as caught:
        onnx_graph(tmp_path / "m.onnx")
    assert caught.value.code == "KG381"
