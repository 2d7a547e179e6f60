"""Calls of decoding operators for the tests of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import OpCall, TensorType

Ints = tuple[int, ...]
FLOATS = ("float32", "float16", "bfloat16", "float64")


def decoding(op: str) -> Iterator[OpCall]:
    """Calls of one decoding operator."""
    yield from _CALLS[op]()


def _scatters() -> Iterator[OpCall]:
    def call(dtype: str, cache: Ints, update: Ints, starts: bool = True, **more: Any) -> OpCall:
        kinds = [TensorType(dtype, cache), TensorType(dtype, update)]
        kinds += [TensorType("int64", cache[:1])] if starts else []
        return infer("TensorScatter", f"scatter_{dtype}", kinds, more)

    for dtype in ("float32", "float16", "int64", "bool", "float8_e4m3fn"):
        yield call(dtype, (3, 2, 9, 4), (3, 2, 4, 4))
    yield call("float32", (3, 9, 4), (3, 9, 4), starts=False)
    yield call("float32", (3, 9, 2, 5), (3, 4, 2, 5), axis=1, mode="circular")
    yield call("float32", (3, 9, 2), (3, 0, 2))


def _gates() -> Iterator[OpCall]:
    for dtype in FLOATS:
        yield infer("SwiGLU", f"swiglu_{dtype}", [TensorType(dtype, (3, 37))] * 2, {})
    yield infer("SwiGLU", "alpha", [TensorType("float32", (9,))] * 2, {"alpha": 1.7})


def _convolutions() -> Iterator[OpCall]:
    def call(dtype: str, x: Ints, taps: int, given: str = "", **more: Any) -> OpCall:
        shapes = [x, (x[1], 1, taps), x[1:2] if "b" in given else None, (*x[:2], taps - 1) if "p" in given else None]
        kinds = [None if shape is None else TensorType(dtype, shape) for shape in shapes]
        return infer("CausalConvWithState", f"causal_{dtype}_{given}", kinds, more, 2)

    for dtype in ("float32", "float16", "bfloat16"):
        yield call(dtype, (2, 5, 11), 4, "bp", activation="silu")
    yield call("float32", (2, 5, 11), 3)
    yield call("float32", (2, 5, 2), 4, "p")
    yield call("float32", (2, 5, 11), 1, "b", activation="swish")


def _attentions() -> Iterator[OpCall]:
    def call(dtype: str, rule: str, heads: int = 2, past: str | None = None, **more: Any) -> OpCall:
        batch, steps, shared, size, value_size = 2, 5, 2, 4, 3
        kinds: list[TensorType | None] = [
            TensorType(dtype, (batch, steps, n)) for n in (heads * size, shared * size, shared * value_size)
        ]
        kinds.append(None if past is None else TensorType(past, (batch, shared, size, value_size)))
        decay, beta = more.pop("decay", shared), more.pop("beta", shared)
        kinds.append(TensorType(dtype, (batch, steps, decay)) if "gated" in rule else None)
        kinds.append(TensorType(dtype, (batch, steps, beta)) if "delta" in rule else None)
        attributes = {"q_num_heads": heads, "kv_num_heads": shared, "update_rule": rule, **more}
        return infer("LinearAttention", f"linear_{dtype}_{rule}", kinds, attributes, 2)

    for dtype in ("float32", "float16", "bfloat16"):
        yield call(dtype, "gated_delta", 4, dtype)
    yield call("float32", "linear", scale=0.3)
    yield call("float32", "gated", decay=8)
    yield call("float32", "delta", beta=1)
    yield call("float16", "gated_delta", past="float32", decay=8)


_CALLS = {
    "TensorScatter": _scatters,
    "SwiGLU": _gates,
    "CausalConvWithState": _convolutions,
    "LinearAttention": _attentions,
}
FAMILIES = {"decoding": decoding}
