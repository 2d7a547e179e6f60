"""Attention with its projection, its cache and its masks, as ONNX Runtime fuses it, by ONNX's Attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kgrun.graphs.importers.onnx.contrib.grouped import grouped
from kgrun.graphs.importers.onnx.contrib.masks import added_mask
from kgrun.graphs.importers.onnx.contrib.parts import (
    Contrib,
    Results,
    count,
    length,
    refuse,
    refuse_inputs,
    sums,
    unsqueezed,
)  # fmt: skip
from kgrun.graphs.importers.onnx.errors import Unsupported
from kgrun.graphs.importers.onnx.uses import Use
from kgrun.graphs.importers.onnx.values import Value


def _attention(use: Use) -> Results:
    """Queries, keys and values by one product; then attention over the cache and them."""
    refuse(use, do_rotary=0, past_present_share_buffer=0)
    weights, bias = use.needed(1), use.input(2)
    if weights.shape is None:
        raise Unsupported("the size of its weights is not known")
    projected = use.part("MatMul", [use.needed(0), weights])
    if bias is not None:
        projected = use.part("Add", [projected, bias])
    sizes = use.attributes.get("qkv_hidden_sizes") or [weights.shape[1] // 3] * 3
    return attended(use, projected, sizes, use.input(3), use.input(4), use.input(5))


def attended(
    use: Use, projected: Value, sizes: Sequence[int], mask: Value | None, past: Value | None, bias: Value | None
) -> Results:
    """Attention of queries, keys and values that lie side by side; a cache [2, batch, heads, length, size] grows."""
    refuse(use, do_rotary=0, past_present_share_buffer=0)
    queries, keys, values = use.parts("Split", [projected, use.ints(sizes)], 3, axis=2)
    old: list[Value | None] = [None, None]
    total = length(use, projected, 1)
    if past is not None:
        halves = use.parts("Split", [past], 2, axis=0, num_outputs=2)
        old = [use.part("Squeeze", [half, use.ints([0])]) for half in halves]
        total = use.part("Add", [total, length(use, past, 3)])
    if mask is not None:
        mask = added_mask(use, mask, projected, projected, total)
    present = len(use.wanted) > 1 and use.wanted[1]
    made = _core(use, [queries, keys, values], sums(use, mask, bias), old, present)
    if not present:
        return made[:1]
    return [made[0], use.part("Concat", [unsqueezed(use, cache, 0) for cache in made[1:3]], axis=0)]


def _core(
    use: Use, operands: Sequence[Value], bias: Value | None, past: Sequence[Value | None], present: bool
) -> list[Value]:
    """ONNX's Attention of operands [batch, sequence, heads · size]: the result, and the caches if they are wanted."""
    heads = use.attributes["num_heads"]
    attributes: dict[str, Any] = {"q_num_heads": heads, "kv_num_heads": heads}
    attributes["is_causal"] = int(bool(use.attributes.get("unidirectional", 0)))
    if use.attributes.get("scale", 0.0):
        attributes["scale"] = use.attributes["scale"]
    inputs = [*operands, bias, *past]
    return use.emitter.op("Attention", inputs, attributes, 3 if present else 1, use.name)


def _multi_head(use: Use) -> Results:
    """Attention of what was projected before: three tensors, or packed ones, with or without a cache."""
    refuse_inputs(use, past_sequence_length=8, cache_indirection=9)
    if len(use.wanted) > 3 and use.wanted[3]:
        raise Unsupported("products of queries and keys as an output")
    projection, mask, bias, past = use.input(3), use.input(4), use.input(5), [use.input(6), use.input(7)]
    operands = _unpacked(use)
    if projection is not None:  # keys and values with a head axis come from a cache, which has the bias in it
        crossed = use.input(1) is not None and use.needed(1).rank == 4
        operands = _biased(use, operands, projection, 1 if crossed else 3)
    total = length(use, operands[1], 1)
    if past[0] is not None:
        total = use.part("Add", [total, length(use, past[0], 2)])
    if mask is not None:
        mask = added_mask(use, mask, operands[0], operands[0], total)
    made = _core(use, operands, sums(use, mask, bias), past, any(use.wanted[1:3]))
    return [*made, None, None][:3]


