"""Attention and RotaryEmbedding.

Queries, keys and values are [batch, heads, sequence, size], or [batch, sequence, heads · size] with the numbers of
heads as attributes. Several heads of queries may share one of keys and values. A row of which every key is masked gives
zeros.
Softmax is computed in float32 (float64 for float64), whatever `softmax_precision` says.
"""

from __future__ import annotations

from math import sqrt

from kgrun.graphs.dtypes import NUMBERS, WIDE_FLOATS
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.shapes import Shape, broadcast_shape, like, needs_dtype, same_dtype
from kgrun.graphs.records import dataclass


@dataclass(frozen=True, slots=True)
class AttentionSizes:
    """The sizes of an Attention call.

    Attributes:
        heads, shared: heads of queries; of keys and values.
        queries, keys: sequence lengths; of these keys `past` come from the cache.
        size, value_size: of one head.
        flat: whether inputs have three axes.
        scale: of the products of queries and keys.
    """

    batch: int
    heads: int
    shared: int
    queries: int
    keys: int
    past: int
    size: int
    value_size: int
    flat: bool
    scale: float


def attention_sizes(call: OpCall) -> AttentionSizes:
    """Sizes of a call; InferenceError where its shapes do not fit together."""
    q, k, v = (call.input(index).shape for index in range(3))
    flat = len(q) == 3
    for index, shape in enumerate((q, k, v)):
        if len(shape) not in (3, 4) or len(shape) != len(q) or shape[0] != q[0]:
            call.fail(f"Attention: input {index} has shape {list(shape)}, queries {list(q)}", "inputs", index)
    if flat:
        heads, shared = (call.attributes.get(name, 0) for name in ("q_num_heads", "kv_num_heads"))
        if min(heads, shared) < 1:
            call.fail("Attention: q_num_heads and kv_num_heads are needed", "attributes")
        for index, (shape, count) in enumerate(((q, heads), (k, shared), (v, shared))):
            if shape[2] % count:
                call.fail(f"Attention: {shape[2]} is no multiple of {count} heads", "inputs", index)
        q, k, v = ((s[0], n, s[1], s[2] // n) for s, n in ((q, heads), (k, shared), (v, shared)))
    if k[1] != v[1] or k[2] != v[2] or k[3] != q[3] or k[1] < 1 or q[1] % k[1]:
        call.fail(f"Attention: queries {list(q)}, keys {list(k)} and values {list(v)} do not fit", "inputs")
    past = call.optional(4)
    length = past.shape[2] if past is not None and len(past.shape) == 4 else 0
    scale = call.attributes.get("scale")
    return AttentionSizes(
        batch=q[0], heads=q[1], shared=k[1], queries=q[2], keys=k[2] + length, past=length, size=q[3], value_size=v[3],
        flat=flat, scale=1 / sqrt(max(q[3], 1)) if scale is None else scale,
    )  # fmt: skip


def _attention(call: OpCall) -> list[TensorType]:
    s = attention_sizes(call)
    keys, values = same_dtype(call, 0, 1, 4), same_dtype(call, 2, 5)
    needs_dtype(call, 2, WIDE_FLOATS)
    needs_dtype(call, 3, NUMBERS | {"bool"})
    needs_dtype(call, 6, ("int64",))
    present = (s.batch, s.shared, s.keys)
    if (call.optional(4) is None) != (call.optional(5) is None):
        call.fail("Attention: past_key and past_value come together", "inputs", 4)
    if call.optional(6) is not None and (call.optional(4) is not None or call.input(6).shape != (s.batch,)):
        call.fail(f"Attention: nonpad_kv_seqlen is [{s.batch}], without a past", "inputs", 6)
    for index, size in ((4, s.size), (5, s.value_size)):
        found = call.optional(index)
        if found is not None and found.shape != (s.batch, s.shared, s.past, size):
            call.fail(f"Attention: input {index} has shape {list(found.shape)}", "inputs", index)
    whole, mask = (s.batch, s.heads, s.queries, s.keys), call.optional(3)
    if mask is not None:
        shape = mask.shape
        padded = (*shape[:-1], s.keys) if shape and 1 <= shape[-1] <= s.keys else shape
        if len(shape) not in (1, 2, 3, 4) or broadcast_shape(call, [padded, whole]) != whole:
            call.fail(f"Attention: mask {list(shape)} for {list(whole)}", "inputs", 3)
    for name in ("left_window_size", "right_window_size"):
        if call.attributes[name] < -1:
            call.fail(f"Attention: {name} is -1 or a number of positions", "attributes", name)
    if call.attributes["qk_matmul_output_mode"] not in range(4):
        call.fail("Attention: qk_matmul_output_mode is 0, 1, 2 or 3", "attributes", "qk_matmul_output_mode")
    shape = (s.batch, s.heads, s.queries, s.value_size)
    shape = (s.batch, s.queries, s.heads * s.value_size) if s.flat else shape
    return [
        TensorType(keys, shape),
        TensorType(keys, (*present, s.size)),
        TensorType(values, (*present, s.value_size)),
        TensorType(keys, whole),
    ][: call.output_count]


def _attention_flops(call: OpCall) -> int:
    s = attention_sizes(call)
    return 2 * s.batch * s.heads * s.queries * s.keys * (s.size + s.value_size)


@dataclass(frozen=True, slots=True)
class RotarySizes:
    """The sizes of a RotaryEmbedding call; `rotated` leading elements of a head are turned."""

    batch: int
    heads: int
    sequence: int
    size: int
    rotated: int
    flat: bool


def rotary_sizes(call: OpCall) -> RotarySizes:
    """Sizes of a call; InferenceError where its shapes do not fit together."""
    shape, flat = call.input(0).shape, len(call.input(0).shape) == 3
    heads = call.attributes.get("num_heads", 0)
    if len(shape) not in (3, 4) or (flat and (heads < 1 or shape[2] % heads)):
        call.fail(f"RotaryEmbedding: input {list(shape)} with num_heads {heads}", "inputs", 0)
    if flat:
        shape = (shape[0], heads, shape[1], shape[2] // heads)
    rotated = call.attributes["rotary_embedding_dim"] or shape[3]
    if rotated % 2 or not 0 <= rotated <= shape[3]:
        call.fail(f"RotaryEmbedding: {rotated} of {shape[3]} elements", "attributes", "rotary_embedding_dim")
    batch, heads, sequence, size = shape
    return RotarySizes(batch, heads, sequence, size, rotated, flat)


def _rotary(call: OpCall) -> list[TensorType]:
    same_dtype(call, 0, 1, 2)
    needs_dtype(call, 3, ("int64",))
    s, positions = rotary_sizes(call), call.optional(3)
    steps: Shape = (s.batch, s.sequence)
    if positions is not None and positions.shape != steps:
        call.fail(f"RotaryEmbedding: positions of shape {list(positions.shape)}, not {list(steps)}", "inputs", 3)
    for index in (1, 2):
        found = call.input(index).shape
        lead = found[:-1] if positions is None else steps
        if found[-1:] != (s.rotated // 2,) or lead != steps or (positions is not None and len(found) != 2):
            call.fail(f"RotaryEmbedding: input {index} has shape {list(found)}", "inputs", index)
    if call.input(1).shape != call.input(2).shape:
        shapes = " and ".join(str(list(call.input(index).shape)) for index in (1, 2))
        call.fail(f"RotaryEmbedding: cosines and sines have different shapes {shapes}", "inputs", 2)
    return [like(call.input(0))]


_HEADS = Attribute("int")
register(
    OpSchema(
        "Attention",
        "attention",
        (3, 7),
        _attention,
        outputs=(1, 4),
        dtypes=WIDE_FLOATS,
        attributes={
            "is_causal": Attribute("int", 0),
            "kv_num_heads": _HEADS,
            "left_window_size": Attribute("int", -1),
            "q_num_heads": _HEADS,
            "qk_matmul_output_mode": Attribute("int", 0),
            "right_window_size": Attribute("int", -1),
            "scale": Attribute("float"),
            "softcap": Attribute("float", 0.0),
            "softmax_precision": Attribute("dtype"),
        },
        flops=_attention_flops,
    ),
    OpSchema(
        "RotaryEmbedding",
        "attention",
        (3, 4),
        _rotary,
        dtypes=WIDE_FLOATS - {"float64"},
        attributes={
            "interleaved": Attribute("int", 0),
            "num_heads": _HEADS,
            "rotary_embedding_dim": Attribute("int", 0),
        },
        flops=lambda call: 3 * call.input(0).size,
    ),
)
