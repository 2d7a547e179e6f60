"""Reductions on CUDA: Reduce* over any axes, deterministic; rows.py has the operators that keep the row.

Each output is reduced by a group of threads; where there are few outputs the reduced elements are cut into parts, whose
results a second launch combines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from kgrun.graphs.dtypes import DTYPES, itemsize
from kgrun.graphs.operators import all_schemas, scalars
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.graphs.operators.reduction import reduced_axes
from kgrun.graphs.operators.scalar_code import compute_dtype
from kgrun.graphs.operators.shapes import strides_of
from kgrun.graphs.records import dataclass
from kgrun.runtime.kernels.base import CopyOperand, KernelCall, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    BLOCK,
    c_type,
    code,
    collapse,
    compute_type,
    cuda_file,
    index_type,
    int64,
    integers,
    launch,
    prelude,
    reach,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.rows import arg_extreme, layer_normalization, softmax

_BUSY = 65_536  # threads that fill a large GPU
_INFINITE = "T(__longlong_as_double(0x7ff0000000000000LL))"


@dataclass(frozen=True, slots=True)
class Geometry:
    """Kept and reduced axes, collapsed, with the source's strides in elements."""

    kept: tuple[int, ...]
    kept_steps: tuple[int, ...]
    reduced: tuple[int, ...]
    reduced_steps: tuple[int, ...]

    @property
    def outputs(self) -> int:
        """Number of results."""
        return prod(self.kept)

    @property
    def n(self) -> int:
        """Elements reduced to one."""
        return prod(self.reduced)


@on_cuda(*(schema.name for schema in all_schemas().values() if "combine" in schema.data))
def _reduce(call: OpCall) -> Lowered:
    source, axes = call.input(0), reduced_axes(call)
    return reduce(all_schemas()[call.op].data, source, axes, call.outputs[0])


@on_cuda("Softmax", "LogSoftmax", "Hardmax")
def _softmax(call: OpCall) -> Lowered:
    return softmax(call)


@on_cuda("ArgMax", "ArgMin")
def _arg_extreme(call: OpCall) -> Lowered:
    return arg_extreme(call)


@on_cuda("LayerNormalization")
def _layer_normalization(call: OpCall) -> Lowered:
    return layer_normalization(call)


