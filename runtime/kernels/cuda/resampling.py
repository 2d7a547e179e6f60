"""Resize on CUDA: one generated kernel, a thread an output element, which sums over the taps of all resized axes."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kgrun.graphs.dtypes import DTYPES, itemsize
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.resampling import ResizedAxis, Rules, resize_rules, resized_axes, source_coordinates
from kgrun.graphs.operators.shapes import Shape
from kgrun.runtime.kernels.base import Lowered, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    Arguments,
    c_type,
    code,
    compute_type,
    int64,
    launch,
    prelude,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.copies import UNITS
from kgrun.runtime.program import Value

_ROUNDINGS = {
    "round_prefer_floor": "ceil(x - 0.5)",
    "round_prefer_ceil": "floor(x + 0.5)",
    "floor": "floor(x)",
    "ceil": "ceil(x)",
}


def _merged(shape: Shape, axes: Sequence[ResizedAxis]) -> list[ResizedAxis | int]:
    """The axes in order, plain neighbours merged to their size."""
    resized = {row.axis: row for row in axes}
    found: list[ResizedAxis | int] = []
    for axis, size in enumerate(shape):
        last = found[-1] if found else None
        if axis in resized:
            found.append(resized[axis])
        elif isinstance(last, int):
            found[-1] = last * size
        else:
            found.append(size)
    return found


@on_cuda("Resize", "Upsample")
def _resize(call: OpCall) -> Lowered:
    source, out = call.input(0), call.outputs[0]
    if out.size == 0:
        return Lowered(())
    rules, rows = resize_rules(call), _merged(source.shape, resized_axes(call))
    text = _text(call, rules, rows)
    sizes: list[int] = []
    factors: list[float] = []
    for row in rows:
        if isinstance(row, int):
            sizes += (row, row)
            factors += (0, 0, 0, 0, 0)
        else:
            sizes += (row.input, row.output)
            rule = source_coordinates(rules, row)
            factors += (rule.before, rule.step, rule.divisor, rule.after, rules.stretch(row.scale))
    layout = Value(struct.pack(f"<{len(sizes)}q{len(factors)}d", *sizes, *factors), 8)
    args: Arguments = (source_input(0), target(), layout, _value(rules.outside, source.dtype), int64(out.size))
    return Lowered((launch(code("kg_resize", text), args, out.size),))


def _value(value: float, dtype: str) -> Value:
    import ml_dtypes  # noqa: F401  (gives numpy the name bfloat16)
    import numpy as np

    return Value(np.array(value).astype(np.dtype(dtype)).tobytes(), itemsize(dtype))


def _text(call: OpCall, rules: Rules, rows: Sequence[ResizedAxis | int]) -> str:
    dtype, rank = call.input(0).dtype, len(rows)
    nearest = rules.mode == "nearest"
    element = UNITS[itemsize(dtype)] if nearest else c_type(dtype)
    work = compute_type(dtype) if DTYPES[dtype].kind == "float" else "double"
    sizes = [f"const long long n{k} = g.axis[{k}].input, m{k} = g.axis[{k}].output;" for k in range(rank)]
    split = [f"const long long c{k} = rest % m{k}; rest /= m{k};" for k in range(rank - 1, -1, -1)]
    taps: list[str] = []
    loops: list[tuple[int, int]] = []
    place = "0"
    for k, row in enumerate(rows):
        place = f"({place}) * n{k} + {'c' if isinstance(row, int) else 'i'}{k}"
        if isinstance(row, int):
            continue
        first, count = rules.taps(row.scale)
        inside = f"inside = inside && x{k} >= 0 && x{k} <= n{k} - 1;" if _crops(rules) else ""
        taps.append(f"const X x{k} = kg_coordinate(c{k}, g.rule[{k}]); {inside}")
        if nearest:
            rounded = _ROUNDINGS[rules.rounding].replace("(x", f"(x{k}")
            taps.append(f"const long long i{k} = kg_clamped({rounded}, n{k});")
            continue
        taps.append(f"T w{k}[{count}]; const long long b{k} = (long long)floor(x{k}) + ({first});")
        taps.append(f"kg_weights<{count}>(w{k}, x{k} - floor(x{k}), {first}, g.rule[{k}].stretch, b{k}, n{k});")
        loops.append((k, count))
    if nearest:
        body = f"q[i] = {'inside ? ' if _crops(rules) else ''}p[{place}]{' : outside' if _crops(rules) else ''};"
    else:
        body = _sum(dtype, rules, loops, place)
    newline = "\n    "
    return f"""{prelude([] if nearest else [dtype])}typedef {element} E;
