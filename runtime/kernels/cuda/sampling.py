"""Sampling on CUDA: a thread an output element; a deformable convolution is a matrix product over sampled columns."""

from __future__ import annotations

from math import prod

from kgrun.graphs.dtypes import DTYPES, itemsize
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.nn import conv_window
from kgrun.graphs.operators.sampling import sample_mode
from kgrun.graphs.operators.shapes import strides_of
from kgrun.runtime.kernels.base import KernelCall, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    Arguments,
    c_type,
    code,
    collapse,
    compute_type,
    cuda_file,
    int64,
    integers,
    launch,
    number,
    prelude,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.elementwise import Scalars, Source, elementwise
from kgrun.runtime.kernels.cuda.linear import Product, multiplied
from kgrun.runtime.kernels.cuda.nn import coordinates, geometry, geometry_struct

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


def _loop(name: str, parameters: str, head: str, body: str) -> str:
    """A kernel that runs `body` for every flat index i below n."""
    return f"""{head}extern "C" __global__ void __launch_bounds__(256) {name}({parameters}, long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += grid) {{
    {body}
  }}
}}
"""


def _sum_of_taps(rank: int, count: int, load: str) -> str:
    """C statements: s, the sum over all combinations of the axes' taps of `load` of `place` times their weights."""
    lines = ["T s = 0;"]
    place, weight = "0", "V(1)"
    for axis in range(rank):
        place, weight = f"({place}) * g.size[{axis}] + at{axis}[j{axis}]", f"{weight} * w{axis}[j{axis}]"
        lines += ["#pragma unroll", f"for (int j{axis} = 0; j{axis} < {count}; ++j{axis})"]
    product = weight.removeprefix("V(1) * ")
    lines.append(f"{{ const long long place = {place}; s += (T)({product}) * {load}; }}")
    return "\n    ".join(lines)


@on_cuda("GridSample")
def _grid_sample(call: OpCall) -> Lowered:
    x, grid, out = call.input(0), call.input(1), call.outputs[0]
    if out.size == 0:
        return Lowered(())
    spatial, mode = x.shape[2:], sample_mode(call)
    rank, count = len(spatial), _TAPS[mode]
    corners = "true" if call.attributes["align_corners"] else "false"
    padding = f"KG_{call.attributes['padding_mode'].upper()}"
    work = compute_type(x.dtype) if DTYPES[x.dtype].kind == "float" else "double"
    lines = ["const long long point = i % g.points, plane = i / g.points, batch = plane / g.channels;"]
    lines.append(f"const F* where = places + (batch * g.points + point) * {rank};")
    for axis in range(rank):
        scaled = "((c + V(1)) * V(g.size[{0}]) - V(1)) / V(2)"
        if corners == "true":
            scaled = "(c + V(1)) / V(2) * V(g.size[{0}] - 1)"
        lines.append(
            f"long long at{axis}[{count}]; V w{axis}[{count}]; {{ const V c = (V)where[{rank - 1 - axis}];"
            f" kg_taps<{count}, {padding}>({scaled.format(axis)}, g.size[{axis}], {corners}, at{axis}, w{axis}); }}"
        )
    lines.append("const E* from = p + plane * g.plane;")
    if mode == "nearest":
        flat, inside = "0", " && ".join(f"w{axis}[0] != V(0)" for axis in range(rank))
        for axis in range(rank):
            flat = f"({flat}) * g.size[{axis}] + at{axis}[0]"
        lines.append(f"q[i] = {inside} ? from[{flat}] : kg_to<E>(0.0f);")
    else:
        lines += [_sum_of_taps(rank, count, "(T)from[place]"), "q[i] = kg_to<E>(s);"]
    head = f"""{prelude([x.dtype, grid.dtype])}{cuda_file("sampling.cuh")}
typedef {c_type(x.dtype)} E;
typedef {c_type(grid.dtype)} F;
typedef {work} T;
typedef {compute_type(grid.dtype)} V;
struct Layout {{ long long size[{rank}], points, channels, plane; }};
"""
    text = _loop("kg_grid_sample", "const E* p, const F* places, E* q, const Layout g", head, "\n    ".join(lines))
    layout = integers([*spatial, prod(out.shape[2:]), x.shape[1], prod(spatial)])
    args: Arguments = (source_input(0), source_input(1), target(), layout, int64(out.size))
    return Lowered((launch(code("kg_grid_sample", text), args, out.size),))


