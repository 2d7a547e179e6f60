"""Scans and TopK on CUDA: rows scanned by groups of threads; TopK by bitonic sorts (K. E. Batcher, 1968).

Rows of up to 2,048 elements are sorted in shared memory by one block each. Longer ones are padded to a power of two in
scratch, where passes over pairs far apart alternate with passes of blocks in shared memory.
"""

from __future__ import annotations

from math import prod

from kgrun.graphs.dtypes import itemsize
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.graphs.operators.scalar_code import compute_dtype
from kgrun.graphs.operators.scans import scan_axis
from kgrun.runtime.kernels.base import KernelCall, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    BLOCK,
    MOST_BLOCKS,
    c_type,
    code,
    compute_type,
    cuda_file,
    int64,
    launch,
    prelude,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.rows import lanes, row_kernel, run_rows

_WIDTH = 2_048  # elements that a block sorts in shared memory


@on_cuda("CumSum", "CumProd")
def _scan(call: OpCall) -> Lowered:
    source, axis = call.input(0), scan_axis(call)
    if source.size == 0:
        return Lowered(())
    n, inner = source.shape[axis], prod(source.shape[axis + 1 :])
    rows = source.size // n
    group = lanes(rows, n, inner)
    combine, start = ("a + b", "0") if call.op == "CumSum" else ("a * b", "1")
    place = "n - 1 - i" if call.attributes["reverse"] else "i"
    # An exclusive scan is the inclusive one of the elements before.
    shift = 1 if call.attributes["exclusive"] else 0
    before = place.replace("i", f"(i - {shift})") if shift else place
    body = f"""    const auto f = [](T a, T b) {{ return (T)({combine}); }};
    T carry = T({start});
    for (long long first = 0; first < n; first += L) {{
      const long long i = first + lane;
      T total, x = i < n && i >= {shift} ? (T)p[base + ({before}) * inner] : T({start});
      x = f(carry, kg_prefix<L>(x, f, total));
      carry = f(carry, total);
      if (i < n) q[base + ({place}) * inner] = kg_to<O>(x);
    }}"""
    stored = c_type(source.dtype)
    types = f"{cuda_file('scan.cuh')}#define L {group}\ntypedef {compute_type(source.dtype)} T;\ntypedef {stored} O;"
    text = row_kernel("kg_scan", [source.dtype], types, f"const {stored}* p, O* q", body)
    return Lowered((run_rows("kg_scan", text, (source_input(0), target()), rows, n, inner, group),))


@on_cuda("TopK")
def _top_k(call: OpCall) -> Lowered:
    source, axis = call.input(0), scan_axis(call)
    if call.outputs[0].size == 0:
        return Lowered(())
    n = source.shape[axis]
    rows, padded = source.size // n, 1 << (n - 1).bit_length()
    sort = _Sort(call, n, prod(source.shape[axis + 1 :]), rows, padded)
    if padded <= _WIDTH:
        return Lowered((sort.inside(2, padded, first=True, last=True),))
    work = [sort.inside(2, _WIDTH, first=True)]
    length = 2 * _WIDTH
    while length <= padded:
        reach = length // 2
        while reach >= _WIDTH:
            work.append(sort.across(length, reach))
            reach //= 2
        work.append(sort.inside(length, length, last=length == padded))
        length *= 2
    width = itemsize(compute_dtype(source.dtype))
    return Lowered(tuple(work), (rows * padded * width, rows * padded * 8))