typedef {work} T;
struct Axis {{ long long input, output; }};
typedef {"float" if nearest else "double"} X;
struct Rule {{ double before, step, divisor, after, stretch; }};
struct Layout {{ Axis axis[{rank}]; Rule rule[{rank}]; }};
__device__ __forceinline__ X kg_coordinate(long long y, const Rule& g) {{
  return ((X)y + (X)g.before) * (X)g.step / (X)g.divisor + (X)g.after;
}}
__device__ __forceinline__ long long kg_clamped(double at, long long size) {{
  return at < 0 ? 0 : at > size - 1 ? size - 1 : (long long)at;
}}
{"" if nearest else _weights(rules)}
extern "C" __global__ void __launch_bounds__(256) kg_resize(
    const E* p, E* q, const Layout g, E outside, long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  {" ".join(sizes)}
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += grid) {{
    long long rest = i;
    bool inside = true;
    {newline.join(split)}
    {newline.join(taps)}
    {body}
  }}
}}
"""


def _crops(rules: Rules) -> bool:
    return rules.transform == "tf_crop_and_resize"


def _weights(rules: Rules) -> str:
    """The device function that fills the weights of one axis' taps around a source coordinate."""
    a = repr(rules.cubic)
    value = (
        "t < 1 ? 1 - t : 0.0"
        if rules.mode == "linear"
        else f"t <= 1 ? (({a} + 2) * t - ({a} + 3)) * t * t + 1 : t < 2 ? ((t - 5) * t + 8) * t * {a} - 4 * {a} : 0.0"
    )
    skipped = "base + j < 0 || base + j >= size ? 0.0 : " if rules.exclude_outside else ""
    norm = (
        "if (total != 0) for (int j = 0; j < N; ++j) w[j] = (T)(w[j] / total);"
        if rules.exclude_outside or rules.antialias
        else ""
    )
    return f"""template <int N> __device__ __forceinline__ void kg_weights(
    T* w, double ratio, int first, double stretch, long long base, long long size) {{
  double total = 0;
  for (int j = 0; j < N; ++j) {{
    const double t = fabs((first + j - ratio) * stretch);
    const double value = {skipped}({value});
    w[j] = (T)value;
    total += value;
  }}
  {norm}
}}"""


def _sum(dtype: str, rules: Rules, loops: Sequence[tuple[int, int]], place: str) -> str:
    lines, weight = ["T s = 0;"], "T(1)"
    for k, count in loops:
        lines.append(f"for (int j{k} = 0; j{k} < {count}; ++j{k}) {{")
        lines.append(f"const long long i{k} = kg_clamped((double)(b{k} + j{k}), n{k});")
        lines.append(f"const T v{k} = {weight} * w{k}[j{k}];" if weight != "T(1)" else f"const T v{k} = w{k}[j{k}];")
        weight = f"v{k}"
    lines.append(f"s += {weight} * (T)p[{place}];" + " }" * len(loops))
    limits = DTYPES[dtype].limits
    if limits is None:
        result = "kg_to<E>(s)"
    else:
        low, high = (float(limit) for limit in limits)
        lines.append(f"s = rint(s); s = s < {low!r} ? {low!r} : s > {high!r} ? {high!r} : s;")
        result = "(E)s"
    lines.append(f"q[i] = {'inside ? ' if _crops(rules) else ''}{result}{' : outside' if _crops(rules) else ''};")
    return "\n    ".join(lines)
