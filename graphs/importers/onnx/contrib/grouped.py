"""GroupQueryAttention: few heads of keys and values, over a cache that every sequence fills at its own pace."""

from __future__ import annotations

from math import inf
from typing import Any

from kgrun.graphs.importers.onnx.contrib.parts import (
    Results,
    count,
    dtype_of,
    length,
    like,
    refuse,
    refuse_inputs,
    unsqueezed,
)  # fmt: skip
from kgrun.graphs.importers.onnx.errors import Unsupported
from kgrun.graphs.importers.onnx.uses import Use
from kgrun.graphs.importers.onnx.values import Value

_UNSUPPORTED_INPUTS = {"head_sink": 11, "k_scale": 12, "v_scale": 13, "q_norm_weight": 14, "k_norm_weight": 15,
                       "query_seqlens": 16}  # fmt: skip


def grouped(use: Use) -> Results:
    """New keys and values are written behind those of the cache, sequence by sequence; then ONNX's Attention.

    A query at position p of its sequence sees the keys up to p, within local_window_size of it.
    """
    refuse(use, smooth_softmax=-1 if use.attributes.get("smooth_softmax") == -1 else 0, qk_output=0,
           sliding_window_cache=0, k_quant_type="NONE", v_quant_type="NONE")  # fmt: skip
    refuse_inputs(use, **_UNSUPPORTED_INPUTS)
    if len(use.wanted) > 3 and use.wanted[3]:
        raise Unsupported("products of queries and keys as an output")
    queries, keys, values = _heads(use)
    lengths = use.part("Add", [use.part("Cast", [use.needed(5)], to="int64"), use.scalar(1)])
    new = length(use, queries, 2)
    before = use.part("Max", [use.part("Sub", [lengths, new]), use.scalar(0)])  # in the cache already
    places = use.part("Add", [unsqueezed(use, before, 1), unsqueezed(use, count(use, new), 0)])
    if use.attributes.get("do_rotary", 0):
        given = use.input(9)
        queries, keys = (_turned(use, each, places if given is None else given) for each in (queries, keys))
    past = [use.input(3), use.input(4)]
    if past[0] is not None and past[1] is not None:
        keys, values = (_appended(use, old, each, before) for old, each in zip(past, (keys, values), strict=True))
    seen = _seen(use, places, lengths, length(use, keys, 2))
    bias = use.input(10)
    if bias is not None:
        hidden = use.part("Where", [seen, like(use, queries, 0.0), use.constant(dtype_of(queries), (), (-inf,))])
        seen = use.part("Add", [bias, hidden])
    attributes: dict[str, Any] = {"softcap": use.attributes.get("softcap", 0.0)}
    if use.attributes.get("scale", 0.0):
        attributes["scale"] = use.attributes["scale"]
    made = use.part("Attention", [queries, keys, values, seen], **attributes)
    back = use.part("Transpose", [made], perm=[0, 2, 1, 3])
    return [use.part("Reshape", [back, use.ints([0, 0, -1])]), keys, values]


def _heads(use: Use) -> list[Value]:
    """Queries, keys and values [batch, heads, sequence, size], from three tensors or from one."""
    heads, shared = use.attributes["num_heads"], use.attributes["kv_num_heads"]
    if use.input(1) is not None:
        given = [(use.needed(0), heads), (use.needed(1), shared), (use.needed(2), shared)]
        found = [use.part("Reshape", [value, use.ints([0, 0, number, -1])]) for value, number in given]
    else:
        packed = use.part("Reshape", [use.needed(0), use.ints([0, 0, heads + 2 * shared, -1])])
        found = use.parts("Split", [packed, use.ints([heads, shared, shared])], 3, axis=2)
    return [use.part("Transpose", [value], perm=[0, 2, 1, 3]) for value in found]


def _turned(use: Use, value: Value, places: Value) -> Value:
    """Heads turned by the angles of their positions."""
    cos, sin = use.needed(7), use.needed(8)
    settings: dict[str, Any] = {"interleaved": use.attributes.get("rotary_interleaved", 0)}
    if cos.shape is not None:
        settings["rotary_embedding_dim"] = 2 * cos.shape[1]
    return use.part("RotaryEmbedding", [value, cos, sin, places], **settings)


def _appended(use: Use, old: Value | None, new: Value, before: Value) -> Value:
    """The cache with new rows behind those that each sequence has; longer where it has no room for them all."""
    assert old is not None
    total = use.part("Reshape", [use.part("Cast", [use.needed(6)], to="int64"), use.ints([1])])
    missing = use.part("Max", [use.part("Sub", [total, use.part("Shape", [old], start=2, end=3)]), use.ints([0])])
    none = use.ints([0, 0, 0, 0, 0, 0])
    pads = use.part("Concat", [none, missing, use.ints([0])], axis=0)
    return use.part("TensorScatter", [use.part("Pad", [old, pads]), new, before], axis=2)


def _seen(use: Use, places: Value, lengths: Value, total: Value) -> Value:
    """Which keys a query sees: [batch, 1, queries, keys]."""
    keys = count(use, total)
    queries = unsqueezed(use, places, 2)
    if not use.attributes.get("causal", 1):
        return unsqueezed(use, use.part("Less", [keys, unsqueezed(use, lengths, 1)]), 1, 2)
    seen = use.part("LessOrEqual", [keys, queries])
    window = use.attributes.get("local_window_size", -1)
    if window >= 0:
        near = use.part("Greater", [keys, use.part("Sub", [queries, use.scalar(window)])])
        seen = use.part("And", [seen, near])
    return unsqueezed(use, seen, 1)
