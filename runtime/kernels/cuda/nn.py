"""Network layers on CUDA: convolution as an implicit matrix product or direct, pooling, BatchNormalization."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from kgrun.graphs.operators import all_schemas, scalars
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.nn import conv_window, pool_window
from kgrun.graphs.operators.shapes import strides_of
from kgrun.graphs.operators.windows import Window
from kgrun.runtime.kernels.base import KernelCall, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    Arguments,
    c_type,
    code,
    compute_type,
    index_type,
    int64,
    integers,
    launch,
    prelude,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.dnn import convolution
from kgrun.runtime.kernels.cuda.elementwise import Scalars, Source, elementwise
from kgrun.runtime.kernels.cuda.gemm import gemm_source, grid_of, tile_for
from kgrun.runtime.kernels.cuda.normalization import moments
from kgrun.runtime.kernels.cuda.reduction import reduce
from kgrun.runtime.program import Value

FEW_FILTERS = 8  # filters a group below which a matrix tile would be mostly empty


def geometry_struct(rank: int) -> str:
    """The C struct of `geometry`."""
    members = ", ".join(f"{name}[{rank}]" for name in ("input", "output", "stride", "dilation", "begin"))
    return f"struct Window {{ long long {members}; }};\n"


def geometry(window: Window) -> Value:
    """A window as a launch argument: input, output, stride, dilation, padding before, one entry a spatial axis."""
    return integers([*window.input, *window.output, *window.strides, *window.dilations, *window.begin])


@on_cuda("Conv")
def _conv(call: OpCall) -> Lowered:
    x, w, out = call.input(0), call.input(1), call.outputs[0]
    if out.size == 0:
        return Lowered(())
    window, group = conv_window(call), call.attributes["group"]
    if group > 1 and w.shape[0] // group < FEW_FILTERS:
        return Lowered((_direct(call, window, group),))

    def own(biased: bool) -> KernelCall:
        return _implicit(call, window, group, index_type((x.size, w.size, out.size)), biased=biased)

    return convolution(call, window, own) or Lowered((own(True),))


def coordinates(rank: int, flat: str, index: str) -> str:
    """C statements: output coordinates y0, y1, … of flat position `flat`, which becomes the batch index."""
    lines = [
        f"const {index} y{axis} = {flat} % ({index})v.output[{axis}]; {flat} /= ({index})v.output[{axis}];"
        for axis in range(rank - 1, -1, -1)
    ]
    return " ".join(lines)


def tap_place(kernel: Sequence[int], tap: str, index: str) -> str:
    """C statements: where tap `tap` of the window at y0, y1, … reads: `inside`, and `place` within one channel."""
    rank = len(kernel)
    lines = [f"{index} place = 0; bool inside = true;"]
    for axis in range(rank):
        at = f"({tap} / {prod(kernel[axis + 1 :])} % {kernel[axis]})"
        lines.append(
            f"const {index} x{axis} = y{axis} * ({index})v.stride[{axis}] + {at} * ({index})v.dilation[{axis}]"
            f" - ({index})v.begin[{axis}];"
            f" inside = inside && x{axis} >= 0 && x{axis} < ({index})v.input[{axis}];"
            f" place = place * ({index})v.input[{axis}] + x{axis};"
        )
    return " ".join(lines)


def _implicit(call: OpCall, window: Window, group: int, index: str, *, biased: bool = True) -> KernelCall:
    x, w = call.input(0), call.input(1)
    sizes = (w.shape[0] // group, x.shape[0] * prod(window.output), prod(w.shape[1:]))
    load = "{ return (S)w[(filter + r) * k + i]; }"
    place = tap_place(window.kernel, "tap", index)
    return implicit_product(
        "kg_conv", call, window, group, index, sizes, load, place, _operands(call, biased), along_k=True
    )


def implicit_product(
    name: str,
    call: OpCall,
    window: Window,
    group: int,
    index: str,
    sizes: tuple[int, int, int],
    load: str,
    place: str,
    operands: Arguments,
    *,
    along_k: bool,
) -> KernelCall:
    """A convolution, either way round, as a matrix product of weights and gathered elements, a group each.

    Args:
        sizes: filters of a group, places of all images, and channels of a group times taps.
        load: body of `load_a(r, i)`, the weight of filter r.
        place: C statements that set `inside` and `place` for tap `tap` of the place at y0, y1, …
        along_k: whether neighbouring threads read weights that lie side by side when they walk along k.
    """
    x, rank = call.input(0), len(window.kernel)
    taps, places = prod(window.kernel), prod(window.output)
    m, n, k = sizes
    tile = tile_for(x.dtype, m, n, group)
    along = "true" if along_k else "false"
    problem = f"""  static constexpr bool A_ALONG_K = {along}, B_ALONG_K = false;
  const E *x, *w, *bias;
  E* d;
  {index} channels, first, filters, filter, places, plane;
  Window v;
  __device__ __forceinline__ S load_a(long long r, long long i) const {load}
  __device__ __forceinline__ S load_b(long long i, long long c) const {{
    {index} b = ({index})c;
    {coordinates(rank, "b", index)}
    const {index} channel = ({index})i / {taps}, tap = ({index})i % {taps};
    {place}
    return inside ? (S)x[(b * channels + first + channel) * plane + place] : S(0.0f);
  }}
  __device__ __forceinline__ void store(long long r, long long c, T s) const {{
    const {index} b = ({index})c / places, at = ({index})c % places;
    if (bias) s += (T)bias[filter + r];
    d[(b * filters + filter + ({index})r) * places + at] = kg_to<E>(s);
  }}"""
    setup = f"""g.x = x; g.w = w; g.bias = bias; g.d = d; g.v = v;
    g.channels = ({index})channels; g.filters = ({index})(batch * m);
    g.places = ({index})places; g.plane = ({index})plane;
    g.filter = ({index})(z * m); g.first = ({index})(z * (channels / batch));"""
    sizes_text = "long long channels, long long places, long long plane"
    parameters = f"const E* x, const E* w, const E* bias, E* d, const Window v, {sizes_text}"
    text = gemm_source(name, x.dtype, tile, problem, parameters, setup)
    text = text.replace("struct Problem {", geometry_struct(rank) + "struct Problem {", 1)
    numbers = (x.shape[1], places, prod(window.input), m, n, k, group)
    args = (*operands, geometry(window), *map(int64, numbers))
    return KernelCall(code(name, text), args, grid_of(tile, m, n, group), (tile.threads, 1, 1))


def _operands(call: OpCall, biased: bool = True) -> tuple[Operand | None, ...]:
    bias = source_input(2) if biased and call.optional(2) is not None else None
    return (source_input(0), source_input(1), bias, target())


def _direct(call: OpCall, window: Window, group: int) -> KernelCall:
    """One thread an output element: for depthwise convolutions and groups of few filters."""
    x, w, out = call.input(0), call.input(1), call.outputs[0]
    kernel, rank, taps = window.kernel, len(window.kernel), prod(window.kernel)
    index = index_type((x.size, w.size, out.size))
    text = f"""{prelude([x.dtype])}typedef {c_type(x.dtype)} E;
