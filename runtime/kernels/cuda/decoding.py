"""TensorScatter, SwiGLU, CausalConvWithState and LinearAttention on CUDA."""

from __future__ import annotations

from math import prod

from kgrun.graphs.dtypes import itemsize
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.decoding import linear_sizes, scatter_axis
from kgrun.runtime.kernels.base import CopyOperand, KernelCall, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    c_type,
    code,
    compute_type,
    int64,
    launch,
    number,
    prelude,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.copies import UNITS
from kgrun.runtime.kernels.cuda.elementwise import generated
from kgrun.runtime.program import Value

on_cuda("SwiGLU")(generated)
_LOOP = """const long long step = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step)"""


def _given(call: OpCall, index: int) -> Operand | None:
    return source_input(index) if call.optional(index) is not None else None


@on_cuda("TensorScatter")
def _tensor_scatter(call: OpCall) -> Lowered:
    cache, update, axis = call.input(0), call.input(1), scatter_axis(call)
    if cache.size == 0:
        return Lowered(())
    copy = CopyOperand(target(), source_input(0), cache.nbytes)
    if update.size == 0:
        return Lowered((copy,))
    circular = call.attributes["mode"] == "circular"
    place = "at = (at % size + size) % size;" if circular else "if (at < 0 || at >= size) __trap();"
    text = f"""typedef {UNITS[itemsize(cache.dtype)]} E;
extern "C" __global__ void __launch_bounds__(256) kg_tensor_scatter(E* q, const E* p, const long long* starts,
    long long size, long long count, long long inner, long long rows, long long n) {{
  {_LOOP} {{
    // i runs over [batch, rows, count, inner] of the update.
    const long long row = i / inner / count;
    long long at = i / inner % count + (starts ? starts[row / rows] : 0);
    {place}
    q[(row * size + at) * inner + i % inner] = p[i];
  }}
}}
"""
    sizes = (cache.shape[axis], update.shape[axis], prod(cache.shape[axis + 1 :]), prod(cache.shape[1:axis]))
    args = (target(), source_input(1), _given(call, 2), *map(int64, (*sizes, update.size)))
    return Lowered((copy, launch(code("kg_tensor_scatter", text), args, update.size)))


@on_cuda("CausalConvWithState")
def _causal_conv(call: OpCall) -> Lowered:
    dtype, taps, length = call.input(0).dtype, call.input(1).shape[2], call.input(0).shape[2]
    channels, work = call.input(0).shape[1], []
    head = f"""{prelude([dtype])}typedef {c_type(dtype)} E;
typedef {compute_type(dtype)} T;
// Element `at` of a line: what is new from 0 on, the state before it.
__device__ __forceinline__ E kg_at(const E* x, const E* past, long long line, long long at, long long length,
    long long kept) {{
  return at >= 0 ? x[line * length + at] : past ? past[line * kept + kept + at] : kg_to<E>(0.0f);
}}
"""
    body = """const long long line = i / length, channel = line % channels, at = i % length;
    T s = bias ? (T)bias[channel] : T(0);
    for (long long tap = 0; tap <= kept; ++tap)
      s += (T)w[channel * (kept + 1) + tap] * (T)kg_at(x, past, line, at + tap - kept, length, kept);
    q[i] = kg_to<E>(RESULT);"""
    result = "s" if call.attributes["activation"] == "none" else "s / (T(1) + exp(-s))"
    state = "q[i] = kg_at(x, past, i / kept, length + i % kept - kept, length, kept);"
    sizes = tuple(map(int64, (length, taps - 1, channels)))
    x = source_input(0) if call.input(0).size else None
    operands = (x, source_input(1), _given(call, 2), _given(call, 3))
    for index, text in ((0, body.replace("RESULT", result)), (1, state)):
        if call.outputs[index].size:
            kernel = f"""{head}extern "C" __global__ void __launch_bounds__(256) kg_causal_conv(
    const E* x, const E* w, const E* bias, const E* past, E* q, long long length, long long kept, long long channels,
    long long n) {{
  {_LOOP} {{
    {text}
  }}
}}
"""
            args = (*operands, target(index), *sizes, int64(call.outputs[index].size))
            work.append(launch(code("kg_causal_conv", kernel), args, call.outputs[index].size))
    return Lowered(tuple(work))


@on_cuda("LinearAttention")
def _linear_attention(call: OpCall) -> Lowered:
    return Lowered(tuple(_recurrence(call)), (max(4 * call.outputs[1].size, 4),))


def _recurrence(call: OpCall) -> list[KernelCall]:
    """A thread a column of a state: no column needs another, so that a launch walks over all tokens."""
    s, dtype, kept = linear_sizes(call), call.input(0).dtype, call.outputs[1].dtype
    columns = s.batch * s.shared * s.value_size
    if columns == 0:
        return []
    decayed = "T(1)"
    if call.optional(4) is not None:
        decayed = f"exp((T)decay[token * {'shared * size + h * size + d' if s.decay_each else 'shared + h'}])"
    fresh = "v"
    if call.optional(5) is not None:
        fresh = f"(T)beta[token * beta_heads + {'h' if s.beta_heads > 1 else '0'}] * (v - found)"
    text = f"""{prelude([dtype, kept])}typedef {c_type(dtype)} E;
typedef {c_type(kept)} S;
typedef float T;
extern "C" __global__ void __launch_bounds__(256) kg_linear_attention(
    const E* q, const E* k, const E* values, const S* past, const E* decay, const E* beta, E* y, S* present, T* state,
    long long steps, long long heads, long long shared, long long size, long long value_size, long long beta_heads,
    T scale, long long n) {{
  {_LOOP} {{
    const long long m = i % value_size, h = i / value_size % shared, b = i / value_size / shared;
    const long long column = (b * shared + h) * size * value_size + m, rep = heads / shared;
    for (long long d = 0; d < size; ++d)
      state[column + d * value_size] = past ? (T)past[column + d * value_size] : T(0);
    for (long long t = 0; t < steps; ++t) {{
      const long long token = b * steps + t;
      const E* key = k + (token * shared + h) * size;
      T found = T(0);
      for (long long d = 0; d < size; ++d) {{
        const T x = state[column + d * value_size] * ({decayed});
        state[column + d * value_size] = x;
        found += x * (T)key[d];
      }}
      const T v = (T)values[(token * shared + h) * value_size + m], added = {fresh};
      for (long long d = 0; d < size; ++d) state[column + d * value_size] += (T)key[d] * added;
      for (long long r = 0; r < rep; ++r) {{
        const E* query = q + (token * heads + h * rep + r) * size;
        T sum = T(0);
        for (long long d = 0; d < size; ++d) sum += (T)query[d] * state[column + d * value_size];
        y[(token * heads + h * rep + r) * value_size + m] = kg_to<E>(scale * sum);
      }}
    }}
    for (long long d = 0; d < size; ++d)
      present[column + d * value_size] = kg_to<S>(state[column + d * value_size]);
  }}
}}
"""
    given = [source_input(index) if s.steps else None for index in range(3)]
    args: list[Operand | Value | None] = [*given, *(_given(call, index) for index in range(3, 6))]
    args += [target(0), target(1), Operand("workspace", 0)]
    args += map(int64, (s.steps, s.heads, s.shared, s.size, s.value_size, s.beta_heads))
    args += [number(s.scale, "float32"), int64(columns)]
    return [launch(code("kg_linear_attention", text), args, columns)]
