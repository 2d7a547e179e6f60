"""Indexing on CUDA: one kernel shape for gathers and scatters, a thread an element; an index outside its axis traps.

A scatter with a reduction combines atomically. Elements narrower than 32 bits are combined in scratch of the type they
are computed in, so that halves are rounded once; sums of floats may then differ in the last place from run to run.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kgrun.graphs.dtypes import DTYPES, itemsize
from kgrun.graphs.operators import scalars
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.graphs.operators.indexing import nd_sizes, one_hot_axis
from kgrun.graphs.operators.shapes import axis_of, strides_of
from kgrun.graphs.records import dataclass
from kgrun.runtime.kernels.base import CopyOperand, KernelCall, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    Arguments,
    c_type,
    code,
    collapse,
    index_type,
    int64,
    integers,
    launch,
    prelude,
    reach,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.copies import UNITS
from kgrun.runtime.kernels.cuda.elementwise import Scalars, Source, elementwise, offsets_text
from kgrun.runtime.program import Value

_COMBINE = {"mul": "a * b", "max": "kg_max(a, b)", "min": "kg_min(a, b)"}


@dataclass(frozen=True, slots=True)
class Places:
    """Where element i of an index kernel lies in data.

    Attributes:
        text: C statements that compute `place` from `i`, with members of the layout `g` and the indices `at`.
        members: the C members of the layout.
        layout: their values.
        count: elements to move.
        index: the C type of `place`.
    """

    text: str
    members: str
    layout: Value
    count: int
    index: str


def _element_places(call: OpCall) -> Places:
    """Of GatherElements and ScatterElements: the coordinates of the index itself, but `axis` as the index says."""
    data, indices, axis = call.input(0).shape, call.input(1).shape, axis_of(call)
    strides = strides_of(data)
    steps = [0 if at == axis else stride for at, stride in enumerate(strides)]
    sizes, (_, offsets) = collapse(indices, strides_of(indices), steps)
    index, rank = index_type((*reach(sizes, offsets), prod(data))), len(sizes)
    text = f"""{offsets_text(["o0"], rank, index)}
    long long k = at[i];
    if (k < 0) k += g.extent;
    if (k < 0 || k >= g.extent) __trap();
    const {index} place = o0 + ({index})k * ({index})g.stride;"""
    members = f"long long size[{rank}], step[1][{rank}], extent, stride;"
    layout = integers([*sizes, *offsets, data[axis], strides[axis]])
    return Places(text, members, layout, prod(indices), index)


def _slice_places(call: OpCall, factor: int) -> Places:
    """Of GatherND and ScatterND: slices of which `factor` elements travel as one."""
    batches, axes, width = nd_sizes(call)
    depth, wide = len(axes), width // factor
    rows = prod(call.input(1).shape[:-1])
    steps = [prod(axes[at + 1 :]) * wide for at in range(depth)]
    index = index_type((rows * wide, prod(call.input(0).shape)))
    text = f"""const {index} row = i / ({index})g.width;
    {index} place = i - row * ({index})g.width + row / ({index})g.rows * ({index})g.batch;
#pragma unroll
    for (int axis = 0; axis < {depth}; ++axis) {{
      long long k = at[row * ({index}){depth} + axis];
      if (k < 0) k += g.size[axis];
      if (k < 0 || k >= g.size[axis]) __trap();
      place += ({index})k * ({index})g.step[axis];
    }}"""
    members = f"long long size[{depth}], step[{depth}], width, rows, batch;"
    layout = integers([*axes, *steps, wide, max(rows // max(batches, 1), 1), prod(axes) * wide])
    return Places(text, members, layout, rows * wide, index)


def _factor(call: OpCall) -> int:
    """How many neighbouring elements of a slice travel as one, up to 16 bytes."""
    _, _, width = nd_sizes(call)
    factor, size = 1, itemsize(call.input(0).dtype)
    while width % (factor * 2) == 0 and factor * 2 * size <= 16:
        factor *= 2
    return factor


def _indexed(
    call: OpCall, places: Places, head: str, types: tuple[str, str], body: str, args: Sequence[Operand]
) -> KernelCall:
    """A kernel over q and p of the C types `types`, and indices; `body` moves element i from or to `place`."""
    text = f"""{head}typedef {types[0]} Q;