@on_cuda("AffineGrid")
def _affine_grid(call: OpCall) -> Lowered:
    out = call.outputs[0]
    if out.size == 0:
        return Lowered(())
    *spatial, rank = out.shape[1:]
    place = "T(2 * at + 1) / T(size) - T(1)"
    if call.attributes["align_corners"]:
        place = "2 * T(at) / T(size > 1 ? size - 1 : 1) - T(1)"
    body = f"""const long long component = i % {rank};
    long long rest = i / {rank};
    T c[{rank}];
#pragma unroll
    for (int axis = {rank - 1}; axis >= 0; --axis) {{
      const long long size = g.size[axis], at = rest % size;
      rest /= size;
      c[{rank - 1} - axis] = {place};
    }}
    const E* row = theta + (rest * {rank} + component) * {rank + 1};
    T s = (T)row[{rank}];
#pragma unroll
    for (int axis = 0; axis < {rank}; ++axis) s += (T)row[axis] * c[axis];
    q[i] = kg_to<E>(s);"""
    head = f"""{prelude([out.dtype])}typedef {c_type(out.dtype)} E;
typedef {compute_type(out.dtype)} T;
struct Layout {{ long long size[{rank}]; }};
"""
    text = _loop("kg_affine_grid", "const E* theta, E* q, const Layout g", head, body)
    args: Arguments = (source_input(0), target(), integers(spatial), int64(out.size))
    return Lowered((launch(code("kg_affine_grid", text), args, out.size),))


_CORNERS = """const T y = top + ph * bin_h + (T(iy) + T(0.5)) * bin_h / T(grid_h);
        const T x = left + pw * bin_w + (T(ix) + T(0.5)) * bin_w / T(grid_w);
        const bool inside = y >= T(-1) && y <= T(height) && x >= T(-1) && x <= T(width);
        long long y0 = 0, x0 = 0;
        T ly = 0, lx = 0;
        if (inside) {
          y0 = y > T(0) ? (long long)y : 0; x0 = x > T(0) ? (long long)x : 0;
          ly = (y > T(0) ? y : T(0)) - T(y0); lx = (x > T(0) ? x : T(0)) - T(x0);
          if (y0 >= height - 1) { y0 = height - 1; ly = 0; }
          if (x0 >= width - 1) { x0 = width - 1; lx = 0; }
        }
        const long long y1 = y0 + 1 < height ? y0 + 1 : y0, x1 = x0 + 1 < width ? x0 + 1 : x0;
        const T some = inside ? T(1) : T(0);
        const T a = some * (1 - ly) * (1 - lx) * (T)from[y0 * width + x0];
        const T b = some * (1 - ly) * lx * (T)from[y0 * width + x1];
        const T c = some * ly * (1 - lx) * (T)from[y1 * width + x0];
        const T d = some * ly * lx * (T)from[y1 * width + x1];"""


# How many points a bin has along an axis: none where the region has no size.
_POINTS = """__device__ __forceinline__ long long kg_points(T bin) {
  return bin - bin == T(0) ? (long long)ceil(bin) : 0;
}
// Rounded before the shift is taken off, as on the CPU: a bin of whole elements must not become a little more.
__device__ __forceinline__ float kg_product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double kg_product(double a, double b) { return __dmul_rn(a, b); }
"""