def reduce(
    rule: Mapping[str, Any],
    source: TensorType,
    axes: Sequence[int],
    out: TensorType,
    *,
    of: Operand | None = None,
    to: Operand | None = None,
    scratch: int = 0,
) -> Lowered:
    """Reduce input 0 (or `of`) over `axes` into output 0 (or `to`) by a Reduce* schema's `rule`.

    `scratch` is the index of the first workspace that may be used; the result lists only those from there on.
    """
    of, to = of or source_input(0), to or target()
    if out.size == 0:
        return Lowered(())
    geometry = _geometry(source.shape, axes)
    if geometry.n == 1 and rule["map"] == "x" and rule["finish"] == "a" and out.dtype == source.dtype:
        return Lowered((CopyOperand(to, of, out.nbytes),))
    along_row = geometry.reduced_steps[-1] == 1
    parts = 1 if rule["shift"] else _parts(geometry, along_row)
    first = Operand("workspace", scratch) if parts > 1 else to
    chunk = -(-geometry.n // parts)
    group = _group(min(chunk, geometry.n), along_row)
    finish = "a" if parts > 1 else rule["finish"]
    stored = compute_dtype(source.dtype) if parts > 1 else out.dtype
    read = of if source.size else None
    work = [_launch(rule, source.dtype, stored, finish, geometry, group, read, first, parts, geometry.n)]
    if parts == 1:
        return Lowered(tuple(work))
    second = Geometry((geometry.outputs,), (parts,), (parts,), (1,))
    last = {**rule, "map": "x"}
    dtype = compute_dtype(source.dtype)
    group = _group(parts, True)
    work.append(_launch(last, dtype, out.dtype, rule["finish"], second, group, first, to, 1, geometry.n))
    return Lowered(tuple(work), (geometry.outputs * parts * itemsize(dtype),))


def _geometry(shape: Sequence[int], axes: Sequence[int]) -> Geometry:
    strides = strides_of(tuple(shape))
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    sizes, (steps,) = collapse([shape[a] for a in kept], [strides[a] for a in kept])
    reduced, (reduced_steps,) = collapse([shape[a] for a in axes], [strides[a] for a in axes])
    return Geometry(sizes, steps, reduced, reduced_steps)


def _parts(geometry: Geometry, along_row: bool) -> int:
    if along_row:
        wanted = min(-(-geometry.n // 4_096), -(-_BUSY // (geometry.outputs * BLOCK)))
    else:
        wanted = min(-(-geometry.n // 64), -(-_BUSY // geometry.outputs))
    return max(1, wanted)


def _group(n: int, along_row: bool) -> int:
    if not along_row or n < 16:
        return 1
    return BLOCK if n >= 1_024 else 32


def _init(kind: str, dtype: str) -> str:
    if kind in ("zero", "one"):
        return f"T({'0' if kind == 'zero' else '1'})"
    d = DTYPES[dtype]
    if d.limits is None:
        return ("-" if kind == "lowest" else "") + _INFINITE
    low, high = d.limits
    if dtype == "int64":
        return "(-9223372036854775807LL - 1)" if kind == "lowest" else "9223372036854775807LL"
    return f"T({low if kind == 'lowest' else high}{'ULL' if d.kind == 'uint' else 'LL'})"


def _offset(name: str, flat: str, field: str, rank: int, index: str) -> str:
    lines = [f"{index} {name} = 0;", f"{{ {index} rest = {flat};"]
    lines += [
        f"{name} += rest % ({index})g.{field}[{axis}] * ({index})g.{field}_step[{axis}];"
        f" rest /= ({index})g.{field}[{axis}];"
        for axis in range(rank - 1, 0, -1)
    ]
    lines.append(f"{name} += rest * ({index})g.{field}_step[0]; }}")
    return " ".join(lines)


def _text(rule: Mapping[str, Any], of: str, to: str, finish: str, geometry: Geometry, group: int) -> str:
    kept, reduced = len(geometry.kept), len(geometry.reduced)
    index = index_type([*reach(geometry.kept, geometry.kept_steps), *reach(geometry.reduced, geometry.reduced_steps)])
    walk = f"for ({index} r = first + lane; r < last; r += {group})"
    shift = ""
    if rule["shift"]:
        shift = f"""    T m = -{_INFINITE};
    {walk} {{ {_offset("place", "r", "reduced", reduced, index)} m = kg_max(m, (T)p[base + place]); }}
    m = kg_all<{group}>(m, [](T a, T b) {{ return kg_max(a, b); }});
    if (m - m != m - m) m = m != m ? m : T(0);
"""
    return f"""{prelude([of, to])}{cuda_file("rows.cuh")}{scalars.EXTREMES}
typedef {compute_type(of)} T;
typedef {c_type(to)} O;
struct Layout {{ long long kept[{kept}], kept_step[{kept}], reduced[{reduced}], reduced_step[{reduced}]; }};
extern "C" __global__ void __launch_bounds__(256) kg_reduce(
    const {c_type(of)}* p, O* q, const Layout g, long long outputs, long long parts, long long count, long long n) {{
  const long long groups = gridDim.x * (long long)(blockDim.x / {group});
  const int lane = threadIdx.x % {group};
  const long long chunk = (count + parts - 1) / parts;
  for (long long at = blockIdx.x * (long long)(blockDim.x / {group}) + threadIdx.x / {group}; at < outputs * parts;
       at += groups) {{
    const {index} out = ({index})(at % outputs), part = ({index})(at / outputs);
    const {index} first = ({index})(part * chunk);
    const {index} last = ({index})(first + chunk < count ? first + chunk : count);
    {_offset("base", "out", "kept", kept, index)}
{shift}    T a = {_init(rule["init"], of)};
    {walk} {{
      {_offset("place", "r", "reduced", reduced, index)}
      const T x = (T)p[base + place];
      const T b = (T)({rule["map"]});
      a = (T)({rule["combine"]});
    }}
    a = kg_all<{group}>(a, [](T a, T b) {{ return (T)({rule["combine"]}); }});
    if (lane == 0) q[(long long)out * parts + part] = kg_to<O>({finish});
  }}
}}
"""


def _launch(
    rule: Mapping[str, Any],
    of: str,
    to: str,
    finish: str,
    geometry: Geometry,
    group: int,
    source: Operand | None,
    output: Operand,
    parts: int,
    n: int,
) -> KernelCall:
    layout = [*geometry.kept, *geometry.kept_steps, *geometry.reduced, *geometry.reduced_steps]
    counts = (geometry.outputs, parts, geometry.n, n)
    args = (source, output, integers(layout), *map(int64, counts))
    text = _text(rule, of, to, finish, geometry, group)
    return launch(code("kg_reduce", text), args, geometry.outputs * parts * group)
