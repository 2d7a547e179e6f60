"""Random numbers on CUDA: every element follows from its index, so that no state is kept."""

from __future__ import annotations

import struct
from math import prod

from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.random_values import FIRST, GOLDEN, SECOND, stream
from kgrun.runtime.kernels.base import Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import c_type, code, int64, launch, number, prelude, source_input, target
from kgrun.runtime.program import Value

_WORDS = f"""
__device__ __forceinline__ double kg_uniform(unsigned long long start, long long i, int word) {{
  unsigned long long z = start + (2 * i + word + 1) * {GOLDEN:#x}ULL;
  z = (z ^ (z >> 30)) * {FIRST:#x}ULL;
  z = (z ^ (z >> 27)) * {SECOND:#x}ULL;
  z ^= z >> 31;
  return (double)(z >> 11) * 1.1102230246251565e-16;
}}
"""
_LOOP = "for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step)"


def _word(value: int) -> Value:
    return Value(struct.pack("<Q", value), 8)


@on_cuda("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def _random(call: OpCall) -> Lowered:
    out, a = call.outputs[0], call.attributes
    if out.size == 0:
        return Lowered(())
    normal = call.op.startswith("RandomNormal")
    base, factor = (a["mean"], a["scale"]) if normal else (a["low"], a["high"] - a["low"])
    drawn = "kg_uniform(start, i, 0)"
    if normal:
        drawn = "sqrt(-2.0 * log1p(-kg_uniform(start, i, 0))) * cospi(2.0 * kg_uniform(start, i, 1))"
    text = f"""{prelude([out.dtype])}{_WORDS}typedef {c_type(out.dtype)} O;
extern "C" __global__ void __launch_bounds__(256) kg_random(
    O* q, unsigned long long start, double base, double factor, long long n) {{
  const long long step = gridDim.x * (long long)blockDim.x;
  {_LOOP} q[i] = kg_to<O>(base + factor * ({drawn}));
}}
"""
    args = (target(), _word(stream(call)), number(base, "float64"), number(factor, "float64"), int64(out.size))
    return Lowered((launch(code("kg_random", text), args, out.size),))


@on_cuda("Bernoulli")
def _bernoulli(call: OpCall) -> Lowered:
    out, kind = call.outputs[0], call.input(0).dtype
    if out.size == 0:
        return Lowered(())
    text = f"""{prelude([out.dtype, kind])}{_WORDS}typedef {c_type(out.dtype)} O;
extern "C" __global__ void __launch_bounds__(256) kg_bernoulli(
    const {c_type(kind)}* p, O* q, unsigned long long start, long long n) {{
  const long long step = gridDim.x * (long long)blockDim.x;
  {_LOOP} q[i] = kg_to<O>(kg_uniform(start, i, 0) < (double)p[i] ? 1.0f : 0.0f);
}}
"""
    args = (source_input(0), target(), _word(stream(call)), int64(out.size))
    return Lowered((launch(code("kg_bernoulli", text), args, out.size),))


@on_cuda("Multinomial")
def _multinomial(call: OpCall) -> Lowered:
    out, source = call.outputs[0], call.input(0)
    if out.size == 0:
        return Lowered(())
    # The running sums of a row are written once, then every sample is looked up in them.
    head = f"{prelude([source.dtype])}{_WORDS}typedef {c_type(source.dtype)} E;\ntypedef {c_type(out.dtype)} O;\n"
    sums = f"""{head}extern "C" __global__ void kg_class_sums(
    const E* p, double* sums, long long classes, long long n) {{
  const long long step = gridDim.x * (long long)blockDim.x;
  {_LOOP} {{
    const E* row = p + i * classes;
    double top = (double)row[0], sum = 0;
    for (long long c = 1; c < classes; ++c) top = fmax(top, (double)row[c]);
    for (long long c = 0; c < classes; ++c) {{
      sum += exp((double)row[c] - top);
      sums[i * classes + c] = sum;
    }}
  }}
}}
"""
    draw = f"""{head}extern "C" __global__ void __launch_bounds__(256) kg_multinomial(
    const double* sums, O* q, unsigned long long start, long long classes, long long samples, long long n) {{
  const long long step = gridDim.x * (long long)blockDim.x;
  {_LOOP} {{
    const double* row = sums + i / samples * classes;
    const double drawn = kg_uniform(start, i, 0) * row[classes - 1];
    long long low = 0, high = classes - 1;
    while (low < high) {{
      const long long middle = (low + high) / 2;
      if (row[middle] > drawn) high = middle; else low = middle + 1;
    }}
    q[i] = (O)low;
  }}
}}
"""
    (rows, classes), samples, held = source.shape, call.attributes["sample_size"], Operand("workspace", 0)
    first = launch(code("kg_class_sums", sums), (source_input(0), held, int64(classes), int64(rows)), rows)
    sizes = (int64(classes), int64(samples), int64(prod(out.shape)))
    second = launch(code("kg_multinomial", draw), (held, target(), _word(stream(call)), *sizes), out.size)
    return Lowered((first, second), (8 * rows * classes,))
