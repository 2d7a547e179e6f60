"""QuantizeLinear and its kin on CUDA: elementwise kernels; integer products are in `quantized_products`."""

from __future__ import annotations

from math import prod

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators import all_schemas
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.graphs.operators.quantization import FLOAT8, division_dtype, scale_steps
from kgrun.graphs.operators.shapes import strides_of
from kgrun.runtime.kernels.base import Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda import quantized_products
from kgrun.runtime.kernels.cuda.common import (
    c_type,
    code,
    compute_type,
    int64,
    integers,
    joined,
    launch,
    prelude,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.elementwise import FLOAT8_BITS, Scalars, Source, elementwise, store_text
from kgrun.runtime.kernels.cuda.reduction import reduce
from kgrun.runtime.program import Value

__all__ = ["quantized_products"]  # imported for its registration


@on_cuda("QuantizeLinear")
def _quantize(call: OpCall) -> Lowered:
    to, work = call.outputs[0].dtype, division_dtype(call)
    rounded = f"(T)kg_to<{c_type(work)}>({{0}})" if compute_type(work) != c_type(work) else "{0}"
    quotient = rounded.format(f"{rounded.format('(T)x')} / {rounded.format('(T)scale')}")
    if to in FLOAT8:
        return _scaled(
            call, Scalars(quotient, compute_type(work), store=store_text(call, to)), zero=False, kinds=[work]
        )
    low, high = DTYPES[to].limits or (0, 0)
    value = f"rint({quotient})" + (" + (T)zero" if call.optional(2) is not None else "")
    text = f"fmin(fmax({value}, T({low})), T({high}))"
    return _scaled(call, Scalars(text, compute_type(work)), zero=True, kinds=[work])


@on_cuda("DequantizeLinear")
def _dequantize(call: OpCall) -> Lowered:
    shifted = call.optional(2) is not None and call.input(0).dtype not in FLOAT8
    text = "((T)x - (T)zero) * (T)scale" if shifted else "(T)x * (T)scale"
    return _scaled(call, Scalars(text, "float"), zero=shifted, kinds=[])


def _scaled(call: OpCall, scalars: Scalars, *, zero: bool, kinds: list[str]) -> Lowered:
    """One launch over input 0 (x), its scale and its zero point; `kinds` are further dtypes that the text names."""
    out = call.outputs[0]
    size, share, inner, steps = scale_steps(call)
    operands = [(1, "scale"), *([(2, "zero")] if zero and call.optional(2) is not None else [])]
    if share == 1 or size % share == 0:
        # Seen as [outer, shares, elements of a share, inner], a scale is an operand that broadcasts.
        outer = out.size // max(size * inner, 1)
        seen = TensorType(out.dtype, (outer, size // share, share, inner))
        sources = [Source(source_input(0), call.input(0).dtype, "x", strides_of(seen.shape))]
        strides = (steps[0], steps[1], 0, steps[2])
        sources += [Source(source_input(index), call.input(index).dtype, name, strides) for index, name in operands]
        return elementwise(sources, scalars, seen, kinds=kinds)
    return _ragged(call, scalars, operands, kinds)


def _ragged(call: OpCall, scalars: Scalars, operands: list[tuple[int, str]], kinds: list[str]) -> Lowered:
    """Blocks whose last one is cut short."""
    out = call.outputs[0]
    if out.size == 0:
        return Lowered(())
    size, share, inner, steps = scale_steps(call)
    named = [(0, "x"), *operands]
    dtypes = [call.input(index).dtype for index, _ in named]
    parameters = ", ".join(f"const {c_type(d)}* p_{name}" for d, (_, name) in zip(dtypes, named, strict=True))
    loads = " ".join(
        f"const {compute_type(d)} {name} = ({compute_type(d)})p_{name}[{'i' if name == 'x' else 'at'}];"
        for d, (_, name) in zip(dtypes, named, strict=True)
    )
    text = f"""{prelude([*dtypes, out.dtype, *kinds])}typedef {c_type(out.dtype)} O;
typedef {scalars.compute} T;
{FLOAT8_BITS if "kg_float8" in scalars.store else ""}struct Steps {{ long long outer, share, inner; }};
extern "C" __global__ void __launch_bounds__(256) kg_blocked(
    {parameters}, O* q, const Steps s, long long size, long long share, long long inner, long long n) {{
  const long long step = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step) {{
    const long long row = i / inner;
    const long long at = row / size * s.outer + row % size / share * s.share + i % inner * s.inner;
    {loads}
    const auto v = {scalars.expression};
    q[i] = {scalars.store};
  }}
}}
"""
    args: list[Operand | Value | None] = [source_input(index) for index, _ in named]
    args += [target(), integers(steps), *map(int64, (size, share, inner, prod(out.shape)))]
    return Lowered((launch(code("kg_blocked", text), args, out.size),))


_RANGE = """extern "C" __global__ void kg_dynamic_scale(
    const float* high, const float* low, float* scale, unsigned char* zero) {
  const float top = fmaxf(high[0], 0.0f), bottom = fminf(low[0], 0.0f);
  const float s = (top == bottom ? 1.0f : top - bottom) / 255.0f;
  scale[0] = s;
  zero[0] = (unsigned char)rintf(fminf(fmaxf(-bottom / s, 0.0f), 255.0f));
}
"""


@on_cuda("DynamicQuantizeLinear")
def _dynamic_quantize(call: OpCall) -> Lowered:
    source, one = call.input(0), TensorType("float32", ())
    axes, rules = range(len(source.shape)), all_schemas()
    result = Lowered((), (4, 4))
    for index, op in enumerate(("ReduceMax", "ReduceMin")):
        to, scratch = Operand("workspace", index), len(result.workspace)
        result = joined(result, reduce(rules[op].data, source, axes, one, to=to, scratch=scratch))
    operands = (Operand("workspace", 0), Operand("workspace", 1), target(1), target(2))
    limits = launch(code("kg_dynamic_scale", _RANGE), operands, 1, block=1)
    single = (0,) * len(source.shape)
    sources = [
        Source(source_input(0), "float32", "x", strides_of(source.shape)),
        Source(target(1), "float32", "scale", single),
        Source(target(2), "uint8", "zero", single),
    ]
    text = "fminf(fmaxf(rintf(x / scale) + (float)zero, 0.0f), 255.0f)"
    return joined(result, Lowered((limits,)), elementwise(sources, Scalars(text, "float"), call.outputs[0]))
