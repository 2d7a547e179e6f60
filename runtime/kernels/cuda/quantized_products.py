"""Integer matrix products and convolutions on CUDA: zero points leave as elements are loaded, sums are rescaled as they
are stored. Bytes are summed in int, float8 in float.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.quantization import FLOAT8, conv_operands, matmul_operands, quantized_window
from kgrun.graphs.operators.shapes import broadcast_strides
from kgrun.graphs.records import dataclass
from kgrun.runtime.kernels.base import KernelCall, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    c_type,
    code,
    collapse,
    index_type,
    int64,
    integers,
    prelude,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.gemm import gemm_source, grid_of, tile_for
from kgrun.runtime.kernels.cuda.linear import matrices
from kgrun.runtime.kernels.cuda.nn import coordinates, geometry, geometry_struct, tap_place
from kgrun.runtime.program import Value


@dataclass(frozen=True, slots=True)
class _Pointer:
    """An input that a kernel reads: its name there, its C type, its steps along the batch and along its line."""

    index: int
    name: str
    c_type: str
    batch: tuple[int, ...] = ()
    step: int = 0

    def element(self, at: str) -> str:
        """C expression of the element at `at` of its line."""
        return f"{self.name}[{at}]" if self.step else f"{self.name}[0]"


def _store(dtype: str, place: str, factor: str, zero: str) -> str:
    """C statement: the sum `s`, rescaled by `factor` and shifted by `zero`, into the output's range."""
    if dtype == "int32":
        return f"{place} = s;"
    limits = DTYPES[dtype].limits
    if limits is None:
        return f"{place} = kg_to<O>((float)s * ({factor}) + (float){zero});"
    value = f"rintf((float)s * ({factor})) + (float){zero}"
    return f"{place} = (O)fminf(fmaxf({value}, {limits[0]}.0f), {limits[1]}.0f);"


def _less(zero: _Pointer | None, at: str) -> str:
    return "" if zero is None else f" - (S){zero.element(at)}"


def _parameter(call: OpCall, index: int, name: str, batch: tuple[int, ...], axis: int) -> _Pointer | None:
    """A scale or zero point of a matrix, one element or one a row (axis -2) or column (-1); None where it is absent."""
    found = call.optional(index)
    if found is None:
        return None
    kind, none = c_type(found.dtype), (0,) * len(batch)
    if found.size == 1:
        return _Pointer(index, name, kind, none)
    if len(found.shape) == 1:
        return _Pointer(index, name, kind, none, 1)
    size = found.shape[axis]
    lead = tuple(step * size for step in broadcast_strides(found.shape[:-2], batch))
    return _Pointer(index, name, kind, lead, int(size > 1))


def _members(pointers: Iterable[_Pointer]) -> tuple[str, str]:
    """The pointers as members of a struct, and as parameters of a kernel."""
    return (
        " ".join(f"const {p.c_type}* {p.name};" for p in pointers),
        ", ".join(f"const {p.c_type}* {p.name}" for p in pointers),
    )


@on_cuda("MatMulInteger", "QLinearMatMul")
def _matmul(call: OpCall) -> Lowered:
    out = call.outputs[0]
    if out.size == 0:
        return Lowered(())
    first, second = matmul_operands(call)
    linear, of = call.op == "QLinearMatMul", call.input(first).dtype
    a, b, batch = matrices(call.input(first).shape, call.input(second).shape)
    m, n, k = a[-2], b[-1], a[-1]
    leads = [tuple(step * s[-2] * s[-1] for step in broadcast_strides(s[:-2], batch)) for s in (a, b)]
    left = _Pointer(first, "a", c_type(of), leads[0], 1)
    right = _Pointer(second, "b", c_type(call.input(second).dtype), leads[1], 1)
    a_zero = _parameter(call, 2, "a_zero", batch, -2)
    b_zero = _parameter(call, 5 if linear else 3, "b_zero", batch, -1)
    scales = [(1, "a_scale", -2), (4, "b_scale", -1), (6, "y_scale", -2), (7, "y_zero", -2)] if linear else []
    found = [_parameter(call, index, name, batch, axis) for index, name, axis in scales]
    pointers = [p for p in (left, right, a_zero, b_zero, *found) if p is not None]
    factor, zero = "1.0f", "0"
    if linear:
        texts = [p.element(at) for p, at in zip(found, ("r", "c", "r", "r"), strict=True) if p is not None]
        factor, zero = f"(float){texts[0]} * (float){texts[1]} / (float){texts[2]}", texts[3]
    accumulator = "float32" if of in FLOAT8 else "int32"
    tile = tile_for(accumulator, m, n, prod(batch))
    members, parameters = _members(pointers)
    problem = f"""  static constexpr bool A_ALONG_K = true, B_ALONG_K = false;
  {members}
  {c_type(out.dtype)}* d;
  typedef {c_type(out.dtype)} O;
  __device__ __forceinline__ S load_a(long long r, long long i) const {{ return (S)a[r * k + i]{_less(a_zero, "r")}; }}
  __device__ __forceinline__ S load_b(long long i, long long c) const {{ return (S)b[i * n + c]{_less(b_zero, "c")}; }}
  __device__ __forceinline__ void store(long long r, long long c, T s) const {{
    {_store(out.dtype, "d[r * n + c]", factor, zero)}
  }}"""
    sizes, steps = collapse(batch, *(p.batch for p in pointers))
    rank, places = len(sizes), [f"at{index}" for index in range(len(pointers))]
    lines = [f"long long left = z; long long {', '.join(f'{place} = 0' for place in places)};"]
    for axis in range(rank - 1, -1, -1):
        moves = " ".join(f"{p} += at * steps.step[{index}][{axis}];" for index, p in enumerate(places))
        lines.append(f"{{ const long long at = left % steps.size[{axis}]; left /= steps.size[{axis}]; {moves} }}")
    lines += [f"g.{p.name} = {p.name} + {place};" for p, place in zip(pointers, places, strict=True)]
    lines.append("g.d = d + z * m * n;")
    text = gemm_source(
        "kg_gemm_int", accumulator, tile, problem, f"{parameters}, {c_type(out.dtype)}* d, const Steps steps",
        "\n    ".join(lines),
    )  # fmt: skip
    layout = f"struct Steps {{ long long size[{rank}]; long long step[{len(pointers)}][{rank}]; }};\n"
    text = _headed(call, text.replace("struct Problem {", layout + "struct Problem {", 1))
    args: list[Operand | Value | None] = [source_input(p.index) for p in pointers]
    args += [target(), integers([*sizes, *(step for row in steps for step in row)])]
    args += map(int64, (m, n, k, prod(batch)))
    grid = grid_of(tile, m, n, prod(batch))
    return Lowered((KernelCall(code("kg_gemm_int", text), tuple(args), grid, (tile.threads, 1, 1)),))


