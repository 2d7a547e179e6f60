"""What language models decode with: caches written in place, gated units, convolution and attention with a state.

CausalConvWithState and LinearAttention give, besides their result, the state that the next call takes.
"""

from __future__ import annotations

from math import sqrt

from kgrun.graphs.dtypes import WIDE_FLOATS
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.shapes import axis_of, like, needs_dtype, same_dtype
from kgrun.graphs.records import dataclass

_NARROW = WIDE_FLOATS - {"float64"}


@dataclass(frozen=True, slots=True)
class LinearSizes:
    """The sizes of a LinearAttention call.

    Attributes:
        heads, shared: heads of queries; of keys, values and states.
        size, value_size: of one head: a state is [size, value_size].
        decay_each: whether every element of a head has a decay of its own; beta_heads: 1 or `shared`.
    """

    batch: int
    steps: int
    heads: int
    shared: int
    size: int
    value_size: int
    decay_each: bool
    beta_heads: int
    scale: float


def scatter_axis(call: OpCall) -> int:
    """TensorScatter's `axis` counted from the front; the batch is no sequence."""
    axis = axis_of(call)
    if axis == 0:
        call.fail("TensorScatter: the sequence is no axis 0, which counts the batch", "attributes", "axis")
    return axis


def _tensor_scatter(call: OpCall) -> list[TensorType]:
    same_dtype(call, 0, 1)
    needs_dtype(call, 2, ("int64",))
    cache, update, axis = call.input(0).shape, call.input(1).shape, scatter_axis(call)
    if len(update) != len(cache) or cache[:axis] + cache[axis + 1 :] != update[:axis] + update[axis + 1 :]:
        call.fail(f"TensorScatter: update {list(update)} for a cache {list(cache)}", "inputs", 1)
    if update[axis] > cache[axis]:
        call.fail(f"TensorScatter: {update[axis]} positions for a cache of {cache[axis]}", "inputs", 1)
    found = call.optional(2)
    if found is not None and found.shape != cache[:1]:
        call.fail(f"TensorScatter: write_indices {list(found.shape)} for a batch of {cache[0]}", "inputs", 2)
    return [like(call.input(0))]


def _swiglu(call: OpCall) -> list[TensorType]:
    same_dtype(call, 0, 1)
    if call.input(0).shape != call.input(1).shape:
        shapes = f"{list(call.input(0).shape)} and {list(call.input(1).shape)}"
        call.fail(f"SwiGLU: shapes {shapes} differ", "inputs", 1)
    return [like(call.input(0))]


def _causal_conv(call: OpCall) -> list[TensorType]:
    same_dtype(call, 0, 1, 2, 3)
    x, w = call.input(0).shape, call.input(1).shape
    if len(x) != 3 or len(w) != 3 or w[:2] != (x[1], 1) or w[2] < 1:
        call.fail(f"CausalConvWithState: weight {list(w)} for input {list(x)}", "inputs", 1)
    state = (*x[:2], w[2] - 1)
    for index, shape in ((2, x[1:2]), (3, state)):
        found = call.optional(index)
        if found is not None and found.shape != shape:
            message = f"CausalConvWithState: input {index} has shape {list(found.shape)}, not {list(shape)}"
            call.fail(message, "inputs", index)
    return [like(call.input(0)), like(call.input(0), state)][: call.output_count]


def linear_sizes(call: OpCall) -> LinearSizes:
    """Sizes of a call; InferenceError where its shapes do not fit together."""
    q, k, v = (call.input(index).shape for index in range(3))
    heads, shared = call.attributes["q_num_heads"], call.attributes["kv_num_heads"]
    if min(heads, shared) < 1 or heads % shared:
        call.fail(f"LinearAttention: {heads} heads of queries share {shared}", "attributes", "q_num_heads")
    if any(len(shape) != 3 or shape[:2] != q[:2] for shape in (q, k, v)) or q[2] % heads or v[2] % shared:
        call.fail(f"LinearAttention: queries {list(q)}, keys {list(k)}, values {list(v)}", "inputs")
    size = q[2] // heads
    if k[2] != size * shared:
        call.fail(f"LinearAttention: keys {list(k)} for {shared} heads of {size}", "inputs", 1)
    decay, beta = call.optional(4), call.optional(5)
    for found, index, allowed in ((decay, 4, (shared, shared * size)), (beta, 5, (shared, 1))):
        if found is not None and found.shape not in [(*q[:2], last) for last in allowed]:
            call.fail(f"LinearAttention: input {index} has shape {list(found.shape)}", "inputs", index)
    return LinearSizes(
        batch=q[0], steps=q[1], heads=heads, shared=shared, size=size, value_size=v[2] // shared,
        decay_each=decay is not None and decay.shape[2] != shared,
        beta_heads=beta.shape[2] if beta is not None else 1,
        scale=call.attributes["scale"] or 1 / sqrt(max(size, 1)),
    )  # fmt: skip


def _linear_attention(call: OpCall) -> list[TensorType]:
    dtype, rule = same_dtype(call, 0, 1, 2, 4, 5), call.attributes["update_rule"]
    for index, wanted in ((4, "gated" in rule), (5, "delta" in rule)):
        if (call.optional(index) is not None) != wanted:
            need = "needs" if wanted else "takes no"
            call.fail(f"LinearAttention: update_rule {rule} {need} input {index}", "inputs", index)
    needs_dtype(call, 3, _NARROW)
    s = linear_sizes(call)
    state, past = (s.batch, s.shared, s.size, s.value_size), call.optional(3)
    if past is not None and past.shape != state:
        call.fail(f"LinearAttention: past_state {list(past.shape)}, not {list(state)}", "inputs", 3)
    result = TensorType(dtype, (s.batch, s.steps, s.heads * s.value_size))
    return [result, TensorType(past.dtype if past is not None else dtype, state)][: call.output_count]


def _linear_flops(call: OpCall) -> int:
    s = linear_sizes(call)
    return 2 * s.batch * s.steps * s.size * s.value_size * (3 * s.shared + s.heads)


register(
    OpSchema(
        "TensorScatter",
        "decoding",
        (2, 3),
        _tensor_scatter,
        attributes={
            "axis": Attribute("int", -2),
            "mode": Attribute("string", "linear", choices=("linear", "circular")),
        },
        inplace=(0,),
    ),
    OpSchema(
        "SwiGLU",
        "decoding",
        (2, 2),
        _swiglu,
        dtypes=WIDE_FLOATS,
        attributes={"alpha": Attribute("float", 1.0)},
        inplace=(0, 1),
        flops=lambda call: 6 * call.outputs[0].size,
        data={"cuda": "x / (T(1) + exp(-{alpha} * x)) * y", "helpers": ""},
    ),
    OpSchema(
        "CausalConvWithState",
        "decoding",
        (2, 4),
        _causal_conv,
        outputs=(2, 2),
        dtypes=_NARROW,
        attributes={"activation": Attribute("string", "none", choices=("none", "silu", "swish"))},
        flops=lambda call: 2 * call.outputs[0].size * call.input(1).shape[2],
    ),
    OpSchema(
        "LinearAttention",
        "decoding",
        (3, 6),
        _linear_attention,
        outputs=(2, 2),
        dtypes=_NARROW,
        attributes={
            "chunk_size": Attribute("int", 64),
            "kv_num_heads": Attribute("int", required=True),
            "q_num_heads": Attribute("int", required=True),
            "scale": Attribute("float", 0.0),
            "update_rule": Attribute("string", "gated_delta", choices=("linear", "gated", "delta", "gated_delta")),
        },
        flops=_linear_flops,
    ),
)