@on_cuda("RoiAlign")
def _roi_align(call: OpCall) -> Lowered:
    x, out, given = call.input(0), call.outputs[0], call.attributes
    if out.size == 0:
        return Lowered(())
    half, ratio = given["coordinate_transformation_mode"] == "half_pixel", given["sampling_ratio"]
    least = "" if half else "if (h < T(1)) h = 1; if (w < T(1)) w = 1;"
    adaptive = "const long long grid_h = kg_points(bin_h), grid_w = kg_points(bin_w);"
    fixed = f"const long long grid_h = {ratio}, grid_w = {ratio};"
    combine, finish = "s += a + b + c + d;", "T(grid_h * grid_w > 0 ? grid_h * grid_w : 1)"
    if given["mode"] == "max":
        combine = "const T best = kg_max(kg_max(a, b), kg_max(c, d));"
        combine += " s = first ? best : kg_max(s, best); first = false;"
        finish = "T(1)"
    body = f"""const long long pw = i % columns, ph = i / columns % rows, plane = i / columns / rows;
    const long long channel = plane % channels, region = plane / channels, image = images[region];
    if (image < 0 || image >= batches) __trap();
    const E* edge = regions + region * 4;
    const T left = kg_product((T)edge[0], scale) - shift, top = kg_product((T)edge[1], scale) - shift;
    T w = kg_product((T)edge[2], scale) - shift - left, h = kg_product((T)edge[3], scale) - shift - top;
    {least}
    const T bin_h = h / T(rows), bin_w = w / T(columns);
    {fixed if ratio > 0 else adaptive}
    const E* from = p + (image * channels + channel) * height * width;
    T s = 0;
    bool first = true;
    for (long long iy = 0; iy < grid_h; ++iy)
      for (long long ix = 0; ix < grid_w; ++ix) {{
        {_CORNERS}
        {combine}
      }}
    q[i] = kg_to<E>(first && s == T(0) ? T(0) : s / {finish});"""
    parameters = """const E* p, const E* regions, const long long* images, E* q, T scale, T shift, long long batches,
    long long channels, long long height, long long width, long long rows, long long columns"""
    text = _loop("kg_roi_align", parameters, _head(x.dtype) + _POINTS, body)
    values = (number(given["spatial_scale"], x.dtype), number(0.5 if half else 0.0, x.dtype))
    sizes = map(int64, (*x.shape, *out.shape[2:], out.size))
    args: Arguments = (source_input(0), source_input(1), source_input(2), target(), *values, *sizes)
    return Lowered((launch(code("kg_roi_align", text), args, out.size),))


def _head(dtype: str) -> str:
    from kgrun.graphs.operators.scalars import EXTREMES

    return f"{prelude([dtype])}{EXTREMES}typedef {c_type(dtype)} E;\ntypedef {compute_type(dtype)} T;\n"


@on_cuda("MaxRoiPool")
def _max_roi_pool(call: OpCall) -> Lowered:
    x, out = call.input(0), call.outputs[0]
    if out.size == 0:
        return Lowered(())
    body = """const long long pw = i % columns, ph = i / columns % rows, plane = i / columns / rows;
    const long long channel = plane % channels, region = plane / channels;
    const E* edge = regions + region * 5;
    const long long image = (long long)(T)edge[0];
    if (image < 0 || image >= batches) __trap();
    const double left = kg_edge((T)edge[1], scale), top = kg_edge((T)edge[2], scale);
    const double w = kg_edge((T)edge[3], scale) - left + 1, h = kg_edge((T)edge[4], scale) - top + 1;
    const double bin_h = (h > 1 ? h : 1) / rows, bin_w = (w > 1 ? w : 1) / columns;
    const long long y0 = kg_within(floor(ph * bin_h) + top, height);
    const long long y1 = kg_within(ceil((ph + 1) * bin_h) + top, height);
    const long long x0 = kg_within(floor(pw * bin_w) + left, width);
    const long long x1 = kg_within(ceil((pw + 1) * bin_w) + left, width);
    const E* from = p + (image * channels + channel) * height * width;
    T s = 0;
    bool first = true;
    for (long long y = y0; y < y1; ++y)
      for (long long x = x0; x < x1; ++x) {
        const T v = (T)from[y * width + x];
        s = first ? v : kg_max(s, v);
        first = false;
      }
    q[i] = kg_to<E>(s);"""
    head = _head(x.dtype) + (
        "__device__ __forceinline__ long long kg_within(double at, long long size) {\n"
        "  return at < 0 ? 0 : at <= size ? (long long)at : size;\n}\n"  # NaN is the end
        "__device__ __forceinline__ double kg_edge(double at, double scale) { return floor(at * scale + 0.5); }\n"
    )
    parameters = """const E* p, const E* regions, E* q, double scale, long long batches, long long channels,
    long long height, long long width, long long rows, long long columns"""
    text = _loop("kg_max_roi_pool", parameters, head, body)
    sizes = map(int64, (*x.shape, *out.shape[2:], out.size))
    scale = number(call.attributes["spatial_scale"], "float64")
    args: Arguments = (source_input(0), source_input(1), target(), scale, *sizes)
    return Lowered((launch(code("kg_max_roi_pool", text), args, out.size),))


