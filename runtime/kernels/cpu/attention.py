"""Attention and RotaryEmbedding in numpy; narrower floats are computed in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators.attention import AttentionSizes, attention_sizes, rotary_sizes
from kgrun.graphs.operators.base import OpCall
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.common import given, widened

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def _by_head(array: Array, heads: int) -> Array:
    """[batch, heads, sequence, size], from three axes too."""
    if array.ndim == 4:
        return array
    return array.reshape(*array.shape[:2], heads, array.shape[2] // heads).transpose(0, 2, 1, 3)


def _bias(call: OpCall, s: AttentionSizes) -> Callable[[Array | None, Array | None, Any], Array]:
    """A function from mask, key lengths and dtype to what is added to the scores: -inf where a key is masked."""
    left, right = call.attributes["left_window_size"], call.attributes["right_window_size"]
    ahead = 0 if call.attributes["is_causal"] else None
    if right >= 0:
        ahead = right if ahead is None else min(ahead, right)

    def make(mask: Array | None, lengths: Array | None, dtype: Any) -> Array:
        bias = np.zeros((s.queries, s.keys), dtype)
        if mask is not None:
            missing = [(0, 0)] * (mask.ndim - 1) + [(0, s.keys - mask.shape[-1] if mask.shape[-1] != 1 else 0)]
            if mask.dtype == bool:
                mask = np.where(mask, dtype(0), dtype(-np.inf))
            bias = bias + np.pad(mask.astype(dtype), missing, constant_values=-np.inf)
        key = np.arange(s.keys)
        offset = np.array(s.past) if lengths is None else lengths.reshape(-1, 1, 1, 1) - s.queries
        behind = np.arange(s.queries)[:, None] + offset - key
        refused = np.zeros(behind.shape, bool)
        if ahead is not None:
            refused |= behind < -ahead
        if left >= 0:
            refused |= behind > left
        if lengths is not None:
            refused = refused | (key >= lengths.reshape(-1, 1, 1, 1))
        return np.where(refused, dtype(-np.inf), bias)

    return make


@on_cpu("Attention")
def attention(call: OpCall) -> HostFunction:
    """softmax(scale · Q Kᵀ, capped, + bias) V, with the cache in front of keys and values."""
    s = attention_sizes(call)
    bias_of, cap, mode = _bias(call, s), call.attributes["softcap"], call.attributes["qk_matmul_output_mode"]
    whole = (s.batch, s.heads, s.queries, s.keys)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        q, k, v = (_by_head(widened(inputs[i]), n) for i, n in ((0, s.heads), (1, s.shared), (2, s.shared)))
        if given(inputs, 4) is not None:
            k, v = (np.concatenate([widened(inputs[i]), new], 2) for i, new in ((4, k), (5, v)))
        dtype = q.dtype.type
        bias = bias_of(given(inputs, 3), given(inputs, 6), dtype)
        grouped = (s.batch, s.shared, (s.heads // s.shared) * s.queries)
        with np.errstate(all="ignore"):
            scores = np.matmul((q * dtype(s.scale)).reshape(*grouped, s.size), k.swapaxes(2, 3)).reshape(whole)
            shown = {0: scores}
            if cap > 0:
                scores = cap * np.tanh(scores / dtype(cap))
            shown[1] = scores
            scores = np.where(np.isneginf(bias), dtype(-np.inf), scores + bias)
            shown[2] = scores
            top = np.maximum.reduce(scores, 3, keepdims=True, initial=-np.inf)
            weights = np.exp(scores - np.where(np.isneginf(top), dtype(0), top))
            total = np.add.reduce(weights, 3, keepdims=True)
            weights /= np.where(total == 0, dtype(1), total)
            shown[3] = weights
            result = np.matmul(weights.reshape(*grouped, s.keys), v.astype(dtype, copy=False))
        result = result.reshape(s.batch, s.heads, s.queries, s.value_size)
        result = result.transpose(0, 2, 1, 3).reshape(outputs[0].shape) if s.flat else result
        for target, made in zip(outputs, (result, k, v, shown[mode]), strict=False):
            np.copyto(target, made, casting="unsafe")

    return run


@on_cpu("RotaryEmbedding")
def rotary(call: OpCall) -> HostFunction:
    """Pairs of a head's elements turned by the angle of their position."""
    s, interleaved = rotary_sizes(call), call.attributes["interleaved"]
    half = s.rotated // 2

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x, cos, sin = (widened(inputs[index]) for index in range(3))
        positions = given(inputs, 3)
        if positions is not None:
            wrong = positions[(positions < 0) | (positions >= len(cos))]
            if wrong.size:
                message = f"{call.node}: RotaryEmbedding's position {wrong.flat[0]} is outside [0, {len(cos) - 1}]"
                raise GraphError(message, code="KG333", help="check the positions")
            cos, sin = cos[positions], sin[positions]
        # [batch, sequence, heads, size] for three axes, [batch, heads, sequence, size] for four.
        x = x.reshape(s.batch, s.sequence, s.heads, s.size) if s.flat else x
        cos, sin = (np.expand_dims(angle, 2 if s.flat else 1) for angle in (cos, sin))
        result = x.copy()
        first, second = slice(0, half), slice(half, s.rotated)
        if interleaved:
            first, second = slice(0, s.rotated, 2), slice(1, s.rotated, 2)
        result[..., first] = cos * x[..., first] - sin * x[..., second]
        result[..., second] = sin * x[..., first] + cos * x[..., second]
        np.copyto(outputs[0], result.reshape(outputs[0].shape), casting="unsafe")

    return run
