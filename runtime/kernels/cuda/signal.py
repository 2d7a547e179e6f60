"""Signals on CUDA: transforms as sums over a table of roots of unity, windows and filter banks by their formulas.

The sums take n² steps a frame: right for the frames of speech and music; an FFT library would serve longer ones.
"""

from __future__ import annotations

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.graphs.operators.signal import Transform, mel_edges, transform_of, window_terms
from kgrun.runtime.kernels.base import Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    Arguments,
    c_type,
    code,
    int64,
    launch,
    number,
    prelude,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.generators import carry

_ROOTS = """extern "C" __global__ void kg_roots(T* table, long long n) {
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += grid) {
    const double turn = 2.0 * (double)i / (double)n;
    table[2 * i] = (T)cospi(turn);
    table[2 * i + 1] = (T)sinpi(turn);
  }
}
"""


@on_cuda("DFT", "STFT")
def _transform(call: OpCall) -> Lowered:
    source, out, found = call.input(0), call.outputs[0], transform_of(call)
    if out.size == 0:
        return Lowered(())
    table, weights = Operand("workspace", 0), source_input(2) if _weighs(call) else None
    roots = launch(code("kg_roots", f"typedef double T;\n{_ROOTS}"), (table, int64(found.length)), found.length)
    text = _text(source.dtype, source.shape[-1] == 2, found)
    total = found.outer * found.frames * found.bins * found.inner
    sizes = (found.length, found.size, found.inner, found.count, found.bins, found.frames, found.step, total)
    args: Arguments = (source_input(0), weights, table, target(), *map(int64, sizes))
    return Lowered((roots, launch(code("kg_transform", text), args, total)), (2 * found.length * 8,))


def _weighs(call: OpCall) -> bool:
    return call.op == "STFT" and call.optional(2) is not None


def _text(dtype: str, is_complex: bool, found: Transform) -> str:
    parts = 2 if is_complex else 1
    imaginary = "(T)p[at * 2 + 1] * weight" if is_complex else "T(0)"
    sign = "" if found.inverse else "-"
    store = "q[2 * i] = kg_to<E>(re / scale); q[2 * i + 1] = kg_to<E>(im / scale);"
    # Of a one-sided spectrum each bin stands for two, but the first, and the last of an even length.
    twice = ""
    if found.real:
        store = "q[i] = kg_to<E>(re / scale);"
        twice = "const bool single = t == 0 || 2 * t == length; if (single) b = 0; else { a *= 2; b *= 2; }"
    return f"""{prelude([dtype])}typedef {c_type(dtype)} E;
typedef double T;  // as numpy's FFT: sums of many terms that cancel
extern "C" __global__ void __launch_bounds__(256) kg_transform(
    const E* p, const E* weights, const T* table, E* q, long long length, long long size, long long inner,
    long long count, long long bins, long long frames, long long step, long long n) {{
  const T scale = {"T(length)" if found.inverse else "T(1)"};
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += grid) {{
    const long long column = i % inner, bin = i / inner % bins, line = i / inner / bins;
    const long long frame = line % frames, outer = line / frames;
    T re = 0, im = 0;
    long long turn = 0;
    for (long long t = 0; t < count; ++t) {{
      const long long at = (outer * size + frame * step + t) * inner + column;
      const T weight = weights ? (T)weights[t] : T(1);
      T a = (T)p[at * {parts}] * weight, b = {imaginary};
      {twice}
      const T c = table[2 * turn], s = {sign}table[2 * turn + 1];
      re += a * c - b * s;
      im += a * s + b * c;
      turn += bin;
      if (turn >= length) turn -= length;
    }}
    {store}
  }}
}}
"""


@on_cuda("HannWindow", "HammingWindow", "BlackmanWindow")
def _window(call: OpCall) -> Lowered:
    out = call.outputs[0]
    if out.size == 0:
        return Lowered(())
    size, period, factors = window_terms(call)
    text = f"""{prelude([out.dtype])}typedef {c_type(out.dtype)} O;
extern "C" __global__ void kg_window(O* q, double a, double b, double c, double period, long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += grid)
    q[i] = kg_to<O>(a + b * cospi(2.0 * i / period) + c * cospi(4.0 * i / period));
}}
"""
    values = (number(value, "float64") for value in (*factors, period))
    args: Arguments = (target(), *values, int64(size))
    return Lowered((launch(code("kg_window", text), args, size),))


@on_cuda("MelWeightMatrix")
def _mel(call: OpCall) -> Lowered:
    out, edges = call.outputs[0], mel_edges(call)
    if out.size == 0:
        return Lowered(())
    scratch, places = Operand("workspace", 0), TensorType("int64", (len(edges),))
    value = "v" if DTYPES[out.dtype].kind == "float" else "(long long)v"
    text = f"""{prelude([out.dtype])}typedef {c_type(out.dtype)} O;
extern "C" __global__ void kg_mel(const long long* edges, O* q, long long bands, long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += grid) {{
    const long long band = i % bands, row = i / bands;
    const long long low = edges[band], peak = edges[band + 1], high = edges[band + 2];
    double v = row == peak ? 1.0 : 0.0;
    if (row >= low && row < peak) v = (double)(row - low) / (double)(peak - low);
    if (row > peak && row < high) v = (double)(high - row) / (double)(high - peak);
    q[i] = kg_to<O>({value});
  }}
}}
"""
    args: Arguments = (scratch, target(), int64(out.shape[1]), int64(out.size))
    filled = carry(places, edges, scratch)
    return Lowered((*filled, launch(code("kg_mel", text), args, out.size)), (places.nbytes,))