class _Sort:
    """The launches of one bitonic sort of `rows` rows of `n` elements, padded."""

    def __init__(self, call: OpCall, n: int, inner: int, rows: int, padded: int) -> None:
        self.source: TensorType = call.input(0)
        self.n, self.inner, self.rows, self.padded = n, inner, rows, padded
        self.keep = call.outputs[0].shape[scan_axis(call)]
        a, b = ("a", "b") if call.attributes["largest"] else ("b", "a")
        # Whether element (v, i) goes before (w, j); padding, of index -1, goes last.
        self.head = f"""{prelude([self.source.dtype])}
typedef {c_type(self.source.dtype)} E;
typedef {compute_type(self.source.dtype)} T;
__device__ __forceinline__ bool kg_greater(T a, T b) {{ return a > b || (a != a && b == b); }}
__device__ __forceinline__ bool kg_goes_before(T a, long long i, T b, long long j) {{
  if (i < 0 || j < 0) return i >= 0 && j < 0;
  return kg_greater({a}, {b}) || (!kg_greater({b}, {a}) && i < j);
}}
"""

    def inside(self, low: int, high: int, *, first: bool = False, last: bool = False) -> KernelCall:
        """Merge runs of `low` … `high` elements, as far as blocks of shared memory reach.

        With `first` elements come from input 0, with `last` the best of a row go to the outputs.
        """
        width = min(self.padded, _WIDTH)
        read = (
            "if (at < n) { v[t] = (T)p[(row / inner * n + at) * inner + row % inner]; k[t] = at; }"
            " else { v[t] = T(0); k[t] = -1; }"
            if first
            else "v[t] = values[row * padded + at]; k[t] = places[row * padded + at];"
        )
        write = (
            "if (at < keep) { const long long to = (row / inner * keep + at) * inner + row % inner;"
            " q[to] = kg_to<E>(v[t]); indices[to] = k[t]; }"
            if last
            else "values[row * padded + at] = v[t]; places[row * padded + at] = k[t];"
        )
        text = f"""{self.head}
#define WIDTH {width}
extern "C" __global__ void __launch_bounds__(256) kg_sort(
    const E* p, E* q, long long* indices, T* values, long long* places, long long low, long long high,
    long long n, long long padded, long long inner, long long keep, long long rows) {{
  __shared__ T v[WIDTH];
  __shared__ long long k[WIDTH];
  const long long chunks = padded / WIDTH;
  for (long long chunk = blockIdx.x; chunk < rows * chunks; chunk += gridDim.x) {{
    const long long row = chunk / chunks, start = chunk % chunks * WIDTH;
    for (int t = threadIdx.x; t < WIDTH; t += 256) {{
      const long long at = start + t;
      {read}
    }}
    for (long long length = low; length <= high; length *= 2)
      for (int reach = (int)(length < WIDTH ? length : WIDTH) / 2; reach > 0; reach /= 2) {{
        __syncthreads();
        for (int t = threadIdx.x; t < WIDTH / 2; t += 256) {{
          const int a = 2 * t - (t & (reach - 1)), b = a + reach;
          const bool up = ((start + a) & length) == 0;
          if (kg_goes_before(v[b], k[b], v[a], k[a]) == up) {{
            const T value = v[a]; v[a] = v[b]; v[b] = value;
            const long long place = k[a]; k[a] = k[b]; k[b] = place;
          }}
        }}
      }}
    __syncthreads();
    for (int t = threadIdx.x; t < WIDTH; t += 256) {{
      const long long at = start + t;
      {write}
    }}
    __syncthreads();
  }}
}}
"""
        values, places = (None, None) if first and last else (Operand("workspace", 0), Operand("workspace", 1))
        outputs = (target(0), target(1)) if last else (None, None)
        sizes = (low, high, self.n, self.padded, self.inner, self.keep, self.rows)
        args = (source_input(0) if first else None, *outputs, values, places, *map(int64, sizes))
        blocks = min(self.rows * (self.padded // width), MOST_BLOCKS)
        return KernelCall(code("kg_sort", text), args, (blocks, 1, 1), (BLOCK, 1, 1))

    def across(self, length: int, reach: int) -> KernelCall:
        """One pass over pairs `reach` apart, in scratch, of a merge of runs of `length`."""
        text = f"""{self.head}
extern "C" __global__ void __launch_bounds__(256) kg_sort_across(
    T* values, long long* places, long long length, long long reach, long long padded, long long n) {{
  const long long grid = gridDim.x * (long long)blockDim.x;
  for (long long t = blockIdx.x * (long long)blockDim.x + threadIdx.x; t < n; t += grid) {{
    const long long a = 2 * t - (t & (reach - 1)), b = a + reach;
    const bool up = ((a & (padded - 1)) & length) == 0;
    const T x = values[a], y = values[b];
    const long long i = places[a], j = places[b];
    if (kg_goes_before(y, j, x, i) == up) {{
      values[a] = y; values[b] = x;
      places[a] = j; places[b] = i;
    }}
  }}
}}
"""
        pairs = self.rows * self.padded // 2
        scratch = (Operand("workspace", 0), Operand("workspace", 1))
        sizes = map(int64, (length, reach, self.padded, pairs))
        return launch(code("kg_sort_across", text), [*scratch, *sizes], pairs)