def _unpacked(use: Use) -> list[Value]:
    """Queries, keys and values [batch, sequence, heads · size]."""
    queries, keys, values = use.needed(0), use.input(1), use.input(2)
    if queries.rank == 5:
        return _apart(use, queries, 3)
    if keys is None:
        raise Unsupported("queries, keys and values in one tensor of three axes")
    if keys.rank == 5:
        return [queries, *_apart(use, keys, 2)]
    if values is None:
        raise Unsupported("keys without values")
    if keys.rank == 4:
        turned = [use.part("Transpose", [each], perm=[0, 2, 1, 3]) for each in (keys, values)]
        return [queries, *(use.part("Reshape", [each, use.ints([0, 0, -1])]) for each in turned)]
    return [queries, keys, values]


def _apart(use: Use, packed: Value, parts: int) -> list[Value]:
    """The tensors that lie side by side on axis 3 of [batch, sequence, heads, parts, size]."""
    found = use.parts("Split", [packed], parts, axis=3, num_outputs=parts)
    return [use.part("Reshape", [each, use.ints([0, 0, -1])]) for each in found]


def _biased(use: Use, operands: Sequence[Value], projection: Value, with_bias: int) -> list[Value]:
    """The first operands plus their parts of a bias of all three, end to end."""
    found = projection.shape
    sizes = [value.shape[2] if value.shape is not None else None for value in operands]
    if found is None or (sizes[0] is None and found[0] % 3):
        raise Unsupported("the size of its bias, or of its queries, is not known")
    size = sizes[0] if sizes[0] is not None else found[0] // 3
    parts = use.parts("Split", [projection, use.ints([size, size, found[0] - 2 * size])], 3, axis=0)
    return [
        use.part("Add", [value, part]) if at < with_bias else value
        for at, (value, part) in enumerate(zip(operands, parts, strict=True))
    ]


def _rotary(use: Use) -> Results:
    """RotaryEmbedding; one position stands for that of the first of a row of tokens."""
    refuse(use, scale=1.0, is_packed_batching=0)
    x, positions, cos, sin = (use.needed(index) for index in range(4))
    heads, rotated = use.attributes.get("num_heads", 0), use.attributes.get("rotary_embedding_dim", 0)
    if positions.rank == 1:
        positions = _row_of_positions(use, x, positions)
    settings: dict[str, Any] = {"interleaved": use.attributes.get("interleaved", 0)}
    if rotated:
        settings["rotary_embedding_dim"] = rotated
    if x.rank == 4 or heads:
        settings |= {"num_heads": heads} if x.rank == 3 else {}
        return use.result([x, cos, sin, positions], settings)
    if cos.shape is None:
        raise Unsupported("the size of a head is not known")
    apart = use.part("Reshape", [x, use.ints([0, 0, -1, 2 * cos.shape[1]])])
    turned = use.part("RotaryEmbedding", [use.part("Transpose", [apart], perm=[0, 2, 1, 3]), cos, sin, positions],
                      **settings)  # fmt: skip
    back = use.part("Transpose", [turned], perm=[0, 2, 1, 3])
    return use.result([back, use.ints([0, 0, -1])], {}, "Reshape")


def _row_of_positions(use: Use, x: Value, first: Value) -> Value:
    """first, first + 1, … for every sequence: [batch, sequence]."""
    axis = 1 if x.rank == 3 else 2
    row = use.part("Add", [count(use, length(use, x, axis)), first])
    batch = use.part("Shape", [x], start=0, end=1)
    shape = use.part("Concat", [batch, use.part("Shape", [x], start=axis, end=axis + 1)], axis=0)
    return use.part("Expand", [row, shape])


ATTENTION: dict[str, Contrib] = {
    "Attention": _attention,
    "MultiHeadAttention": _multi_head,
    "GroupQueryAttention": grouped,
    "RotaryEmbedding": _rotary,
}
