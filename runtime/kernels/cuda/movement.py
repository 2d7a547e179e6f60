"""Movement operators on CUDA: strided copies, and kernels of their own for Gather and Pad."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kgrun.graphs.dtypes import DTYPES, itemsize
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.graphs.operators.movement import (
    AxisRange,
    PaddedAxis,
    pad_amounts,
    padded_axis,
    permutation,
    slice_ranges,
    split_offsets,
)
from kgrun.graphs.operators.shapes import axis_of, broadcast_strides, strides_of
from kgrun.runtime.kernels.base import KernelCall, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import code, index_type, int64, integers, launch, source_input, target
from kgrun.runtime.kernels.cuda.copies import UNITS, Copy, strided_copy
from kgrun.runtime.program import Value


@on_cuda("Transpose")
def _transpose(call: OpCall) -> Lowered:
    shape, strides = call.outputs[0].shape, strides_of(call.input(0).shape)
    moved = [strides[axis] for axis in permutation(call)]
    return Lowered(_out_of_one(call, shape, moved))


@on_cuda("Expand")
def _expand(call: OpCall) -> Lowered:
    shape = call.outputs[0].shape
    return Lowered(_out_of_one(call, shape, broadcast_strides(call.input(0).shape, shape)))


@on_cuda("Tile")
def _tile(call: OpCall) -> Lowered:
    source, repeats = call.input(0).shape, call.ints(1) or ()
    strides = strides_of(source)
    shape = [size for pair in zip(repeats, source, strict=True) for size in pair]
    steps = [step for stride in strides for step in (0, stride)]
    return Lowered(_out_of_one(call, shape, steps))


@on_cuda("Slice")
def _slice(call: OpCall) -> Lowered:
    return Lowered(_ranged(call, slice_ranges(call), 0))


@on_cuda("Split")
def _split(call: OpCall) -> Lowered:
    axis, parts = split_offsets(call)
    whole = [AxisRange(0, 1, size) for size in call.input(0).shape]
    work: list[Copy] = []
    for index, part in enumerate(parts):
        work += _ranged(call, [*whole[:axis], part, *whole[axis + 1 :]], index)
    return Lowered(tuple(work))


@on_cuda("Concat")
def _concat(call: OpCall) -> Lowered:
    out = call.outputs[0]
    axis = call.axis(call.attributes["axis"], len(out.shape))
    strides = strides_of(out.shape)
    work: list[Copy] = []
    at = 0
    for index in range(len(call.inputs)):
        shape = call.input(index).shape
        offset = at * strides[axis]
        width = itemsize(out.dtype)
        work += strided_copy(target(), source_input(index), shape, strides, strides_of(shape), width, to_offset=offset)
        at += shape[axis]
    return Lowered(tuple(work))


def _out_of_one(call: OpCall, shape: Sequence[int], strides: Sequence[int]) -> tuple[Copy, ...]:
    width = itemsize(call.outputs[0].dtype)
    return strided_copy(target(), source_input(0), shape, strides_of(tuple(shape)), strides, width)


def _ranged(call: OpCall, ranges: Sequence[AxisRange], output: int) -> tuple[Copy, ...]:
    shape, strides = tuple(axis.size for axis in ranges), strides_of(call.input(0).shape)
    steps = [axis.step * stride for axis, stride in zip(ranges, strides, strict=True)]
    offset = sum(axis.start * stride for axis, stride in zip(ranges, strides, strict=True))
    width = itemsize(call.input(0).dtype)
    return strided_copy(target(output), source_input(0), shape, strides_of(shape), steps, width, of_offset=offset)


@on_cuda("Gather")
def _gather(call: OpCall) -> Lowered:
    if call.outputs[0].size == 0:
        return Lowered(())
    axis = axis_of(call)
    return Lowered((picked(call.input(0), axis, call.input(1), source_input(1)),))


def picked(data: TensorType, axis: int, indices: TensorType, at: Operand) -> KernelCall:
    """Slices of input 0 along `axis`, at the indices that lie at `at`, into output 0; some are wanted."""
    inner, width = prod(data.shape[axis + 1 :]), itemsize(data.dtype)
    while inner % 2 == 0 and width < 16:
        inner, width = inner // 2, width * 2
    total = prod(data.shape[:axis]) * indices.size * inner
    index = index_type((total, data.size))
    # An index out of range would read foreign memory: the kernel stops, and the device reports the fault.
    text = f"""typedef {UNITS[width]} E;
