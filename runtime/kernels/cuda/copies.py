"""Strided copies: one kernel that moves elements between two strided views, and a tiled one for transposes."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from kgrun.runtime.kernels.base import CopyOperand, KernelCall, Operand
from kgrun.runtime.kernels.cuda.common import code, collapse, index_type, int64, integers, launch, reach
from kgrun.runtime.kernels.cuda.elementwise import offsets_text

_TILE = 32
_MOST_Y = 65_535
UNITS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long", 16: "uint4"}

Copy = KernelCall | CopyOperand


def strided_copy(
    to: Operand,
    of: Operand,
    shape: Sequence[int],
    to_strides: Sequence[int],
    of_strides: Sequence[int],
    itemsize: int,
    *,
    to_offset: int = 0,
    of_offset: int = 0,
) -> tuple[Copy, ...]:
    """Copy `shape` elements of `itemsize` bytes; strides and offsets in elements, negative strides allowed.

    No launch for an empty shape, a plain copy where both sides are contiguous.
    """
    if 0 in shape:
        return ()
    sizes, (out, source) = collapse(shape, to_strides, of_strides)
    if len(sizes) == 1 and (sizes == (1,) or (out == (1,) and source == (1,))):
        return (
            CopyOperand(
                Operand(to.role, to.index, to.offset + to_offset * itemsize),
                Operand(of.role, of.index, of.offset + of_offset * itemsize),
                sizes[0] * itemsize,
            ),
        )
    if _is_transpose(sizes, out, source):
        return (_transpose(to, of, sizes, source, itemsize, to_offset, of_offset),)
    factor = _widening(sizes, out, source, itemsize, to_offset, of_offset)
    if factor > 1:
        itemsize *= factor
        sizes = (*sizes[:-1], sizes[-1] // factor)
        out, source = ((*(step // factor for step in steps[:-1]), 1) for steps in (out, source))
        to_offset, of_offset = to_offset // factor, of_offset // factor
    index = index_type(reach(sizes, out, source))
    kernel = code("kg_copy", _copy_text(UNITS[itemsize], len(sizes), index))
    args = (to, of, integers([*sizes, *out, *source]), int64(to_offset), int64(of_offset), int64(prod(sizes)))
    return (launch(kernel, args, prod(sizes)),)


def _widening(
    sizes: Sequence[int], out: Sequence[int], source: Sequence[int], itemsize: int, to_offset: int, of_offset: int
) -> int:
    """How many neighbouring elements can travel as one, up to 16 bytes: tensors start at multiples of 256 bytes."""
    if out[-1] != 1 or source[-1] != 1:
        return 1
    common = gcd(sizes[-1], to_offset, of_offset, *out[:-1], *source[:-1])
    factor = 1
    while common % (factor * 2) == 0 and factor * 2 * itemsize <= 16:
        factor *= 2
    return factor


def _copy_text(unit: str, rank: int, index: str) -> str:
    return f"""typedef {unit} E;
struct Layout {{ long long size[{rank}]; long long step[2][{rank}]; }};
extern "C" __global__ void __launch_bounds__(256) kg_copy(
    E* q, const E* p, const Layout g, long long to, long long of, long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  q += to;
  p += of;
  for (long long flat = blockIdx.x * (long long)blockDim.x + threadIdx.x; flat < n; flat += grid) {{
    const {index} i = ({index})flat;
    {offsets_text(["o0", "o1"], rank, index)}
    q[o0] = p[o1];
  }}
}}
"""


def _is_transpose(sizes: Sequence[int], out: Sequence[int], source: Sequence[int]) -> bool:
    """Whether the last two axes swap: written along the last one, read along the one before."""
    return (
        len(sizes) in (2, 3)
        and out[-1] == 1
        and out[-2] == sizes[-1]
        and source[-2] == 1
        and source[-1] >= sizes[-2]
        and min(sizes[-2:]) >= 8
        and (len(sizes) == 2 or (out[0] == sizes[1] * sizes[2] and source[0] >= 0))
    )


def _transpose(
    to: Operand,
    of: Operand,
    sizes: Sequence[int],
    source: Sequence[int],
    itemsize: int,
    to_offset: int,
    of_offset: int,
) -> KernelCall:
    rows, columns = sizes[-2:]
    batch, step = (1, 0) if len(sizes) == 2 else (sizes[0], source[0])
    text = f"""typedef {UNITS[itemsize]} E;
extern "C" __global__ void __launch_bounds__(256) kg_transpose(E* q, const E* p, long long rows, long long columns,
    long long batch, long long line, long long plane, long long to, long long of) {{
  __shared__ E tile[{_TILE}][{_TILE} + 1];
  const long long c0 = blockIdx.x * {_TILE}LL;
  for (long long z = blockIdx.z; z < batch; z += gridDim.z)
    for (long long r0 = blockIdx.y * {_TILE}LL; r0 < rows; r0 += gridDim.y * {_TILE}LL) {{
      for (int k = threadIdx.y; k < {_TILE}; k += 8)
        if (c0 + k < columns && r0 + threadIdx.x < rows)
          tile[k][threadIdx.x] = p[of + z * plane + (c0 + k) * line + r0 + threadIdx.x];
      __syncthreads();
      for (int k = threadIdx.y; k < {_TILE}; k += 8)
        if (r0 + k < rows && c0 + threadIdx.x < columns)
          q[to + (z * rows + r0 + k) * columns + c0 + threadIdx.x] = tile[threadIdx.x][k];
      __syncthreads();
    }}
}}
"""
    args = [int64(v) for v in (rows, columns, batch, source[-1], step, to_offset, of_offset)]
    grid = (-(-columns // _TILE), min(-(-rows // _TILE), _MOST_Y), min(batch, _MOST_Y))
    return KernelCall(code("kg_transpose", text), (to, of, *args), grid, (_TILE, 8, 1))
