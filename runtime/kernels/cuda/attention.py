"""Attention and RotaryEmbedding on CUDA.

A warp takes a row of queries over all keys, 32 at a time, with a running maximum, so that no scores are stored. Blocks
of eight warps take eight rows, or, where there are few rows, one row whose keys the warps share out.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kgrun.graphs.dtypes import itemsize
from kgrun.graphs.operators.attention import AttentionSizes, attention_sizes, rotary_sizes
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.scalar_code import literal
from kgrun.graphs.operators.shapes import broadcast_strides, strides_of
from kgrun.runtime.kernels.base import CopyOperand, KernelCall, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    c_type,
    code,
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
from kgrun.runtime.kernels.cuda.copies import strided_copy
from kgrun.runtime.program import Value

_WARPS = 8
_BUSY = 1_056  # blocks of a row each that fill a large GPU: eight a multiprocessor
_MOST = 1 << 20


@on_cuda("Attention")
def _attention(call: OpCall) -> Lowered:
    s = attention_sizes(call)
    work: list[KernelCall | CopyOperand] = []
    for index, size in ((1, s.size), (2, s.value_size)):
        if len(call.outputs) > index:
            work += _present(call, s, index, size)
    if call.outputs[0].size or (len(call.outputs) > 3 and call.outputs[3].size):
        work.append(_rows(call, s))
    return Lowered(tuple(work))


def _steps(shape: Sequence[int], s: AttentionSizes, heads: int, size: int) -> tuple[int, int, int]:
    """Strides along batch, heads and sequence of an operand as it lies."""
    if s.flat:
        return shape[1] * shape[2], size, heads * size
    return shape[1] * shape[2] * size, shape[2] * size, size


def _present(call: OpCall, s: AttentionSizes, index: int, size: int) -> list[KernelCall | CopyOperand]:
    """The cache and what is new, one after the other."""
    out, kind = call.outputs[index], call.input(index)
    width, to = itemsize(out.dtype), strides_of(out.shape)
    work: list[KernelCall | CopyOperand] = []
    if s.past:
        shape = (s.batch, s.shared, s.past, size)
        work += strided_copy(target(index), source_input(index + 3), shape, to, strides_of(shape), width)
    shape = (s.batch, s.shared, s.keys - s.past, size)
    steps = (*_steps(kind.shape, s, s.shared, size), 1)
    work += strided_copy(target(index), source_input(index), shape, to, steps, width, to_offset=s.past * size)
    return work


def _rows(call: OpCall, s: AttentionSizes) -> KernelCall:
    dtype, values, mask = call.input(0).dtype, call.input(2).dtype, call.optional(3)
    whole = (s.batch, s.heads, s.queries, s.keys)
    rows = s.batch * s.heads * s.queries
    together = 1 if rows < _BUSY and s.keys > 32 else _WARPS
    cap, mode = call.attributes["softcap"], call.attributes["qk_matmul_output_mode"]
    shown = len(call.outputs) > 3
    dtypes = [dtype, values, *([mask.dtype] if mask is not None else [])]
    masked, added = "long long", "T(0)"
    if mask is not None:
        masked = c_type(mask.dtype)
        read = "mask[mask_at + key * mask_step]"
        added = f"{read} ? T(0) : -INF" if mask.dtype == "bool" else f"(T){read}"
    constants = {
        "ROWS": together,
        "SIZE": s.size,
        "VALUE_SIZE": s.value_size,
        "SHOWN": mode if shown else -1,
        "PAST": int(s.past > 0),
    }
    head = "".join(f"#define {name} {value}\n" for name, value in constants.items())
    capped = f"{literal(cap)} * tanh(x / {literal(cap)})" if cap > 0 else "x"
    text = f"""{prelude(dtypes)}{head}#define INF T(__longlong_as_double(0x7ff0000000000000LL))
typedef {c_type(dtype)} E;
typedef {c_type(values)} V;
typedef {masked} M;
typedef {compute_type(dtype)} T;
#define CAPPED(x) ({capped})
#define ADDED ({added})
{cuda_file("attention.cuh")}"""
    shapes = (call.input(0).shape, call.input(1).shape, call.input(2).shape, call.outputs[0].shape)
    heads = ((s.heads, s.size), (s.shared, s.size), (s.shared, s.value_size), (s.heads, s.value_size))
    steps = [_steps(shape, s, *each) for shape, each in zip(shapes, heads, strict=True)]
    mask_steps: tuple[int, ...] = (0,) * 4
    length = s.keys
    if mask is not None:
        # A mask of one key is every key's; one that ends early masks what follows.
        length = s.keys if mask.shape[-1] == 1 else mask.shape[-1]
        mask_steps = broadcast_strides(mask.shape, (*whole[:3], mask.shape[-1]))
    ahead = 0 if call.attributes["is_causal"] else call.attributes["right_window_size"]
    layout = [*(step for each in steps for step in each), *mask_steps, s.heads, s.heads // s.shared, s.queries]
    layout += [s.keys, s.past, length, ahead, call.attributes["left_window_size"], rows]
    args: list[Operand | Value | None] = [*map(source_input, range(3))]
    args += [source_input(index) if call.optional(index) is not None else None for index in range(3, 7)]
    args += [target(), target(3) if shown else None, integers(layout), number(s.scale, dtype)]
    blocks = -(-rows // together)
    return KernelCall(code("kg_attention", text), tuple(args), (min(blocks, _MOST), 1, 1), (32 * _WARPS, 1, 1))


@on_cuda("RotaryEmbedding")
def _rotary(call: OpCall) -> Lowered:
    out, s = call.outputs[0], rotary_sizes(call)
    if out.size == 0:
        return Lowered(())
    pair = ("i / 2", "i % 2 == 0", "2 * p", "2 * p + 1")
    if not call.attributes["interleaved"]:
        pair = ("i % half", "i < half", "p", "p + half")
    # A row is one head of one position: [batch, sequence, heads] for three axes, [batch, heads, sequence] for four.
    place = "row / heads" if s.flat else "row / (heads * sequence) * sequence + row % sequence"
    text = f"""{prelude([out.dtype])}typedef {c_type(out.dtype)} E;
typedef {compute_type(out.dtype)} T;
extern "C" __global__ void __launch_bounds__(256) kg_rotary(const E* x, const E* cosines, const E* sines,
    const long long* positions, E* y, long long heads, long long sequence, long long size, long long half,
    long long known, long long n) {{
  const long long step = gridDim.x * (long long)blockDim.x;
  for (long long flat = blockIdx.x * (long long)blockDim.x + threadIdx.x; flat < n; flat += step) {{
    const long long row = flat / size, i = flat % size;
    if (i >= 2 * half) {{ y[flat] = x[flat]; continue; }}
    long long at = {place};
    if (positions) {{
      at = positions[at];
      if (at < 0 || at >= known) __trap();
    }}
    const long long p = {pair[0]};
    const T a = (T)x[row * size + {pair[2]}], b = (T)x[row * size + {pair[3]}];
    const T c = (T)cosines[at * half + p], s = (T)sines[at * half + p];
    y[flat] = kg_to<E>({pair[1]} ? c * a - s * b : s * a + c * b);
  }}
}}
"""
    positions = source_input(3) if call.optional(3) is not None else None
    args = (*map(source_input, range(3)), positions, target())
    sizes = (s.heads, s.sequence, s.size, s.rotated // 2, call.input(1).shape[0], prod(out.shape))
    return Lowered((launch(code("kg_rotary", text), (*args, *map(int64, sizes)), out.size),))