typedef {DTYPES[indices.dtype].c_type} I;
extern "C" __global__ void __launch_bounds__(256) kg_gather(
    E* q, const E* p, const I* at, long long size, long long count, long long inner, long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long flat = blockIdx.x * (long long)blockDim.x + threadIdx.x; flat < n; flat += grid) {{
    const {index} i = ({index})flat, w = ({index})inner, c = ({index})count;
    const {index} row = i / w, outer = row / c;
    long long k = at[row - outer * c];
    if (k < 0) k += size;
    if (k < 0 || k >= size) __trap();
    q[i] = p[(outer * ({index})size + ({index})k) * w + (i - row * w)];
  }}
}}
"""
    sizes = [int64(size) for size in (data.shape[axis], indices.size, inner, total)]
    return launch(code("kg_gather", text), [target(), source_input(0), at, *sizes], total)


_PLACE = {
    "constant": "if (k < 0 || k >= size) inside = false;",
    "edge": "k = k < 0 ? 0 : k >= size ? size - 1 : k;",
    "wrap": "k %= size; if (k < 0) k += size;",
    "reflect": (
        "if (size > 1) { const long long period = 2 * (size - 1); k %= period; if (k < 0) k += period;"
        " if (k >= size) k = period - k; } else k = 0;"
    ),
}


@on_cuda("Pad")
def _pad(call: OpCall) -> Lowered:
    return padded(call, pad_amounts(call), call.attributes["mode"])


def padded(call: OpCall, amounts: Sequence[tuple[int, int]], mode: str) -> Lowered:
    """Input 0 with `amounts` added on every axis, cropped where negative; Pad's fill value, or 0."""
    source, out = call.input(0), call.outputs[0]
    if out.size == 0:
        return Lowered(())
    before = [amount[0] for amount in amounts]
    sizes, source_sizes, starts = _merged(out.shape, source.shape, before)
    rank, unit = len(sizes), UNITS[itemsize(out.dtype)]
    given = call.optional(2) is not None
    place = _PLACE[mode]
    text = f"""typedef {unit} E;
struct Layout {{
  long long size[{rank}], source[{rank}];
  long long before[{rank}], start[{rank}], left[{rank}];  // of a source axis, `left` from `start` on are repeated
}};
extern "C" __global__ void __launch_bounds__(256) kg_pad(
    E* q, const E* p, const E* fill, E value, const Layout g, long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  if (fill) value = *fill;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += grid) {{
    long long rest = i, offset = 0, stride = 1;
    bool inside = true;
#pragma unroll
    for (int axis = {rank - 1}; axis >= 0; --axis) {{
      const long long size = g.left[axis];
      long long k = rest % g.size[axis] - g.before[axis];
      rest /= g.size[axis];
      {place}
      offset += (g.start[axis] + k) * stride;
      stride *= g.source[axis];
    }}
    q[i] = inside ? p[offset] : value;
  }}
}}
"""
    places = list(zip(sizes, source_sizes, starts, strict=True))
    rows = [PaddedAxis(0, own, start, 0) for _, own, start in places]
    if mode != "constant":
        rows = [padded_axis(own, start, size - own - start) for size, own, start in places]
    layout = [*sizes, *source_sizes, *(r.before for r in rows), *(r.start for r in rows), *(r.size for r in rows)]
    fill: Operand | None = source_input(2) if given and mode == "constant" else None
    args = (target(), source_input(0), fill, _fill_value(call, out.dtype), integers(layout))
    return Lowered((launch(code("kg_pad", text), (*args, int64(out.size)), out.size),))


def _merged(out: Sequence[int], source: Sequence[int], before: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Shapes and pads with neighbouring unpadded axes merged; at least one axis."""
    sizes: list[int] = []
    sources: list[int] = []
    starts: list[int] = []
    plain = False
    for size, own, start in zip(out, source, before, strict=True):
        unpadded = size == own and start == 0
        if unpadded and plain:
            sizes[-1] *= size
            sources[-1] *= own
        else:
            sizes.append(size)
            sources.append(own)
            starts.append(start)
        plain = unpadded
    return (sizes, sources, starts) if sizes else ([1], [1], [0])


def _fill_value(call: OpCall, dtype: str) -> Value:
    """Attribute `value` (older opsets) as the bit pattern of `dtype`."""
    import ml_dtypes  # noqa: F401  (gives numpy the names bfloat16 and float8)
    import numpy as np

    value = call.attributes.get("value", 0) if call.optional(2) is None else 0
    return Value(np.array(value).astype(np.dtype(dtype)).tobytes(), itemsize(dtype))
