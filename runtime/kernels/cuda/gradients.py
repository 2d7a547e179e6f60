"""Gradients on CUDA: elementwise rules, rows, LayerNormalization, Gather; convolution and pooling have their own file.

Sums are taken in one order at every run: no atomics.
"""

from __future__ import annotations

from math import prod

from kgrun.graphs.dtypes import itemsize
from kgrun.graphs.operators import all_schemas
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.graphs.operators.scalar_code import compute_dtype
from kgrun.graphs.operators.shapes import axis_of
from kgrun.runtime.kernels.base import ClearOperand, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda import window_gradients
from kgrun.runtime.kernels.cuda.common import (
    c_type,
    code,
    compute_type,
    int64,
    joined,
    launch,
    prelude,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.elementwise import generated
from kgrun.runtime.kernels.cuda.reduction import reduce
from kgrun.runtime.kernels.cuda.rows import lanes, row_kernel, run_rows

__all__ = ["window_gradients"]  # imported for its registration
_BUSY = 65_536  # threads that fill a large GPU
_SUM = "kg_all<L>({0}, [](T a, T b) {{ return a + b; }})"

on_cuda(*(s.name for s in all_schemas().values() if s.family == "gradients" and "cuda" in s.data))(generated)


@on_cuda("SoftmaxGrad", "LogSoftmaxGrad")
def _row_wise(call: OpCall) -> Lowered:
    source, axis = call.input(0), axis_of(call)
    if source.size == 0:
        return Lowered(())
    n, inner = source.shape[axis], prod(source.shape[axis + 1 :])
    rows = source.size // n
    group = lanes(rows, n, inner)
    term, value = ("d", "d - exp(y) * s") if call.op == "LogSoftmaxGrad" else ("d * y", "y * (d - s)")
    load = "const T d = (T)dy[base + i * inner], y = (T)p[base + i * inner];"
    body = f"""    T s = 0;
    for (long long i = lane; i < n; i += L) {{ {load} (void)y; s += {term}; }}
    s = {_SUM.format("s")};
    for (long long i = lane; i < n; i += L) {{ {load} q[base + i * inner] = kg_to<E>({value}); }}"""
    types = f"#define L {group}\ntypedef {c_type(source.dtype)} E;\ntypedef {compute_type(source.dtype)} T;"
    text = row_kernel("kg_softmax_grad", [source.dtype], types, "const E* dy, const E* p, E* q", body)
    args = (source_input(0), source_input(1), target())
    return Lowered((run_rows("kg_softmax_grad", text, args, rows, n, inner, group),))


@on_cuda("LayerNormalizationGrad")
def _layer_normalization(call: OpCall) -> Lowered:
    source, axis = call.input(1), axis_of(call)
    n, rows = prod(source.shape[axis:]), prod(source.shape[:axis])
    parts = [_normalized_input(call, rows, n)] if source.size else []
    if len(call.outputs) > 1 and n:
        parts.append(_normalized_sums(call, rows, n))
    return joined(*parts)


def _statistic_types(call: OpCall, group: int) -> str:
    dtype = call.input(1).dtype
    typed = (("E", c_type(dtype)), ("T", compute_type(dtype)), ("M", c_type(call.input(3).dtype)))
    return f"#define L {group}\n" + "".join(f"typedef {text} {name};\n" for name, text in typed)


def _normalized_input(call: OpCall, rows: int, n: int) -> Lowered:
    """inverse · (dy·scale - its mean - unit · the mean of dy·scale·unit) a row."""
    group = lanes(rows, n, 1)
    load = "const T g = (T)dy[base + i] * (T)scale[i], unit = ((T)p[base + i] - mean) * inverse;"
    body = f"""    const T mean = (T)means[row], inverse = (T)inverses[row];
    T a = 0, b = 0;
    for (long long i = lane; i < n; i += L) {{ {load} a += g; b += g * unit; }}
    a = {_SUM.format("a")} / T(n);
    b = {_SUM.format("b")} / T(n);
    for (long long i = lane; i < n; i += L) {{ {load} q[base + i] = kg_to<E>(inverse * (g - a - unit * b)); }}"""
    dtypes = [call.input(1).dtype, call.input(3).dtype]
    parameters = "const E* dy, const E* p, const E* scale, const M* means, const M* inverses, E* q"
    text = row_kernel("kg_layer_norm_grad", dtypes, _statistic_types(call, group), parameters, body)
    args = (*map(source_input, range(5)), target())
    return Lowered((run_rows("kg_layer_norm_grad", text, args, rows, n, 1, group),))


def _normalized_sums(call: OpCall, rows: int, n: int) -> Lowered:
    """Sums over the rows of dy·unit and of dy: a thread a column and part of the rows, then the parts."""
    parts = max(1, min(-(-rows // 64), -(-_BUSY // n)))
    dtype, wide = call.input(1).dtype, compute_dtype(call.input(1).dtype)
    body = """    const long long chunk = (count + parts - 1) / parts, first = row * chunk;
    const long long last = first + chunk < count ? first + chunk : count;
    for (long long i = lane; i < n; i += L) {
      T a = 0, b = 0;
      for (long long r = first; r < last; ++r) {
        const T d = (T)dy[r * n + i];
        a += d * ((T)p[r * n + i] - (T)means[r]) * (T)inverses[r];
        b += d;
      }
      scales[row * n + i] = a;
      biases[row * n + i] = b;
    }"""
    pointers = "const E* dy, const E* p, const M* means, const M* inverses, T* scales, T* biases"
    parameters = f"{pointers}, long long count, long long parts"
    dtypes = [dtype, call.input(3).dtype]
    text = row_kernel("kg_layer_norm_sums", dtypes, _statistic_types(call, 32), parameters, body)
    held = parts * n * itemsize(wide)
    scales, biases = Operand("workspace", 0), Operand("workspace", 1)
    args = [*map(source_input, (0, 1, 3, 4)), scales, biases]
    counts = (int64(rows), int64(parts))
    work = run_rows("kg_layer_norm_sums", text, (*args, *counts), parts, n, 1, 32)
    rule, partial = all_schemas()["ReduceSum"].data, TensorType(wide, (parts, n))
    result = Lowered((work,), (held, held))
    for index, read in ((1, scales), (2, biases))[: len(call.outputs) - 1]:
        out = TensorType(dtype, (n,))
        total = reduce(rule, partial, (0,), out, of=read, to=target(index), scratch=len(result.workspace))
        result = joined(result, total)
    return result


@on_cuda("GatherGrad")
def _gather(call: OpCall) -> Lowered:
    out, indices, gradient = call.outputs[0], call.input(1), call.input(2)
    if out.size == 0:
        return Lowered(())
    clear = ClearOperand(target(), out.nbytes)
    if gradient.size == 0:
        return Lowered((clear,))
    axis = call.axis(call.attributes["axis"], len(out.shape))
    size, inner = out.shape[axis], prod(out.shape[axis + 1 :])
    following, heads = Operand("workspace", 0), Operand("workspace", 1)
    chain = launch(
        code("kg_gather_chain", _CHAIN.replace("INDEX", c_type(indices.dtype))),
        (source_input(1), following, heads, int64(size), int64(indices.size)),
        indices.size,
    )
    types = f"typedef {c_type(out.dtype)} E;\ntypedef {compute_type(out.dtype)} T;\n"
    text = prelude([out.dtype]) + types + _CHAIN_SUM.replace("INDEX", c_type(indices.dtype))
    args = (source_input(2), source_input(1), following, heads, target())
    sums = launch(
        code("kg_gather_grad", text),
        (*args, *map(int64, (size, indices.size, inner, gradient.size))),
        gradient.size,
    )
    return Lowered((clear, chain, sums), (8 * indices.size, 4 * indices.size))


# For each index: where the next equal one is (`count` for none), and whether it is the first of its kind.
_CHAIN = """extern "C" __global__ void __launch_bounds__(256) kg_gather_chain(
    const INDEX* indices, long long* following, int* heads, long long size, long long count) {
  const long long step = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += step) {
    const long long own = indices[i], other = own < 0 ? own + size : own - size;
    if (own < -size || own >= size) __trap();
    long long next = i + 1;
    while (next < count && indices[next] != own && indices[next] != other) ++next;
    long long before = 0;
    while (before < i && indices[before] != own && indices[before] != other) ++before;
    following[i] = next;
    heads[i] = before == i;
  }
}
"""
_CHAIN_SUM = """extern "C" __global__ void __launch_bounds__(256) kg_gather_grad(
    const E* dy, const INDEX* indices, const long long* following, const int* heads, E* q, long long size,
    long long count, long long inner, long long n) {
  const long long step = gridDim.x * (long long)blockDim.x;
  for (long long flat = blockIdx.x * (long long)blockDim.x + threadIdx.x; flat < n; flat += step) {
    const long long row = flat / inner, at = flat % inner, outer = row / count, i = row % count;
    if (!heads[i]) continue;
    T s = 0;
    for (long long j = i; j < count; j = following[j]) s += (T)dy[(outer * count + j) * inner + at];
    const long long own = indices[i];
    q[(outer * size + (own < 0 ? own + size : own)) * inner + at] = kg_to<E>(s);
  }
}
"""
