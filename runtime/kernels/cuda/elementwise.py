"""Elementwise operators on CUDA: one generated kernel each, with broadcasting.

Operands that are contiguous or single elements run through a loop with 16-byte accesses; others are addressed by
strides over the collapsed shape, passed as arguments, so that a source depends on dtypes, rank, and how many elements a
thread takes at once: several where the last axis is contiguous or one element in every operand. Output 0 may be an
input's memory: a thread reads all operands of its elements before it writes them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import gcd, prod

from kgrun.graphs.dtypes import itemsize
from kgrun.graphs.operators import all_schemas
from kgrun.graphs.operators.base import Fused, OpCall, TensorType
from kgrun.graphs.operators.scalar_code import operand_name, scalar_expression
from kgrun.graphs.operators.shapes import broadcast_strides, strides_of
from kgrun.graphs.records import dataclass
from kgrun.runtime.kernels.base import KernelCall, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    c_type,
    code,
    collapse,
    compute_type,
    index_type,
    int64,
    integers,
    launch,
    prelude,
    reach,
    source_input,
    target,
)
from kgrun.runtime.program import Value

_INFINITY = "__longlong_as_double(0x7ff0000000000000LL)"
_NAN = "__longlong_as_double(0x7ff8000000000000LL)"
_SINGLE, _LINEAR = 0, 1
# Signed results that wrap: the compiler takes it that they do not, and must not see where they come from.
_OPAQUE = {"int32": "r", "int64": "l"}
_PACK = "template <class E, int N> struct alignas(sizeof(E) * N) KgPack { E e[N]; };\n"
FLOAT8_BITS = """
template <class O> __device__ __forceinline__ O kg_float8(unsigned char b) { O o; o.__x = b; return o; }
"""


@dataclass(frozen=True, slots=True)
class Source:
    """One operand of a generated kernel: where it is, its type, its name in the expression, its strides."""

    operand: Operand
    dtype: str
    name: str
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scalars:
    """What a kernel computes for one element.

    Attributes:
        expression: over the sources' names, and T.
        compute: the C type T.
        helpers: device functions that the expression calls.
        store: the conversion of the value `v` to the output's type.
        before: statements that make what the expression reads besides.
    """

    expression: str
    compute: str
    helpers: str = ""
    store: str = "kg_to<O>(v)"
    before: str = ""


@on_cuda(*(schema.name for schema in all_schemas().values() if schema.family == "elementwise"))
def generated(call: OpCall) -> Lowered:
    """The kernel of an operator whose schema has a scalar expression."""
    if call.fused is not None:
        return _row_of_calls(call, call.fused)
    schema = all_schemas()[call.op]
    ignored = schema.data.get("shape_only", frozenset())
    out = call.outputs[0]
    sources = [
        Source(source_input(index), type_.dtype, operand_name(index), _steps(type_, out))
        for index, type_ in enumerate(call.inputs)
        if type_ is not None and index not in ignored
    ]
    scalars = Scalars(
        scalar_expression(call), compute_type(call.input(0).dtype), schema.data["helpers"], store_text(call, out.dtype)
    )
    return elementwise(sources, scalars, out)


def _row_of_calls(call: OpCall, fused: Fused) -> Lowered:
    """One kernel for several calls; what lies between them is rounded as if it were stored."""
    out, count = call.outputs[0], len(call.inputs)
    sources = [
        Source(source_input(k), kind.dtype, f"u{k}", _steps(kind, out)) for k, kind in enumerate(call.inputs) if kind
    ]
    kinds = [*(source.dtype for source in sources), *(each.outputs[0].dtype for each in fused.calls)]

    def applied(at: int, body: str) -> str:
        """C text of call `at` on its operands, where `body` says what becomes of its value."""
        given = [(operand_name(i), k) for i, k in enumerate(fused.operands[at]) if k is not None]
        parameters = ", ".join(f"const {compute_type(kinds[k])} {name}" for name, k in given)
        return f"[&]({parameters}) {{ {body} }}({', '.join(f'u{k}' for _, k in given)})"

    *calls, last = fused.calls
    before = ""
    for at, each in enumerate(calls):
        kind = each.outputs[0].dtype
        rounded = f"typedef {c_type(kind)} O; auto v = ({scalar_expression(each)}); return {store_text(each, kind)};"
        before += f"{compute_type(kind)} u{count + at} = ({compute_type(kind)}){applied(at, rounded)}; "
        if kind in _OPAQUE:
            before += f'asm("" : "+{_OPAQUE[kind]}"(u{count + at})); '
    value = applied(len(calls), f"return ({scalar_expression(last)});")
    helpers = "".join(dict.fromkeys(all_schemas()[each.op].data["helpers"] for each in fused.calls))
    compute = compute_type(last.input(0).dtype)
    return elementwise(sources, Scalars(value, compute, helpers, store_text(last, out.dtype), before), out)


def _steps(type_: TensorType, out: TensorType) -> tuple[int, ...]:
    """Strides that read an operand as if it were `out`; a single element is read everywhere."""
    return broadcast_strides(() if type_.size == 1 else type_.shape, out.shape)


def store_text(call: OpCall, dtype: str) -> str:
    """The conversion of the value `v` to `dtype`; with saturate=0, what float8 cannot hold is NaN or infinite."""
    if dtype.startswith("float8") and call.attributes.get("saturate") == 0:
        kind = "__NV_E4M3" if dtype == "float8_e4m3fn" else "__NV_E5M2"
        return f"kg_float8<O>(__nv_cvt_float_to_fp8(float(v), __NV_NOSAT, {kind}))"
    return "kg_to<O>(v)"


def elementwise(
    sources: Sequence[Source],
    scalars: Scalars,
    out: TensorType,
    output: Operand | None = None,
    *,
    kinds: Sequence[str] = (),
) -> Lowered:
    """The launch that computes `out` from `sources`; none for an empty tensor.

    `kinds` are dtypes that the expression converts to besides those of `sources` and `out`.
    """
    if out.size == 0:
        return Lowered(())
    to = output or target()
    modes = [_mode(source, out) for source in sources]
    if all(mode is not None for mode in modes):
        return Lowered((_linear(sources, [mode or 0 for mode in modes], scalars, out, to, kinds),))
    return Lowered((_strided(sources, scalars, out, to, kinds),))


def _mode(source: Source, out: TensorType) -> int | None:
    if not any(step and size > 1 for step, size in zip(source.strides, out.shape, strict=True)):
        return _SINGLE
    contiguous = strides_of(out.shape)
    same = all(a == b or size == 1 for a, b, size in zip(source.strides, contiguous, out.shape, strict=True))
    return _LINEAR if same else None


def _linear(
    sources: Sequence[Source],
    modes: Sequence[int],
    scalars: Scalars,
    out: TensorType,
    to: Operand,
    kinds: Sequence[str],
) -> KernelCall:
    widths = [itemsize(source.dtype) for source, mode in zip(sources, modes, strict=True) if mode == _LINEAR]
    vector = max(1, 16 // max([*widths, itemsize(out.dtype)]))
    kernel = code("kg_elementwise", _linear_text(sources, modes, scalars, out.dtype, vector, kinds))
    args: list[Operand | Value | None] = [source.operand for source in sources]
    return launch(kernel, [*args, to, int64(out.size)], -(-out.size // vector))


def _aligned(packed: Sequence[int]) -> str:
    """Whether the output and these operands may be accessed 16 bytes at a time."""
    return f"({' | '.join(['(unsigned long long)q', *(f'(unsigned long long)p{i}' for i in packed)])}) % 16 == 0"


def _parameters(sources: Sequence[Source]) -> str:
    return "".join(f"const {c_type(source.dtype)}* p{index}, " for index, source in enumerate(sources))


def _element(scalars: Scalars) -> str:
    text = f"{scalars.before} auto v = ({scalars.expression});".lstrip()
    return re.sub(r"\binf\b", _INFINITY, re.sub(r"\bnan\b", _NAN, text))


def _linear_text(
    sources: Sequence[Source], modes: Sequence[int], scalars: Scalars, out: str, vector: int, kinds: Sequence[str]
) -> str:
    linear = [index for index, mode in enumerate(modes) if mode == _LINEAR]
    wide = "".join(
        f"      KgPack<{c_type(sources[i].dtype)}, {vector}> a{i} = "
        f"reinterpret_cast<const KgPack<{c_type(sources[i].dtype)}, {vector}>*>(p{i})[j];\n"
        for i in linear
    )
    single = [index for index, mode in enumerate(modes) if mode == _SINGLE]
    constants = "".join(
        f"  const {compute_type(sources[i].dtype)} {sources[i].name} = ({compute_type(sources[i].dtype)})(p{i}[0]);\n"
        for i in single
    )
    lanes = "".join(_take(sources[i], f"a{i}.e[l]", "        ") for i in linear)
    tail = "".join(_take(sources[i], f"p{i}[i]", "    ") for i in linear)
    return f"""{_head([*(source.dtype for source in sources), *kinds], out, scalars)}
{_PACK}extern "C" __global__ void __launch_bounds__(256) kg_elementwise({_parameters(sources)}O* q, long long n) {{
{constants}  const long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  const long long step = gridDim.x * (long long)blockDim.x;
  long long whole = 0;
  if ({_aligned(linear)}) {{
    whole = n / {vector};
    for (long long j = first; j < whole; j += step) {{
{wide}      KgPack<O, {vector}> r;
#pragma unroll
      for (int l = 0; l < {vector}; ++l) {{
{lanes}        {_element(scalars)}
        r.e[l] = {scalars.store};
      }}
      reinterpret_cast<KgPack<O, {vector}>*>(q)[j] = r;
    }}
  }}
  for (long long i = whole * {vector} + first; i < n; i += step) {{
{tail}    {_element(scalars)}
    q[i] = {scalars.store};
  }}
}}
"""


def _take(source: Source, place: str, indent: str) -> str:
    compute = compute_type(source.dtype)
    return f"{indent}const {compute} {source.name} = ({compute})({place});\n"


def _head(dtypes: Sequence[str], out: str, scalars: Scalars) -> str:
    float8 = FLOAT8_BITS if "kg_float8" in scalars.before + scalars.store else ""
    types = f"typedef {scalars.compute} T;\ntypedef {c_type(out)} O;\n"
    return prelude([*dtypes, out]) + types + float8 + scalars.helpers


def _strided(
    sources: Sequence[Source], scalars: Scalars, out: TensorType, to: Operand, kinds: Sequence[str]
) -> KernelCall:
    contiguous = strides_of(out.shape)
    shape, (_, *steps) = collapse(out.shape, contiguous, *(source.strides for source in sources))
    index = index_type(reach(shape, *steps))
    vector = _pack(shape, steps, max(itemsize(dtype) for dtype in (out.dtype, *(s.dtype for s in sources))))
    if vector > 1:
        flat = [operand[-1] == 0 for operand in steps]
        text = _packed_text(sources, flat, scalars, out.dtype, len(shape), index, vector, kinds)
        shape = (*shape[:-1], shape[-1] // vector)
        steps = [(*operand[:-1], operand[-1] * vector) for operand in steps]
    else:
        text = _strided_text(sources, scalars, out.dtype, len(shape), index, kinds)
    kernel = code("kg_elementwise", text)
    args: list[Operand | Value | None] = [source.operand for source in sources]
    layout = integers([*shape, *(step for operand in steps for step in operand)])
    return launch(kernel, [*args, to, layout, int64(prod(shape))], prod(shape))


def _pack(shape: Sequence[int], steps: Sequence[Sequence[int]], width: int) -> int:
    """How many elements of the last axis, of at most `width` bytes each, lie together in every operand, in 16 bytes."""
    if any(operand[-1] not in (0, 1) for operand in steps):
        return 1
    starts = [step for operand in steps if operand[-1] for step in operand[:-1]]
    return gcd(max(1, 16 // width), shape[-1], *starts)


def offsets_text(names: Sequence[str], rank: int, index: str, flat: str = "i") -> str:
    """C statements that turn flat index `flat` into one offset a name, by `g.size` and `g.step[operand]`."""
    lines = [f"{index} rest = {flat};"] + [f"{index} {name} = 0;" for name in names]
    for axis in range(rank - 1, 0, -1):
        lines.append(f"{{ const {index} at = rest % ({index})g.size[{axis}]; rest /= ({index})g.size[{axis}];")
        lines += [f"{name} += at * ({index})g.step[{k}][{axis}];" for k, name in enumerate(names)]
        lines.append("}")
    lines += [f"{name} += rest * ({index})g.step[{k}][0];" for k, name in enumerate(names)]
    return "\n    ".join(lines)


def _strided_text(
    sources: Sequence[Source], scalars: Scalars, out: str, rank: int, index: str, kinds: Sequence[str]
) -> str:
    names = [f"o{k}" for k in range(len(sources))]
    takes = "".join(_take(source, f"p{k}[o{k}]", "    ") for k, source in enumerate(sources))
    return f"""{_head([*(source.dtype for source in sources), *kinds], out, scalars)}
