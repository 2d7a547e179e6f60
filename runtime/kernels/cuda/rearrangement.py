"""Rearrangement on CUDA: strided copies and pads, and small kernels for sequences and triangles."""

from __future__ import annotations

from math import prod

from kgrun.graphs.dtypes import itemsize
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.rearrangement import block_layout, centre_amounts, diagonal
from kgrun.graphs.operators.shapes import strides_of
from kgrun.runtime.kernels.base import Lowered, on_cuda
from kgrun.runtime.kernels.cuda.common import Arguments, code, int64, launch, source_input, target
from kgrun.runtime.kernels.cuda.copies import UNITS, strided_copy
from kgrun.runtime.kernels.cuda.movement import padded


@on_cuda("DepthToSpace", "SpaceToDepth")
def _blocks(call: OpCall) -> Lowered:
    split, permutation = block_layout(call)
    shape, strides = tuple(split[axis] for axis in permutation), strides_of(split)
    moved = [strides[axis] for axis in permutation]
    width = itemsize(call.input(0).dtype)
    return Lowered(strided_copy(target(), source_input(0), shape, strides_of(shape), moved, width))


@on_cuda("CenterCropPad")
def _center_crop_pad(call: OpCall) -> Lowered:
    return padded(call, centre_amounts(call), "constant")


@on_cuda("ReverseSequence")
def _reverse_sequence(call: OpCall) -> Lowered:
    source = call.input(0)
    if source.size == 0:
        return Lowered(())
    by_batch = call.attributes["batch_axis"] == 0
    outer, middle, inner = source.shape[0], source.shape[1], prod(source.shape[2:])
    batch, time = ("outer", "middle") if by_batch else ("middle", "outer")
    # A sequence longer than its axis would read foreign memory: the kernel stops, and the device reports the fault.
    text = f"""typedef {UNITS[itemsize(source.dtype)]} E;
extern "C" __global__ void __launch_bounds__(256) kg_reverse(
    E* q, const E* p, const long long* lengths, long long steps, long long middles, long long inner, long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += grid) {{
    const long long row = i / inner;
    long long outer = row / middles, middle = row % middles;
    const long long length = lengths[{batch}];
    if (length < 0 || length > steps) __trap();
    if ({time} < length) {time} = length - 1 - {time};
    q[i] = p[(outer * middles + middle) * inner + (i - row * inner)];
  }}
}}
"""
    steps = middle if by_batch else outer
    args: Arguments = (target(), source_input(0), source_input(1), *map(int64, (steps, middle, inner, source.size)))
    return Lowered((launch(code("kg_reverse", text), args, source.size),))


@on_cuda("Trilu")
def _trilu(call: OpCall) -> Lowered:
    source = call.input(0)
    if source.size == 0:
        return Lowered(())
    kept = "column - row >= k" if call.attributes["upper"] else "column - row <= k"
    text = f"""typedef {UNITS[itemsize(source.dtype)]} E;
extern "C" __global__ void __launch_bounds__(256) kg_trilu(
    E* q, const E* p, long long k, long long rows, long long columns, long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += grid) {{
    const long long line = i / columns, column = i - line * columns, row = line % rows;
    q[i] = {kept} ? p[i] : E(0);
  }}
}}
"""
    args: Arguments = (target(), source_input(0), *map(int64, (diagonal(call), *source.shape[-2:], source.size)))
    return Lowered((launch(code("kg_trilu", text), args, source.size),))