def _headed(call: OpCall, text: str) -> str:
    """`text` with the headers of all inputs' and outputs' types before it, in place of its own."""
    first = prelude(["int32"])
    dtypes = [kind.dtype for kind in (*call.inputs, *call.outputs) if kind is not None]
    return text.replace(first, prelude(dtypes), 1)


@on_cuda("ConvInteger", "QLinearConv")
def _conv(call: OpCall) -> Lowered:
    out = call.outputs[0]
    if out.size == 0:
        return Lowered(())
    first, second = conv_operands(call)
    linear, group, window = call.op == "QLinearConv", call.attributes["group"], quantized_window(call)
    x, w = call.input(first), call.input(second)
    kernel, rank, taps, places = window.kernel, len(window.kernel), prod(window.kernel), prod(window.output)
    m, n, k = w.shape[0] // group, x.shape[0] * places, prod(w.shape[1:])
    index = index_type((x.size, w.size, out.size))
    named = [(2, "x_zero"), (5 if linear else 3, "w_zero")]
    named += [(1, "x_scale"), (4, "w_scale"), (6, "y_scale"), (7, "y_zero")] if linear else []
    found = [_parameter(call, position, name, (), -1) for position, name in named]
    bias = _Pointer(8, "bias", "int", (), 1) if linear and call.optional(8) is not None else None
    data = (_Pointer(first, "x", c_type(x.dtype), (), 1), _Pointer(second, "w", c_type(w.dtype), (), 1))
    pointers = [p for p in (*data, *found, bias) if p is not None]
    factor, zero, added = "1.0f", "0", "" if bias is None else "s += bias[filter + r];"
    if linear:
        texts = [p.element("filter + r") for p in found[2:] if p is not None]
        factor, zero = f"{texts[0]} * {texts[1]} / {texts[2]}", texts[3]
    members, parameters = _members(pointers)
    tile = tile_for("int32", m, n, group)
    problem = f"""  static constexpr bool A_ALONG_K = true, B_ALONG_K = false;
  typedef {c_type(out.dtype)} O;
  {members}
  O* d;
  {index} channels, first, filters, filter, places, plane;
  Window v;
  __device__ __forceinline__ S load_a(long long r, long long i) const {{
    return (S)w[(filter + r) * k + i]{_less(found[1], "filter + r")};
  }}
  __device__ __forceinline__ S load_b(long long i, long long c) const {{
    {index} b = ({index})c;
    {coordinates(rank, "b", index)}
    const {index} channel = ({index})i / {taps}, tap = ({index})i % {taps};
    {tap_place(kernel, "tap", index)}
    return inside ? (S)x[(b * channels + first + channel) * plane + place]{_less(found[0], "0")} : S(0);
  }}
  __device__ __forceinline__ void store(long long r, long long c, T s) const {{
    const {index} b = ({index})c / places, at = ({index})c % places;
    {added}
    {_store(out.dtype, f"d[(b * filters + filter + ({index})r) * places + at]", factor, zero)}
  }}"""
    lines = [f"g.{p.name} = {p.name};" for p in pointers]
    lines += [
        f"g.d = d; g.v = v; g.channels = ({index})channels; g.filters = ({index})(batch * m);",
        f"g.places = ({index})places; g.plane = ({index})plane;",
        f"g.filter = ({index})(z * m); g.first = ({index})(z * (channels / batch));",
    ]
    sizes_text = "long long channels, long long places, long long plane"
    head = f"{parameters}, {c_type(out.dtype)}* d, const Window v, {sizes_text}"
    text = gemm_source("kg_conv_int", "int32", tile, problem, head, "\n    ".join(lines))
    text = text.replace("struct Problem {", geometry_struct(rank) + "struct Problem {", 1)
    args: list[Operand | Value | None] = [source_input(p.index) for p in pointers]
    args += [target(), geometry(window), *map(int64, (x.shape[1], places, prod(window.input), m, n, k, group))]
    grid = grid_of(tile, m, n, group)
    return Lowered((KernelCall(code("kg_conv_int", text), tuple(args), grid, (tile.threads, 1, 1)),))
