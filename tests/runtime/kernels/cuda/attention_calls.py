"""Calls of attention operators for the tests of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import OpCall, TensorType

Ints = tuple[int, ...]
FLOATS = ("float32", "float16", "bfloat16", "float64")


def attention(op: str) -> Iterator[OpCall]:
    """Calls of one attention operator."""
    yield from (_rotaries() if op == "RotaryEmbedding" else _attentions())


def _attentions() -> Iterator[OpCall]:
    def call(
        q: Ints, k: Ints, v: Ints, mask: TensorType | Ints | None = None, past: int = 0, *, dtype: str = "float32",
        lengths: bool = False, outputs: int = 1, **more: Any,
    ) -> OpCall:  # fmt: skip
        shared = more.get("kv_num_heads") or k[1]
        sizes = [s[-1] // shared if len(q) == 3 else s[-1] for s in (k, v)]
        kinds: list[TensorType | None] = [TensorType(dtype, shape) for shape in (q, k, v)]
        kinds.append(TensorType(dtype, mask) if isinstance(mask, tuple) else mask)
        kinds += [TensorType(dtype, (q[0], shared, past, size)) if past else None for size in sizes]
        kinds.append(TensorType("int64", (q[0],)) if lengths else None)
        return infer("Attention", f"attention_{dtype}_{outputs}", kinds, more, outputs)

    for dtype in FLOATS:
        yield call((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), dtype=dtype)
    yield call((2, 4, 3, 40), (2, 2, 40, 40), (2, 2, 40, 33), (3, 40), is_causal=1)
    yield call((2, 4, 3, 8), (2, 1, 4, 8), (2, 1, 4, 6), (2, 1, 3, 9), 5, outputs=3, is_causal=1)
    yield call((2, 5, 12), (2, 7, 6), (2, 7, 10), outputs=3, q_num_heads=4, kv_num_heads=2, scale=0.7)
    yield call((1, 5, 12), (1, 3, 6), (1, 3, 6), None, 4, outputs=4, q_num_heads=4, kv_num_heads=2)
    boolean = TensorType("bool", (2, 1, 3, 7))
    for mode in range(4):
        sizes: tuple[Ints, Ints, Ints] = ((2, 3, 3, 8), (2, 3, 7, 8), (2, 3, 7, 8))
        yield call(*sizes, boolean, outputs=4, qk_matmul_output_mode=mode, softcap=1.5)
    yield call(
        (3, 2, 2, 8), (3, 2, 50, 8), (3, 2, 50, 8), lengths=True, is_causal=1, outputs=4, qk_matmul_output_mode=3
    )
    yield call((2, 2, 6, 8), (2, 2, 9, 8), (2, 2, 9, 8), (7,), left_window_size=2, right_window_size=1)
    yield call((1, 2, 1, 64), (1, 2, 300, 64), (1, 2, 300, 64), TensorType("int32", (300,)))
    yield call((1, 2, 0, 8), (1, 2, 3, 8), (1, 2, 3, 8))


def _rotaries() -> Iterator[OpCall]:
    def call(dtype: str, x: Ints, rotated: int, known: Ints, positions: Ints | None = None, **more: Any) -> OpCall:
        cache = TensorType(dtype, (*known, rotated // 2))
        kinds = [TensorType(dtype, x), cache, cache, None if positions is None else TensorType("int64", positions)]
        return infer("RotaryEmbedding", f"rotary_{dtype}", kinds, more)

    for dtype in ("float32", "float16", "bfloat16"):
        yield call(dtype, (2, 4, 3, 8), 8, (50,), (2, 3))
    yield call("float32", (2, 4, 3, 8), 8, (2, 3), interleaved=1)
    yield call("float32", (2, 3, 32), 6, (50,), (2, 3), num_heads=4, rotary_embedding_dim=6)
    yield call("float32", (2, 3, 32), 6, (2, 3), num_heads=4, rotary_embedding_dim=6, interleaved=1)


FAMILIES = {"attention": attention}
