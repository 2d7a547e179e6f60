"""Normalization on CUDA: contiguous rows by groups of threads; other axes by reductions and elementwise steps."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kgrun.graphs.operators import all_schemas
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.graphs.operators.normalization import group_count, norm_axes, normal_shape
from kgrun.graphs.operators.reduction import reduced_shape
from kgrun.graphs.operators.scalar_code import compute_dtype
from kgrun.graphs.operators.shapes import axis_of, broadcast_strides, strides_of
from kgrun.graphs.records import dataclass
from kgrun.runtime.kernels.base import Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    Arguments,
    c_type,
    code,
    compute_type,
    int64,
    integers,
    launch,
    number,
    prelude,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.elementwise import Scalars, Source, elementwise, offsets_text
from kgrun.runtime.kernels.cuda.reduction import reduce
from kgrun.runtime.kernels.cuda.rows import held, lanes, row_kernel, run_rows


def _norm(n: int, group: int, place: str, *, mean: bool = True, bias: str = "") -> str:
    """The body of a row kernel that scales a row by its root mean square, less its mean where that is asked for."""
    read, each, element = held(n, group, "base + i")
    centre = f"""T s = 0;
    {each} s += {element};
    const T mean = kg_all<L>(s, [](T a, T b) {{ return a + b; }}) / T(n);"""
    return f"""    {read}
    {centre if mean else "const T mean = 0;"}
    T squares = 0;
    {each} {{ const T d = {element} - mean; squares += d * d; }}
    const T factor = T(1) / sqrt(kg_all<L>(squares, [](T a, T b) {{ return a + b; }}) / T(n) + epsilon);
    {each} {{
      {place}
      q[base + i] = kg_to<O>(({element} - mean) * factor * (T)scale[o0]{bias});
    }}"""


def _types(call: OpCall, group: int) -> str:
    source, scale, out = call.input(0), call.input(1), call.outputs[0]
    return f"""#define L {group}