struct Layout {{ long long size[{rank}]; long long step[{len(sources)}][{rank}]; }};
extern "C" __global__ void __launch_bounds__(256) kg_elementwise(
    {_parameters(sources)}O* q, const Layout g, long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long flat = blockIdx.x * (long long)blockDim.x + threadIdx.x; flat < n; flat += grid) {{
    const {index} i = ({index})flat;
    {offsets_text(names, rank, index)}
{takes}    {_element(scalars)}
    q[i] = {scalars.store};
  }}
}}
"""


def _packed_text(
    sources: Sequence[Source],
    flat: Sequence[bool],
    scalars: Scalars,
    out: str,
    rank: int,
    index: str,
    vector: int,
    kinds: Sequence[str],
) -> str:
    """`vector` elements of the last axis a thread; `flat` operands have one element for all of them."""
    names = [f"o{k}" for k in range(len(sources))]
    packed = [k for k in range(len(sources)) if not flat[k]]
    packs = {k: f"KgPack<{c_type(sources[k].dtype)}, {vector}>" for k in packed}
    same = "".join(_take(source, f"p{k}[o{k}]", "    ") for k, source in enumerate(sources) if flat[k])
    places = "".join(f"    {packs[k]} a{k};\n" for k in packed)
    wide = "".join(f"a{k} = *reinterpret_cast<const {packs[k]}*>(p{k} + o{k}); " for k in packed)
    narrow = "".join(f"a{k}.e[l] = p{k}[o{k} + l]; " for k in packed)
    lanes = "".join(_take(sources[k], f"a{k}.e[l]", "      ") for k in packed)
    return f"""{_head([*(source.dtype for source in sources), *kinds], out, scalars)}
{_PACK}struct Layout {{ long long size[{rank}]; long long step[{len(sources)}][{rank}]; }};
extern "C" __global__ void __launch_bounds__(256) kg_elementwise(
    {_parameters(sources)}O* q, const Layout g, long long n) {{
  const bool aligned = {_aligned(packed)};
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long flat = blockIdx.x * (long long)blockDim.x + threadIdx.x; flat < n; flat += grid) {{
    const {index} i = ({index})flat;
    {offsets_text(names, rank, index)}
{places}    if (aligned) {{ {wide}}}
    else for (int l = 0; l < {vector}; ++l) {{ {narrow}}}
{same}    KgPack<O, {vector}> r;
#pragma unroll
    for (int l = 0; l < {vector}; ++l) {{
{lanes}      {_element(scalars)}
      r.e[l] = {scalars.store};
    }}
    O* const to = q + flat * {vector};
    if (aligned) *reinterpret_cast<KgPack<O, {vector}>*>(to) = r;
    else for (int l = 0; l < {vector}; ++l) to[l] = r.e[l];
  }}
}}
"""
