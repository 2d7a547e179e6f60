"""Gradients of convolution and pooling on CUDA.

Both gradients of a convolution are implicit matrix products; that of the weight is cut along its long inner size, the
parts added up by a second launch. Pooling gathers: a thread an input element, over the windows that cover it.
"""

from __future__ import annotations

from math import prod

from kgrun.graphs.dtypes import itemsize
from kgrun.graphs.operators import all_schemas
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.graphs.operators.gradients import conv_gradient_window, pool_gradient_window
from kgrun.graphs.operators.scalar_code import compute_dtype
from kgrun.graphs.operators.windows import Window
from kgrun.runtime.kernels.base import KernelCall, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    c_type,
    code,
    compute_type,
    index_type,
    int64,
    integers,
    joined,
    launch,
    prelude,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.gemm import Tile, gemm_source, grid_of, tile_for
from kgrun.runtime.kernels.cuda.nn import geometry, geometry_struct
from kgrun.runtime.kernels.cuda.reduction import reduce
from kgrun.runtime.program import Value

_BLOCKS = 264  # two a multiprocessor of a large GPU
_LEAST = 256  # inner elements that a part of a product is worth


def _unravel(rank: int, flat: str, sizes: str, name: str, index: str) -> str:
    """C statements: coordinates `name`0, `name`1, … of `flat` within `v.sizes`; `flat` becomes what is left over."""
    lines = [
        f"const {index} {name}{axis} = {flat} % ({index})v.{sizes}[{axis}]; {flat} /= ({index})v.{sizes}[{axis}];"
        for axis in range(rank - 1, -1, -1)
    ]
    return " ".join(lines)


def _tap_at(kernel: tuple[int, ...], axis: int, tap: str) -> str:
    return f"({tap} / {prod(kernel[axis + 1 :])} % {kernel[axis]})"


@on_cuda("ConvGrad")
def _conv(call: OpCall) -> Lowered:
    dy, window = call.input(0), conv_gradient_window(call)
    wanted = [out.size > 0 and index not in call.unnamed for index, out in enumerate(call.outputs)]
    result = _input_gradient(call, window) if wanted[0] else Lowered(())
    if wanted[1:2] == [True]:
        result = joined(result, _weight_gradient(call, window))
    if wanted[2:3] == [True]:
        rule, axes, scratch = all_schemas()["ReduceSum"].data, (0, *range(2, len(dy.shape))), len(result.workspace)
        result = joined(result, reduce(rule, dy, axes, call.outputs[2], to=target(2), scratch=scratch))
    return result


def _input_gradient(call: OpCall, window: Window) -> Lowered:
    """Channels × input places: the weight's filters and taps times the output gradients they came from."""
    dy, x, w, group = call.input(0), call.input(1), call.input(2), call.attributes["group"]
    kernel, rank, taps = window.kernel, len(window.kernel), prod(window.kernel)
    index = index_type((x.size, w.size, dy.size))
    filters, places = w.shape[0] // group, prod(window.input)
    m, n, k = w.shape[1], x.shape[0] * places, filters * taps
    tile = tile_for(x.dtype, m, n, group)
    found = " ".join(
        f"const {index} a{axis} = x{axis} + ({index})v.begin[{axis}]"
        f" - {_tap_at(kernel, axis, 'tap')} * ({index})v.dilation[{axis}];"
        f" const {index} y{axis} = a{axis} / ({index})v.stride[{axis}];"
        f" inside = inside && a{axis} >= 0 && y{axis} * ({index})v.stride[{axis}] == a{axis}"
        f" && y{axis} < ({index})v.output[{axis}];"
        f" place = place * ({index})v.output[{axis}] + y{axis};"
        for axis in range(rank)
    )
    problem = f"""  static constexpr bool A_ALONG_K = true, B_ALONG_K = false;
  const E *dy, *w;
  E* dx;
  {index} channels, all_filters, filter, filters, first, places, plane;
  Window v;
  __device__ __forceinline__ S load_a(long long r, long long i) const {{
    const {index} f = ({index})i / {taps}, tap = ({index})i % {taps};
    return (S)w[((filter + f) * ({index})m + ({index})r) * {taps} + tap];
  }}
  __device__ __forceinline__ S load_b(long long i, long long c) const {{
    {index} b = ({index})c;
    {_unravel(rank, "b", "input", "x", index)}
    const {index} f = ({index})i / {taps}, tap = ({index})i % {taps};
    {index} place = 0; bool inside = true;
    {found}
    return inside ? (S)dy[(b * all_filters + filter + f) * places + place] : S(0.0f);
  }}
  __device__ __forceinline__ void store(long long r, long long c, T s) const {{
    const {index} b = ({index})c / plane, at = ({index})c % plane;
    dx[(b * channels + first + ({index})r) * plane + at] = kg_to<E>(s);
  }}"""
    setup = f"""g.dy = dy; g.w = w; g.dx = dx; g.v = v;
    g.channels = ({index})(batch * m); g.all_filters = ({index})(batch * filters); g.filters = ({index})filters;
    g.filter = ({index})(z * filters); g.first = ({index})(z * m);
    g.places = ({index})places; g.plane = ({index})plane;"""
    parameters = "const E* dy, const E* w, E* dx, const Window v, long long filters, long long places, long long plane"
    text = gemm_source("kg_conv_dx", x.dtype, tile, problem, parameters, setup)
    text = text.replace("struct Problem {", geometry_struct(rank) + "struct Problem {", 1)
    sizes = (filters, prod(window.output), places, m, n, k, group)
    args: list[Operand | Value | None] = [source_input(0), source_input(2), target(), geometry(window)]
    args += map(int64, sizes)
    grid = grid_of(tile, m, n, group)
    return Lowered((KernelCall(code("kg_conv_dx", text), tuple(args), grid, (tile.threads, 1, 1)),))