typedef {compute_type(x.dtype)} T;
{geometry_struct(rank)}extern "C" __global__ void __launch_bounds__(256) kg_conv_direct(
    const E* x, const E* w, const E* bias, E* d, const Window v, long long filters, long long of_group,
    long long depth, long long groups, long long plane, long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long flat = blockIdx.x * (long long)blockDim.x + threadIdx.x; flat < n; flat += grid) {{
    {index} rest = ({index})flat;
    {coordinates(rank, "rest", index)}
    const {index} filter = rest % ({index})filters, b = rest / ({index})filters, group = filter / ({index})of_group;
    T s = bias ? (T)bias[filter] : T(0);
    for ({index} channel = 0; channel < ({index})depth; ++channel) {{
      const E* plane_x = x + ((b * ({index})groups + group) * ({index})depth + channel) * ({index})plane;
      const E* taps = w + (filter * ({index})depth + channel) * {taps};
#pragma unroll
      for (int tap = 0; tap < {taps}; ++tap) {{
        {tap_place(kernel, "tap", index)}
        if (inside) s += (T)plane_x[place] * (T)taps[tap];
      }}
    }}
    d[flat] = kg_to<E>(s);
  }}
}}
"""
    sizes = (w.shape[0], w.shape[0] // group, w.shape[1], group, prod(window.input), out.size)
    args = (*_operands(call), geometry(window), *map(int64, sizes))
    return launch(code("kg_conv_direct", text), args, out.size)


@on_cuda("MaxPool", "AveragePool", "LpPool")
def _pool(call: OpCall) -> Lowered:
    out = call.outputs[0]
    if out.size == 0:
        return Lowered(())
    source, window = call.input(0), pool_window(call)
    rank = len(window.kernel)
    bodies = {"MaxPool": _max_body, "AveragePool": _average_body, "LpPool": _norm_body}
    body = bodies[call.op](call, window)
    loops = "".join(f"for (long long k{axis} = 0; k{axis} < kernel.at[{axis}]; ++k{axis}) " for axis in range(rank))
    places = " ".join(
        f"const long long x{axis} = y{axis} * v.stride[{axis}] + k{axis} * v.dilation[{axis}] - v.begin[{axis}];"
        for axis in range(rank)
    )
    inside = " && ".join(f"x{axis} >= 0 && x{axis} < v.input[{axis}]" for axis in range(rank))
    flat = "0"
    for axis in range(rank):
        flat = f"({flat}) * v.input[{axis}] + x{axis}"
    text = f"""{prelude([source.dtype])}{scalars.EXTREMES}typedef {c_type(source.dtype)} E;