typedef {compute_type(source.dtype)} T;
typedef {c_type(source.dtype)} E;
typedef {c_type(scale.dtype)} A;
typedef {c_type(out.dtype)} O;"""


@on_cuda("InstanceNormalization", "GroupNormalization")
def _by_groups(call: OpCall) -> Lowered:
    source = call.input(0)
    if source.size == 0:
        return Lowered(())
    groups, channels = group_count(call), source.shape[1]
    rows, places = source.shape[0] * groups, prod(source.shape[2:])
    n = source.size // rows
    group = lanes(rows, n, 1)
    per_channel = call.input(1).shape == (channels,)
    place = f"const long long o0 = row % parts{' * each + i / places' if per_channel else ''};"
    body = _norm(n, group, place, bias=" + (T)bias[o0]")
    sizes_text = "long long parts, long long each, long long places"
    parameters = f"const E* p, const A* scale, const A* bias, O* q, T epsilon, {sizes_text}"
    text = row_kernel("kg_group_norm", [source.dtype], _types(call, group), parameters, body)
    args: Arguments = (*map(source_input, range(3)), target(), number(call.attributes["epsilon"], source.dtype))
    sizes = map(int64, (groups, channels // groups, places))
    return Lowered((run_rows("kg_group_norm", text, (*args, *sizes), rows, n, 1, group),))


@on_cuda("RMSNormalization")
def _rms_normalization(call: OpCall) -> Lowered:
    source, scale, normal = call.input(0), call.input(1), normal_shape(call)
    if source.size == 0:
        return Lowered(())
    n = prod(normal)
    rows = source.size // n
    group = lanes(rows, n, 1)
    whole, rank = scale.size == n, len(normal)
    place = "const long long o0 = i;" if whole else offsets_text(["o0"], rank, "long long")
    body = _norm(n, group, place, mean=False)
    layout = f"\nstruct Layout {{ long long size[{rank}], step[1][{rank}]; }};"
    parameters = "const E* p, const A* scale, O* q, T epsilon, const Layout g"
    dtypes = [source.dtype, scale.dtype]
    text = row_kernel("kg_rms_norm", dtypes, _types(call, group) + layout, parameters, body)
    args: Arguments = (source_input(0), source_input(1), target(), number(call.attributes["epsilon"], source.dtype))
    steps = integers([*normal, *broadcast_strides(scale.shape, normal)])
    return Lowered((run_rows("kg_rms_norm", text, (*args, steps), rows, n, 1, group),))


@dataclass(frozen=True, slots=True)
class Moments:
    """Scratch tensors of `centred`: the mean over some axes, the elements without it, and the mean of their squares."""

    lowered: Lowered
    mean: Source
    difference: Source
    variance: Source


def moments(source: TensorType, axes: Sequence[int]) -> Moments:
    """Mean and variance of input 0 over any axes, in the type it is computed in: two passes over the elements."""
    dtype, kind = compute_dtype(source.dtype), compute_type(source.dtype)
    kept = TensorType(dtype, reduced_shape(source.shape, tuple(axes), True))
    wide, spread = TensorType(dtype, source.shape), broadcast_strides(kept.shape, source.shape)
    mean, difference, variance = (Operand("workspace", index) for index in range(3))
    rules = all_schemas()
    first = reduce(rules["ReduceMean"].data, source, axes, kept, to=mean, scratch=3)
    x = Source(source_input(0), source.dtype, "x", strides_of(source.shape))
    m = Source(mean, dtype, "mean", spread)
    second = elementwise([x, m], Scalars("x - mean", kind), wide, difference)
    squares = {**rules["ReduceMean"].data, "map": "x * x"}
    third = reduce(squares, wide, axes, kept, of=difference, to=variance, scratch=3)
    scratch = max([first.workspace, third.workspace], key=lambda sizes: sum(sizes))
    lowered = Lowered((*first.work, *second.work, *third.work), (kept.nbytes, wide.nbytes, kept.nbytes, *scratch))
    d = Source(difference, dtype, "d", strides_of(source.shape))
    return Moments(lowered, m, d, Source(variance, dtype, "variance", spread))


@on_cuda("MeanVarianceNormalization")
def _mean_variance(call: OpCall) -> Lowered:
    source = call.input(0)
    if source.size == 0:
        return Lowered(())
    found = moments(source, norm_axes(call))
    scalars = Scalars("d / (sqrt(variance) + T(1e-9))", compute_type(source.dtype))
    last = elementwise([found.difference, found.variance], scalars, call.outputs[0])
    return Lowered((*found.lowered.work, *last.work), found.lowered.workspace)


@on_cuda("LpNormalization")
def _lp_normalization(call: OpCall) -> Lowered:
    source, axis = call.input(0), axis_of(call)
    if source.size == 0:
        return Lowered(())
    dtype = compute_dtype(source.dtype)
    kept = TensorType(dtype, reduced_shape(source.shape, (axis,), True))
    rule = all_schemas()["ReduceL1" if call.attributes["p"] == 1 else "ReduceL2"].data
    norm = Operand("workspace", 0)
    first = reduce(rule, source, (axis,), kept, to=norm, scratch=1)
    sources = [
        Source(source_input(0), source.dtype, "x", strides_of(source.shape)),
        Source(norm, dtype, "norm", broadcast_strides(kept.shape, source.shape)),
    ]
    scalars = Scalars("norm == T(0) ? T(0) : x / norm", compute_type(source.dtype))
    last = elementwise(sources, scalars, call.outputs[0])
    return Lowered((*first.work, *last.work), (kept.nbytes, *first.workspace))


@on_cuda("LRN")
def _local_response_normalization(call: OpCall) -> Lowered:
    source = call.input(0)
    if source.size == 0:
        return Lowered(())
    size = call.attributes["size"]
    text = f"""{prelude([source.dtype])}typedef {c_type(source.dtype)} E;
typedef {compute_type(source.dtype)} T;
extern "C" __global__ void __launch_bounds__(256) kg_lrn(
    const E* p, E* q, T alpha, T beta, T bias, long long before, long long after, long long channels, long long inner,
    long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += grid) {{
    const long long channel = i / inner % channels;
    const long long low = channel < before ? -channel : -before;
    const long long high = channel + after < channels ? after : channels - 1 - channel;
    T s = 0;
    for (long long k = low; k <= high; ++k) {{ const T x = (T)p[i + k * inner]; s += x * x; }}
    q[i] = kg_to<E>((T)p[i] / pow(bias + alpha * s, beta));
  }}
}}
"""
    values = (call.attributes["alpha"] / size, call.attributes["beta"], call.attributes["bias"])
    sizes = ((size - 1) // 2, size // 2, source.shape[1], prod(source.shape[2:]), source.size)
    args: Arguments = (source_input(0), target(), *(number(value, source.dtype) for value in values))
    return Lowered((launch(code("kg_lrn", text), (*args, *map(int64, sizes)), source.size),))