typedef {types[1]} P;
struct Layout {{ {places.members} }};
extern "C" __global__ void __launch_bounds__(256) kg_indexed(
    Q* q, const P* p, const {c_type(call.input(1).dtype)}* at, const Layout g, long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long flat = blockIdx.x * (long long)blockDim.x + threadIdx.x; flat < n; flat += grid) {{
    const {places.index} i = ({places.index})flat;
    {places.text}
    {body}
  }}
}}
"""
    operands: Arguments = (*args, source_input(1), places.layout, int64(places.count))
    return launch(code("kg_indexed", text), operands, places.count)


@on_cuda("GatherElements", "GatherND")
def _gather(call: OpCall) -> Lowered:
    if call.outputs[0].size == 0:
        return Lowered(())
    factor = _factor(call) if call.op == "GatherND" else 1
    places = _slice_places(call, factor) if call.op == "GatherND" else _element_places(call)
    unit = UNITS[itemsize(call.input(0).dtype) * factor]
    return Lowered((_indexed(call, places, "", (unit, unit), "q[i] = p[place];", (target(), source_input(0))),))


@on_cuda("ScatterElements", "Scatter", "ScatterND")
def _scatter(call: OpCall) -> Lowered:
    data, reduction = call.input(0), call.attributes.get("reduction", "none")
    if data.size == 0:
        return Lowered(())
    if call.input(2).size == 0:
        return Lowered((CopyOperand(target(), source_input(0), data.nbytes),))
    factor = _factor(call) if call.op == "ScatterND" and reduction == "none" else 1
    places = _slice_places(call, factor) if call.op == "ScatterND" else _element_places(call)
    if reduction == "none":
        unit = UNITS[itemsize(data.dtype) * factor]
        moved = _indexed(call, places, "", (unit, unit), "q[place] = p[i];", (target(), source_input(2)))
        return Lowered((CopyOperand(target(), source_input(0), data.nbytes), moved))
    return _combined(call, places, reduction)


def _combined(call: OpCall, places: Places, reduction: str) -> Lowered:
    data = call.input(0)
    work, kind = _combining_dtype(data.dtype), c_type(_combining_dtype(data.dtype))
    head = prelude([data.dtype]) + scalars.EXTREMES + _update(kind, itemsize(work), reduction)
    body, types = "kg_update(q + place, (Q)p[i]);", (kind, c_type(data.dtype))
    if work == data.dtype:
        update = _indexed(call, places, head, types, body, (target(), source_input(2)))
        return Lowered((CopyOperand(target(), source_input(0), data.nbytes), update))
    scratch, strides = Operand("workspace", 0), strides_of(data.shape)
    wide, plain = TensorType(work, data.shape), Scalars("x", kind)
    into = elementwise([Source(source_input(0), data.dtype, "x", strides)], plain, wide, scratch)
    back = elementwise([Source(scratch, work, "x", strides)], plain, call.outputs[0])
    update = _indexed(call, places, head, types, body, (scratch, source_input(2)))
    return Lowered((*into.work, update, *back.work), (wide.nbytes,))


def _is_float(dtype: str) -> bool:
    return DTYPES[dtype].kind == "float"


def _combining_dtype(dtype: str) -> str:
    """The dtype of 4 or 8 bytes that elements of `dtype` are combined in."""
    if itemsize(dtype) >= 4:
        return dtype
    return "float32" if _is_float(dtype) else "uint32" if DTYPES[dtype].kind == "uint" else "int32"


def _update(kind: str, width: int, reduction: str) -> str:
    """The device function that combines one update with what lies at an address."""
    word = "unsigned int" if width == 4 else "unsigned long long"
    if reduction == "add":
        as_type = "unsigned long long" if kind == "long long" else kind
        add = f"atomicAdd(reinterpret_cast<{as_type}*>(at), ({as_type})b);"
        return f"__device__ __forceinline__ void kg_update({kind}* at, {kind} b) {{ {add} }}\n"
    return f"""__device__ __forceinline__ void kg_update({kind}* at, {kind} b) {{
  union Bits {{ {kind} value; {word} word; }};
  {word}* place = reinterpret_cast<{word}*>(at);
  Bits seen, next;
  seen.word = *place;
  for (;;) {{
    const {kind} a = seen.value;
    next.value = {_COMBINE[reduction]};
    const {word} found = atomicCAS(place, seen.word, next.word);
    if (found == seen.word) return;
    seen.word = found;
  }}
}}
"""


@on_cuda("OneHot")
def _one_hot(call: OpCall) -> Lowered:
    indices, out = call.input(0), call.outputs[0]
    if out.size == 0:
        return Lowered(())
    axis = one_hot_axis(call)
    index = "float" if _is_float(indices.dtype) and indices.dtype != "float64" else ""
    text = f"""{prelude([indices.dtype])}typedef {UNITS[itemsize(out.dtype)]} E;
extern "C" __global__ void __launch_bounds__(256) kg_one_hot(
    E* q, const {c_type(indices.dtype)}* at, const E* values, long long depth, long long inner, long long n) {{
  const E off = values[0], on = values[1];
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += grid) {{
    const long long row = i / inner, outer = row / depth;
    long long k = (long long){f"({index})" if index else ""}at[outer * inner + (i - row * inner)];
    if (k < 0) k += depth;
    q[i] = k == row - outer * depth ? on : off;
  }}
}}
"""
    sizes = (out.shape[axis], prod(out.shape[axis + 1 :]), out.size)
    args: Arguments = (target(), source_input(0), source_input(2), *map(int64, sizes))
    return Lowered((launch(code("kg_one_hot", text), args, out.size),))
