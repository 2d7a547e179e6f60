"""Signals on CUDA: windows and filter banks by their formulas; transforms are in fourier.py."""

from __future__ import annotations

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.graphs.operators.signal import mel_edges, window_terms
from kgrun.runtime.kernels.base import Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    Arguments,
    c_type,
    code,
    int64,
    launch,
    number,
    prelude,
    target,
)
from kgrun.runtime.kernels.cuda.fourier import transform
from kgrun.runtime.kernels.cuda.generators import carry


@on_cuda("DFT", "STFT")
def _transform(call: OpCall) -> Lowered:
    return transform(call)


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
