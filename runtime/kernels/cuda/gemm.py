"""Sources of tiled matrix products: which tile for which sizes, and the kernel around a problem's loads and stores."""

from __future__ import annotations

from kgrun.graphs.bound import Dim3
from kgrun.graphs.records import dataclass
from kgrun.runtime.kernels.cuda.common import c_type, compute_type, cuda_file, prelude

TENSOR_TYPES = ("float16", "bfloat16")
_MOST = 65_535


@dataclass(frozen=True, slots=True)
class Tile:
    """The part of the result one block computes, and how: `core` is the call of a device function of gemm.cuh."""

    m: int
    n: int
    threads: int
    core: str


def tile_for(dtype: str, m: int, n: int, batch: int) -> Tile:
    """Large tiles reuse more, small ones leave no multiprocessor without work."""
    if dtype in TENSOR_TYPES:
        large = m > 64 and n > 64 and -(-m // 128) * -(-n // 128) * batch >= 132
        return (
            Tile(128, 128, 256, "kg_gemm_warps<128, 128, 32, 2, 4>")
            if large
            else Tile(64, 64, 128, "kg_gemm_warps<64, 64, 32, 2, 2>")
        )
    if n <= 8:
        return Tile(128, 8, 128, "kg_gemm_threads<128, 8, 16, 8, 1>")
    if m <= 8:
        return Tile(8, 128, 128, "kg_gemm_threads<8, 128, 16, 1, 8>")
    large = m > 64 and n > 64 and -(-m // 128) * -(-n // 128) * batch >= 132 and dtype == "float32"
    return (
        Tile(128, 128, 256, "kg_gemm_threads<128, 128, 8, 8, 8>")
        if large
        else Tile(64, 64, 256, "kg_gemm_threads<64, 64, 16, 4, 4>")
    )


def grid_of(tile: Tile, m: int, n: int, batch: int) -> Dim3:
    """One block a tile; y and z are capped, the kernel loops over them."""
    return (-(-n // tile.n), min(-(-m // tile.m), _MOST), min(max(batch, 1), _MOST))


def shared_type(dtype: str) -> str:
    """The C type that operands have in shared memory."""
    return c_type(dtype) if dtype in TENSOR_TYPES else compute_type(dtype)


def gemm_source(name: str, dtype: str, tile: Tile, problem: str, parameters: str, setup: str) -> str:
    """A kernel of products over `batch` problems.

    Args:
        problem: members of `struct Problem` beyond m, n, k: its data, load_a, load_b, store, A_ALONG_K, B_ALONG_K.
        parameters: of the kernel, before m, n, k, batch.
        setup: statements that fill `g` for batch `z`.
    """
    tensor = dtype in TENSOR_TYPES
    # Below compute capability 8.0 there is no such product: the same tile by threads.
    fallback = tile.core
    head = ""
    if tensor:
        fallback = f"kg_gemm_threads<{tile.m}, {tile.n}, 16, {tile.m // 16}, {tile.n * 16 // tile.threads}>"
        kind = "f16" if dtype == "float16" else "bf16"
        head = f'#if __CUDA_ARCH__ >= 800\n#define KG_TENSOR_CORES "{kind}"\n#endif\n'
    return f"""{prelude([dtype])}{head}{cuda_file("gemm.cuh")}
typedef {c_type(dtype)} E;
struct Problem {{
  typedef {shared_type(dtype)} S;
  typedef {compute_type(dtype)} T;
  long long m, n, k;
{problem}
}};
extern "C" __global__ void __launch_bounds__({tile.threads}) {name}(
    {parameters}, long long m, long long n, long long k, long long batch) {{
  Problem g;
  g.m = m; g.n = n; g.k = k;
  for (long long z = blockIdx.z; z < batch; z += gridDim.z) {{
    {setup}
    for (long long m0 = blockIdx.y * {tile.m}LL; m0 < m; m0 += gridDim.y * {tile.m}LL)
#ifdef KG_TENSOR_CORES
      {tile.core}(g, m0, blockIdx.x * {tile.n}LL);
#else
      {fallback}(g, m0, blockIdx.x * {tile.n}LL);
#endif
  }}
}}
"""
