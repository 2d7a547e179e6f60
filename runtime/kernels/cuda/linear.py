"""MatMul and Gemm on CUDA: cuBLAS where its bindings are installed and the shapes suit it, an own tiled kernel else."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from kgrun.graphs.dtypes import DTYPES, itemsize
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.graphs.operators.linear import gemm_sizes
from kgrun.graphs.operators.shapes import broadcast_strides, strides_of
from kgrun.graphs.records import dataclass
from kgrun.runtime.kernels.base import CopyOperand, KernelCall, LibraryRoutine, Lowered, Operand, on_cuda
from kgrun.runtime.kernels.cuda.common import (
    code,
    collapse,
    compute_type,
    int64,
    integers,
    library_installed,
    number,
    source_input,
    target,
)
from kgrun.runtime.kernels.cuda.copies import strided_copy
from kgrun.runtime.kernels.cuda.elementwise import Scalars, Source, elementwise
from kgrun.runtime.kernels.cuda.gemm import gemm_source, grid_of, tile_for
from kgrun.runtime.program import Value

_BLAS_TYPES = frozenset({"float32", "float64", "float16", "bfloat16"})
_LEFT, _RIGHT, _INTO = source_input(0), source_input(1), target()
_BLAS_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Product:
    """D = alpha·A·B + beta·C over batches, everything in elements.

    Attributes:
        a: steps of A along m and k; b: of B along k and n; c: of C along m and n, None without C.
        batch, a_batch, b_batch: batch extents, collapsed, and the steps of A and B along them.
        left, right, into: where A, B and D lie.
    """

    m: int
    n: int
    k: int
    a: tuple[int, int]
    b: tuple[int, int]
    batch: tuple[int, ...] = (1,)
    a_batch: tuple[int, ...] = (0,)
    b_batch: tuple[int, ...] = (0,)
    c: tuple[int, int] | None = None
    alpha: float = 1.0
    beta: float = 1.0
    left: Operand = _LEFT
    right: Operand = _RIGHT
    into: Operand = _INTO


@lru_cache
def blas_available() -> bool:
    """Whether cuBLAS and its bindings are installed; KGRUN_BLAS=0 turns it off."""
    return library_installed("KGRUN_BLAS", "nvmath", "*/lib/libcublas.so*", "usr/local/cuda/lib64/libcublas.so*")


@on_cuda("MatMul")
def _matmul(call: OpCall) -> Lowered:
    a, b, batch = matrices(call.input(0).shape, call.input(1).shape)
    m, n, k = gemm_sizes(call)
    steps = [_batch_steps(shape, batch) for shape in (a, b)]
    a_steps, b_steps = (1, m) if 0 in call.turned else (k, 1), (1, k) if 1 in call.turned else (n, 1)
    if not any(steps[1]) and prod(batch) > 1 and prod(a[:-2]) == prod(batch) and 0 not in call.turned:
        m, batch, steps = m * prod(batch), (), [(), ()]  # one matrix B for all: the batches of A are further rows
    sizes, (a_batch, b_batch) = collapse(batch, *steps)
    return product(call, Product(m, n, k, a_steps, b_steps, sizes, a_batch, b_batch))


def matrices(a: Sequence[int], b: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The shapes of MatMul's operands as matrices, and the batch that they broadcast to."""
    a, b = (1, *a) if len(a) == 1 else tuple(a), (*b, 1) if len(b) == 1 else tuple(b)
    lead = len(max(a, b, key=len)) - 2
    batch = tuple(
        _extent(a, axis, lead) if _extent(a, axis, lead) != 1 else _extent(b, axis, lead) for axis in range(lead)
    )
    return a, b, batch


def _extent(shape: Sequence[int], axis: int, lead: int) -> int:
    own = axis - (lead - (len(shape) - 2))
    return shape[own] if own >= 0 else 1


def _batch_steps(shape: Sequence[int], batch: tuple[int, ...]) -> tuple[int, ...]:
    lead = tuple(shape[:-2])
    return tuple(step * shape[-2] * shape[-1] for step in broadcast_strides(lead, batch))


@on_cuda("Gemm")
def _gemm(call: OpCall) -> Lowered:
    m, n, k = gemm_sizes(call)
    # Turned twice is as it was.
    a = (1, m) if call.attributes["transA"] != (0 in call.turned) else (k, 1)
    b = (1, k) if call.attributes["transB"] != (1 in call.turned) else (n, 1)
    added = call.optional(2)
    steps = None
    if added is not None and call.attributes["beta"] != 0:
        row, column = broadcast_strides(added.shape, (m, n))
        steps = (row, column)
    return product(call, Product(m, n, k, a, b, c=steps, alpha=call.attributes["alpha"], beta=call.attributes["beta"]))


def product(call: OpCall, p: Product) -> Lowered:
    """Input 0 times input 1, plus input 2 where `p.c` says so, into output 0."""
    return multiplied(p, call.outputs[0])


def multiplied(p: Product, out: TensorType) -> Lowered:
    """A product whose result has the type `out`, contiguous; plus input 2 where `p.c` says so."""
    if out.size == 0:
        return Lowered(())
    if p.k == 0:
        return _without_terms(p, out)
    if blas_available() and out.dtype in _BLAS_TYPES and len(p.batch) == 1 and _fits_blas(p):
        return _with_blas(p, out.dtype)
    return Lowered((_own(p, out.dtype),))