def _weight_gradient(call: OpCall, window: Window) -> Lowered:
    """Filters × channels and taps: output gradients times the inputs they met, over all images and places."""
    x, w, group = call.input(1), call.input(2), call.attributes["group"]
    places = prod(window.output)
    m, n, k = w.shape[0] // group, w.shape[1] * prod(window.kernel), x.shape[0] * places
    tile = tile_for(x.dtype, m, n, group)
    tiles = -(-m // tile.m) * -(-n // tile.n) * group
    parts = max(1, min(-(-_BLOCKS // tiles), k // _LEAST))
    wide = compute_dtype(x.dtype)
    text = _weight_source(call, window, tile, x.dtype if parts == 1 else wide)
    held = Operand("workspace", 0)
    sizes = (x.shape[1], places, prod(window.input), group, parts, m, n, k, group * parts)
    read = (source_input(0), source_input(1)) if k else (None, None)
    to = held if parts > 1 else target(1)
    args: list[Operand | Value | None] = [*read, to, geometry(window), *map(int64, sizes)]
    grid = grid_of(tile, m, n, group * parts)
    product = Lowered((KernelCall(code("kg_conv_dw", text), tuple(args), grid, (tile.threads, 1, 1)),))
    if parts == 1:
        return product
    total = reduce(
        all_schemas()["ReduceSum"].data,
        TensorType(wide, (parts, w.size)),
        (0,),
        TensorType(w.dtype, (w.size,)),
        of=held,
        to=target(1),
        scratch=1,
    )
    return joined(Lowered(product.work, (parts * w.size * itemsize(wide),)), total)


def _weight_source(call: OpCall, window: Window, tile: Tile, stored: str) -> str:
    """The product in parts along its inner size, results in dtype `stored`."""
    dy, x, w = call.input(0), call.input(1), call.input(2)
    kernel, rank, taps = window.kernel, len(window.kernel), prod(window.kernel)
    index = index_type((x.size, w.size, dy.size))
    met = " ".join(
        f"const {index} x{axis} = y{axis} * ({index})v.stride[{axis}]"
        f" + {_tap_at(kernel, axis, 'tap')} * ({index})v.dilation[{axis}] - ({index})v.begin[{axis}];"
        f" inside = inside && x{axis} >= 0 && x{axis} < ({index})v.input[{axis}];"
        f" place = place * ({index})v.input[{axis}] + x{axis};"
        for axis in range(rank)
    )
    problem = f"""  static constexpr bool A_ALONG_K = true, B_ALONG_K = true;
  const E *dy, *x;
  {c_type(stored)}* dw;
  {index} channels, all_filters, filter, channel, places, plane, start;
  Window v;
  __device__ __forceinline__ S load_a(long long r, long long i) const {{
    const {index} at = ({index})i + start, b = at / places;
    return (S)dy[(b * all_filters + filter + ({index})r) * places + at % places];
  }}
  __device__ __forceinline__ S load_b(long long i, long long c) const {{
    {index} b = ({index})i + start;
    {_unravel(rank, "b", "output", "y", index)}
    const {index} tap = ({index})c % {taps};
    {index} place = 0; bool inside = true;
    {met}
    return inside ? (S)x[(b * channels + channel + ({index})c / {taps}) * plane + place] : S(0.0f);
  }}
  __device__ __forceinline__ void store(long long r, long long c, T s) const {{
    dw[(filter + r) * n + c] = kg_to<{c_type(stored)}>(s);
  }}"""
    setup = f"""const long long part = z / groups, group = z % groups, chunk = (k + parts - 1) / parts;
    const long long left = k - part * chunk;
    g.dy = dy; g.x = x; g.dw = dw + part * groups * m * n; g.v = v;
    g.k = left < 0 ? 0 : left < chunk ? left : chunk; g.start = ({index})(part * chunk);
    g.channels = ({index})channels; g.all_filters = ({index})(groups * m); g.filter = ({index})(group * m);
    g.channel = ({index})(group * (channels / groups)); g.places = ({index})places; g.plane = ({index})plane;"""
    sizes_text = "long long channels, long long places, long long plane, long long groups, long long parts"
    parameters = f"const E* dy, const E* x, {c_type(stored)}* dw, const Window v, {sizes_text}"
    text = gemm_source("kg_conv_dw", x.dtype, tile, problem, parameters, setup)
    return text.replace("struct Problem {", geometry_struct(rank) + "struct Problem {", 1)


@on_cuda("MaxPoolGrad", "AveragePoolGrad")
def _pool(call: OpCall) -> Lowered:
    out, window = call.outputs[0], pool_gradient_window(call)
    if out.size == 0:
        return Lowered(())
    rank, largest = len(window.kernel), call.op == "MaxPoolGrad"
    loops = "\n".join(
        f"    for (long long t{axis} = 0; t{axis} < kernel.at[{axis}]; ++t{axis}) {{"
        f" const long long a{axis} = x{axis} + v.begin[{axis}] - t{axis} * v.dilation[{axis}],"
        f" y{axis} = a{axis} / v.stride[{axis}];"
        f" if (a{axis} < 0 || y{axis} * v.stride[{axis}] != a{axis} || y{axis} >= v.output[{axis}]) continue;"
        for axis in range(rank)
    )
    flat = "0"
    for axis in range(rank):
        flat = f"({flat}) * v.output[{axis}] + y{axis}"
    own = "0"
    order = reversed(range(rank)) if call.attributes.get("storage_order") else range(rank)
    for axis in order:
        own = f"({own}) * v.input[{axis}] + x{axis}"
    term = "if (indices[at] == own) s += (T)dy[at];" if largest else f"s += (T)dy[at] / T({_count(rank)});"
    text = f"""{prelude([out.dtype])}typedef {c_type(out.dtype)} E;
typedef {compute_type(out.dtype)} T;
{geometry_struct(rank)}struct Sizes {{ long long at[{rank}]; }};
// How many elements of one axis the window at place y averages.
__device__ __forceinline__ long long kg_met(const Window& v, long long kernel, long long end, int axis, long long y) {{
  long long count = 0;
  for (long long t = 0; t < kernel; ++t) {{
    const long long at = y * v.stride[axis] - v.begin[axis] + t * v.dilation[axis];
    count += at >= {"-v.begin[axis]" if call.attributes.get("count_include_pad") else "0"} && at < v.input[axis] + end;
  }}
  return count;
}}
extern "C" __global__ void __launch_bounds__(256) kg_pool_grad(
    const E* dy, const long long* indices, E* dx, const Window v, const Sizes kernel, const Sizes end, long long plane,
    long long places, long long n) {{
  const long long step = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step) {{
    long long channel = i;
    {_unravel(rank, "channel", "input", "x", "long long")}
    const long long own = channel * plane + {own};
    (void)own;
    T s = 0;
{loops}
      const long long at = channel * places + {flat};
      {term}
    {"}" * rank}
    dx[i] = kg_to<E>(s);
  }}
}}
"""
    end = window.end if call.attributes.get("count_include_pad") else (0,) * rank
    indices = source_input(2) if largest else None
    sizes = (prod(window.input), prod(window.output), out.size)
    args = (source_input(0), indices, target(), geometry(window), integers(window.kernel), integers(end))
    return Lowered((launch(code("kg_pool_grad", text), (*args, *map(int64, sizes)), out.size),))


def _count(rank: int) -> str:
    return " * ".join(f"kg_met(v, kernel.at[{axis}], end.at[{axis}], {axis}, y{axis})" for axis in range(rank))