@on_cuda("DeformConv")
def _deform_conv(call: OpCall) -> Lowered:
    x, weight, out = call.input(0), call.input(1), call.outputs[0]
    if out.size == 0:
        return Lowered(())
    group = call.attributes["group"]
    places, batch = prod(out.shape[2:]), x.shape[0]
    m, k = weight.shape[0] // group, prod(weight.shape[1:])
    scratch = Operand("workspace", 0)
    whole = group * k * places
    sizes, (a_steps, b_steps) = collapse((batch, group), (0, m * k), (whole, k * places))
    own, steps = (k, 1), (places, 1)
    p = Product(m, places, k, own, steps, sizes, a_steps, b_steps, left=source_input(1), right=scratch)
    work = [_sampled_columns(call, scratch), *multiplied(p, out).work]
    if call.optional(3) is not None:
        channel = tuple(1 if axis == 1 else 0 for axis in range(len(out.shape)))
        sources = [
            Source(target(), out.dtype, "x", strides_of(out.shape)),
            Source(source_input(3), out.dtype, "y", channel),
        ]
        work += elementwise(sources, Scalars("x + y", compute_type(out.dtype)), out).work
    return Lowered(tuple(work), (max(batch * whole * itemsize(x.dtype), 1),))


def _sampled_columns(call: OpCall, columns: Operand) -> KernelCall:
    """Columns [batch, channels, taps, places] of bilinear samples, masked."""
    x, window, parts = call.input(0), conv_window(call), call.attributes["offset_group"]
    rank, kernel, taps = len(window.kernel), window.kernel, prod(window.kernel)
    lines = ["long long rest = i;", coordinates(rank, "rest", "long long")]
    lines.append(f"const long long tap = rest % {taps}, plane = rest / {taps}, channel = plane % g.channels;")
    lines.append("const long long batch = plane / g.channels, part = channel / (g.channels / g.parts);")
    lines.append("const long long column = i % g.places;")
    lines.append(f"const long long line = (batch * g.parts + part) * {taps} + tap;")
    for axis in range(rank):
        at = f"(tap / {prod(kernel[axis + 1 :])} % {kernel[axis]})"
        lines += [
            f"const V x{axis} = V(y{axis} * v.stride[{axis}] + {at} * v.dilation[{axis}] - v.begin[{axis}])"
            f" + (V)offset[(line * {rank} + {axis}) * g.places + column];",
            f"long long at{axis}[2]; V w{axis}[2];",
            f"kg_taps<2, KG_ZEROS>(x{axis}, v.input[{axis}], true, at{axis}, w{axis});",
        ]
    lines.append("const E* from = p + plane * g.plane;")
    lines.append(_sum_of_taps(rank, 2, "(T)from[place]").replace("g.size[", "v.input["))
    lines += ["if (mask) s *= (T)mask[line * g.places + column];", "q[i] = kg_to<E>(s);"]
    head = f"""{prelude([x.dtype])}{cuda_file("sampling.cuh")}
typedef {c_type(x.dtype)} E;
typedef {compute_type(x.dtype)} T;
typedef T V;
struct Layout {{ long long channels, parts, places, plane; }};
{geometry_struct(rank)}"""
    parameters = "const E* p, const E* offset, const E* mask, E* q, const Window v, const Layout g"
    text = _loop("kg_deformed", parameters, head, "\n    ".join(lines))
    places = prod(window.output)
    n = prod(x.shape[:2]) * taps * places
    mask = source_input(4) if call.optional(4) is not None else None
    layout = integers([x.shape[1], parts, places, prod(window.input)])
    args: Arguments = (source_input(0), source_input(2), mask, columns, geometry(window), layout, int64(n))
    return launch(code("kg_deformed", text), args, n)