def _without_terms(p: Product, out: TensorType) -> Lowered:
    """A product over nothing: zeros, or beta·C."""
    if p.c is None:
        return elementwise([], Scalars("0", compute_type(out.dtype)), out, p.into)
    source = Source(source_input(2), out.dtype, "c", p.c)
    return elementwise([source], Scalars(f"{p.beta!r} * (double)c", compute_type(out.dtype)), out, p.into)


def _fits_blas(p: Product) -> bool:
    """Whether sizes and steps are what cuBLAS takes: 32 bits, and matrices with one contiguous axis."""
    plain = 1 in p.a and 1 in p.b
    return plain and max(p.m, p.n, p.k, p.batch[0], *p.a, *p.b) < _BLAS_LIMIT


def _with_blas(p: Product, dtype: str) -> Lowered:
    """cuBLAS is column-major: Dᵀ = Bᵀ·Aᵀ, and a row-major matrix is its own transpose read by columns."""
    width = itemsize(dtype)
    work: list[KernelCall | LibraryRoutine | CopyOperand] = []
    if p.c is not None:
        work += strided_copy(p.into, source_input(2), (p.m, p.n), strides_of((p.m, p.n)), p.c, width)
    turned = (p.b[1] != 1, p.a[1] != 1)
    config = {
        "dtype": dtype,
        "m": p.n,
        "n": p.m,
        "k": p.k,
        "transpose": turned,
        "ld": (max(*p.b, p.k if turned[0] else p.n), max(*p.a, p.m if turned[1] else p.k), p.n),
        "batch": p.batch[0],
        "steps": (p.b_batch[0], p.a_batch[0], p.m * p.n),
        "alpha": p.alpha,
        "beta": p.beta if p.c is not None else 0.0,
    }
    args = (p.right, p.left, p.into)
    work.append(LibraryRoutine("cublas", "gemm", config, args))
    return Lowered(tuple(work))


def _scaled(p: Product, dtype: str) -> str:
    """The result of the sum `s` and of C's element; scaled integers are summed in double, then truncated."""
    compute = compute_type(dtype)
    added = f"({compute})added[r * c_m + c * c_n]"
    if DTYPES[dtype].kind != "float":
        if p.alpha == 1 and (p.c is None or p.beta == 1):
            return "s" if p.c is None else f"s + {added}"
        return f"({compute})(alpha * (double)s" + (")" if p.c is None else f" + beta * (double){added})")
    text = "s" if p.alpha == 1 else "alpha * s"
    if p.c is None:
        return text
    return f"{text} + {added}" if p.beta == 1 else f"{text} + beta * {added}"


def _own(p: Product, dtype: str) -> KernelCall:
    tile = tile_for(dtype, p.m, p.n, prod(p.batch))
    scale = compute_type(dtype) if DTYPES[dtype].kind == "float" else "double"
    rank = len(p.batch)
    problem = f"""  static constexpr bool A_ALONG_K = {"true" if p.a[1] == 1 else "false"};
  static constexpr bool B_ALONG_K = {"false" if p.b[1] == 1 else "true"};
  const E *a, *b, *added;
  E* d;
  long long a_m, a_k, b_k, b_n, c_m, c_n;
  {scale} alpha, beta;
  __device__ __forceinline__ S load_a(long long r, long long i) const {{ return (S)a[r * a_m + i * a_k]; }}
  __device__ __forceinline__ S load_b(long long i, long long c) const {{ return (S)b[i * b_k + c * b_n]; }}
  __device__ __forceinline__ void store(long long r, long long c, T s) const {{
    d[r * n + c] = kg_to<E>((T)({_scaled(p, dtype)}));
  }}"""
    setup = f"""long long left = z, at_a = 0, at_b = 0;
#pragma unroll
    for (int axis = {rank - 1}; axis >= 0; --axis) {{
      const long long at = left % steps.size[axis];
      left /= steps.size[axis];
      at_a += at * steps.a[axis];
      at_b += at * steps.b[axis];
    }}
    g.a = a + at_a; g.b = b + at_b; g.added = added; g.d = d + z * m * n;
    g.a_m = steps.am; g.a_k = steps.ak; g.b_k = steps.bk; g.b_n = steps.bn; g.c_m = steps.cm; g.c_n = steps.cn;
    g.alpha = alpha; g.beta = beta;"""
    parameters = f"const E* a, const E* b, const E* added, E* d, const Steps steps, {scale} alpha, {scale} beta"
    text = gemm_source("kg_gemm", dtype, tile, problem, parameters, setup)
    steps_type = f"struct Steps {{ long long am, ak, bk, bn, cm, cn, size[{rank}], a[{rank}], b[{rank}]; }};\n"
    text = text.replace("struct Problem {", steps_type + "struct Problem {", 1)
    scalar = dtype if DTYPES[dtype].kind == "float" else "float64"
    added: Operand | None = source_input(2) if p.c is not None else None
    layout = integers([*p.a, *p.b, *(p.c or (0, 0)), *p.batch, *p.a_batch, *p.b_batch])
    args: tuple[Operand | Value | None, ...] = (p.left, p.right, added, p.into, layout)
    args += (number(p.alpha, scalar), number(p.beta, scalar), *map(int64, (p.m, p.n, p.k, prod(p.batch))))
    grid = grid_of(tile, p.m, p.n, prod(p.batch))
    return KernelCall(code("kg_gemm", text), args, grid, (tile.threads, 1, 1))