typedef {compute_type(source.dtype)} T;
struct Sizes {{ long long at[{rank}]; }};
{geometry_struct(rank)}extern "C" __global__ void __launch_bounds__(256) kg_pool(
    const E* p, E* q, long long* indices, const Window v, const Sizes kernel, const Sizes end, long long plane,
    long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += grid) {{
    long long channel = i;
    {coordinates(rank, "channel", "long long")}
    const E* line = p + channel * plane;
{body.replace("LOOPS", loops).replace("PLACES", places).replace("INSIDE", inside).replace("FLAT", flat)}
  }}
}}
"""
    indices = target(1) if len(call.outputs) > 1 else None
    args = (source_input(0), target(), indices, geometry(window), integers(window.kernel), integers(window.end))
    sizes = (prod(window.input), out.size)
    return Lowered((launch(code("kg_pool", text), (*args, *map(int64, sizes)), out.size),))


def _max_body(call: OpCall, window: Window) -> str:
    floating = call.input(0).dtype not in ("int8", "uint8")
    least = (
        "T(-__longlong_as_double(0x7ff0000000000000LL))"
        if floating
        else f"T({'-128' if call.input(0).dtype == 'int8' else '0'})"
    )
    order = "FLAT"
    if call.attributes["storage_order"]:
        order = "0"
        for axis in reversed(range(len(window.kernel))):
            order = f"({order}) * v.input[{axis}] + x{axis}"
    return f"""    T best = {least};
    long long found = -1;
    LOOPS{{
      PLACES
      if (INSIDE) {{
        const T x = (T)line[FLAT];
        if (found < 0 || x > best || (x != x && best == best)) {{ best = x; found = {order}; }}
      }}
    }}
    q[i] = kg_to<E>(best);
    if (indices) indices[i] = found < 0 ? -1 : channel * plane + found;"""


def _powers(p: int) -> tuple[str, str]:
    """Of a p-norm: the power of an element x, and the root of their sum a."""
    if p in (1, 2):
        return ("fabs(x)", "a") if p == 1 else ("x * x", "sqrt(a)")
    return f"pow(fabs(x), T({p}))", f"pow(a, T({1 / p!r}))"


def _norm_body(call: OpCall, window: Window) -> str:
    power, root = _powers(call.attributes["p"])
    return f"""    T a = 0;
    LOOPS{{
      PLACES
      if (INSIDE) {{
        const T x = (T)line[FLAT];
        a += {power};
      }}
    }}
    q[i] = kg_to<E>({root});"""


def _average_body(call: OpCall, window: Window) -> str:
    counted, rank = "INSIDE", len(window.kernel)
    if call.attributes["count_include_pad"]:
        counted = " && ".join(f"x{axis} < v.input[{axis}] + end.at[{axis}]" for axis in range(rank))
    return f"""    T s = 0;
    long long count = 0;
    LOOPS{{
      PLACES
      if ({counted}) ++count;
      if (INSIDE) s += (T)line[FLAT];
    }}
    q[i] = kg_to<E>(s / T(count));"""


@on_cuda("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(call: OpCall) -> Lowered:
    rule = all_schemas()["ReduceMean" if call.op == "GlobalAveragePool" else "ReduceMax"].data
    source = call.input(0)
    return reduce(rule, source, range(2, len(source.shape)), call.outputs[0])


@on_cuda("GlobalLpPool")
def _global_lp_pool(call: OpCall) -> Lowered:
    source, (power, root) = call.input(0), _powers(call.attributes["p"])
    rule = {**all_schemas()["ReduceSum"].data, "map": power, "finish": root}
    return reduce(rule, source, range(2, len(source.shape)), call.outputs[0])


@on_cuda("BatchNormalization")
def _batch_normalization(call: OpCall) -> Lowered:
    out = call.outputs[0]
    rank = len(out.shape)
    if call.attributes["training_mode"]:
        return _batch_statistics(call)
    channel = tuple(1 if axis == 1 else 0 for axis in range(rank))
    sources = [Source(source_input(0), out.dtype, "x", strides_of(out.shape))]
    sources += [
        Source(source_input(index), call.input(index).dtype, name, channel)
        for index, name in ((1, "scale"), (2, "bias"), (3, "mean"), (4, "variance"))
    ]
    epsilon = f"T({call.attributes['epsilon']!r})"
    expression = f"(x - T(mean)) * (T(scale) / sqrt(T(variance) + {epsilon})) + T(bias)"
    return elementwise(sources, Scalars(expression, compute_type(out.dtype)), out)


def _batch_statistics(call: OpCall) -> Lowered:
    """BatchNormalization in training: mean and variance of the batch, which also move the running ones."""
    source, out = call.input(0), call.outputs[0]
    if out.size == 0:
        return Lowered(())
    found = moments(source, [axis for axis in range(len(source.shape)) if axis != 1])
    channel = tuple(1 if axis == 1 else 0 for axis in range(len(source.shape)))
    affine = [Source(source_input(i), call.input(i).dtype, name, channel) for i, name in ((1, "scale"), (2, "bias"))]
    kind = compute_type(source.dtype)
    scalars = Scalars(f"d * (T(scale) / sqrt(variance + T({call.attributes['epsilon']!r}))) + T(bias)", kind)
    work = [*found.lowered.work, *elementwise([found.difference, found.variance, *affine], scalars, out).work]
    keep = call.attributes["momentum"]
    for index, statistic in ((1, found.mean), (2, found.variance)):
        if index < len(call.outputs):
            kept = call.input(index + 2)
            sources = [Source(source_input(index + 2), kept.dtype, "old", (1,)), replace(statistic, strides=(1,))]
            moved = Scalars(f"T(old) * T({keep!r}) + {statistic.name} * T({1 - keep!r})", kind)
            work += elementwise(sources, moved, call.outputs[index], target(index)).work
    return Lowered(tuple(work), found.lowered.workspace)
