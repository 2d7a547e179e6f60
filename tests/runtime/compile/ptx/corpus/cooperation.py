"""Threads that work together: shared memory, barriers, shuffles, votes, atomics, cooperative groups."""
# ruff: noqa: E501 (a kernel in one string reads better with its statements on one line)

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.runtime.compile.ptx.harness import Case, floats, ints, rng


def kernel(params: str, body: str, head: str = "") -> str:
    return f'{head}\nextern "C" __global__ void k({params}) {{\n  int t = threadIdx.x;\n  {body}\n}}\n'


def _zeros(n, dtype=np.int32):  # type: ignore[no-untyped-def]
    return np.zeros(n, dtype)


def _swizzle(f):  # type: ignore[no-untyped-def]
    """A 32-lane shuffle within two warps as an index function."""
    return lambda a, o: {1: np.concatenate([a[:32][f], a[32:][f]])}


LANES = np.arange(32)
SHUFFLES = [
    ("shuffle down", "__shfl_down_sync(~0u, a[t], 3)", np.where(LANES + 3 < 32, LANES + 3, LANES)),
    ("shuffle up by segments", "__shfl_up_sync(~0u, a[t], 2, 8)", np.where(LANES % 8 >= 2, LANES - 2, LANES)),
    ("shuffle xor", "__shfl_xor_sync(~0u, a[t], 5)", LANES ^ 5),
    ("shuffle from an index", "__shfl_sync(~0u, a[t], t * 7, 16)", LANES // 16 * 16 + LANES * 7 % 16),
]

HISTOGRAM = """
__shared__ unsigned s[64];
if (t < 64) s[t] = 0;
__syncthreads();
for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) atomicAdd(&s[a[i] & 63], 1u);
__syncthreads();
if (t < 64) atomicAdd(&h[t], s[t]);"""

SCAN = """
__shared__ int s[2][128];
int from = 0; s[0][t] = a[t]; __syncthreads();
for (int d = 1; d < 128; d *= 2) {
  s[1 - from][t] = s[from][t] + (t >= d ? s[from][t - d] : 0); from = 1 - from; __syncthreads();
}
o[t] = s[from][t];"""

LAST_BLOCK = """
__shared__ bool last; __shared__ float s[64];
s[t] = a[blockIdx.x * 64 + t]; __syncthreads();
for (int d = 32; d; d /= 2) { if (t < d) s[t] += s[t + d]; __syncthreads(); }
if (t == 0) { part[blockIdx.x] = s[0]; __threadfence(); last = atomicAdd(count, 1u) == gridDim.x - 1; }
__syncthreads();
if (last && t == 0) { float total = 0; for (int i = 0; i < gridDim.x; i++) total += part[i]; *o = total; }"""

LOCK = """
__shared__ int lock, total; if (t == 0) lock = total = 0; __syncthreads();
bool done = false;
while (!done) if (atomicCAS(&lock, 0, 1) == 0) {
  total = total * 1 + a[t]; __threadfence_block(); atomicExch(&lock, 0); done = true;
}
__syncthreads(); if (t == 0) *o = total;"""

SPIN = """
volatile int* flag = f;
if (blockIdx.x == 0) { while (flag[1] == 0) { } if (t == 0) o[0] = flag[2]; }
else if (t == 0) { f[2] = 42; __threadfence(); flag[1] = 1; }"""


def _atomic(name, ctype, dtype, expression, reduce, low=-1000, high=1000):  # type: ignore[no-untyped-def]
    return Case(
        f"atomic {name} of {ctype}",
        kernel(f"const {ctype}* a, {ctype}* o", f"a += blockIdx.x * 64; {expression};"),
        lambda: [rng(1).integers(low, high, 256).astype(dtype), np.array([5], dtype)],
        lambda a, o: {1: reduce(np.concatenate([o, a]))},
        grid=4,
        block=64,
    )


def _segments(mask_of):  # type: ignore[no-untyped-def]
    return lambda a, *o: mask_of(a)


CASES = [
    *(
        Case(
            name,
            kernel("const int* a, int* o", f"o[t] = {expression};"),
            lambda: [ints(64), _zeros(64)],
            _swizzle(index),
            block=64,
        )
        for name, expression, index in SHUFFLES
    ),
    Case(
        "shuffles of double and half-full warps",
        kernel("const double* a, double* o", "o[t] = t < 20 ? __shfl_xor_sync(0xfffff, a[t], 1) : -a[t];"),
        lambda: [rng().standard_normal(40), np.zeros(40)],
        lambda a, o: {1: np.where(np.arange(40) < 20, a[np.arange(40) ^ 1], -a)},
        block=40,
    ),
    Case(
        "votes and ballots",
        kernel(
            "const int* a, int* o",
            "o[t] = __any_sync(~0u, a[t] > 990) + 2 * __all_sync(~0u, a[t] > -2000)"
            " + 4 * __popc(__ballot_sync(~0u, a[t] > 0)) + 1000 * __uni_sync(~0u, a[t] > 0);",
        ),
        lambda: [ints(64), _zeros(64)],
        lambda a, o: {
            1: np.concatenate([np.full(32, (h > 990).any() + 2 + 4 * (h > 0).sum()) for h in (a[:32], a[32:])])
        },
        block=64,
    ),
    Case(
        "match any and all",
        kernel(
            "const int* a, unsigned* o, unsigned* p",
            "int ok; o[t] = __match_any_sync(~0u, a[t]); p[t] = __match_all_sync(~0u, a[t] / 100, &ok) + ok;",
        ),
        lambda: [ints(32, low=0, high=4), _zeros(32, np.uint32), _zeros(32, np.uint32)],
        lambda a, o, p: {1: ((a[:, None] == a) << np.arange(32)).sum(1), 2: np.zeros(32)},
    ),
    Case(
        "warp reduce instructions",
        kernel(
            "const unsigned* a, unsigned* o",
            "unsigned m = t < 16 ? 0xffffu : 0xffff0000u;"
            " o[t] = t < 16 ? __reduce_add_sync(m, a[t]) : __reduce_max_sync(m, a[t]) ^ __reduce_xor_sync(m, a[t]);",
        ),
        lambda: [ints(32, low=0, high=999).astype(np.uint32), _zeros(32, np.uint32)],
        lambda a, o: {1: np.where(np.arange(32) < 16, a[:16].sum(), a[16:].max() ^ np.bitwise_xor.reduce(a[16:]))},
    ),
    Case(
        "active mask in a branch",
        kernel("unsigned* o", "if (t % 3 == 0) o[t] = __activemask(); else o[t] = __popc(__activemask());"),
        lambda: [_zeros(32, np.uint32)],
        lambda o: {0: np.where(LANES % 3 == 0, sum(1 << i for i in range(0, 32, 3)), 21)},
    ),
    Case(
        "lane and warp registers",
        kernel(
            "unsigned* o",
            'unsigned l, w, m; asm("mov.u32 %0, %laneid; mov.u32 %1, %warpid; mov.u32 %2, %lanemask_lt;"'.replace(
                "%laneid", "%%laneid"
            )
            .replace("%warpid", "%%warpid")
            .replace("%lanemask", "%%lanemask")
            + ' : "=r"(l), "=r"(w), "=r"(m)); o[t] = l + 100 * w + __popc(m) * 10000;',
        ),
        lambda: [_zeros(70, np.uint32)],
        lambda o: {0: np.arange(70) % 32 * 10001 + np.arange(70) // 32 * 100},
        block=70,
    ),
    Case(
        "histogram in shared memory",
        kernel("const int* a, unsigned* h, int n", HISTOGRAM),
        lambda: [ints(5000), _zeros(64, np.uint32), np.int32(5000)],
        lambda a, h, n: {1: np.bincount(a & 63, minlength=64)},
        grid=3,
        block=96,
    ),
    Case(
        "scan with double buffering",
        kernel("const int* a, int* o", SCAN),
        lambda: [ints(128), _zeros(128)],
        lambda a, o: {1: np.cumsum(a)},
        block=128,
    ),
    Case(
        "last block reduces",
        kernel("const float* a, float* part, unsigned* count, float* o", LAST_BLOCK),
        lambda: [floats(640), np.zeros(10, np.float32), _zeros(1, np.uint32), np.zeros(1, np.float32)],
        lambda a, p, c, o: {3: [a.astype(np.float64).sum()]},
        grid=10,
        block=64,
        rtol=1e-5,
        atol=1e-5,
    ),
    Case(
        "spin lock",
        kernel("const int* a, int* o", LOCK),
        lambda: [ints(64), _zeros(1)],
        lambda a, o: {1: [a.sum()]},
        block=64,
    ),
    Case(
        "a block waits for a later block",
        kernel("int* f, int* o", SPIN),
        lambda: [_zeros(3), _zeros(1)],
        lambda f, o: {1: [42]},
        grid=2,
    ),
    Case(
        "early return before a barrier",
        kernel(
            "const int* a, int* o, int n",
            "extern __shared__ int s[]; if (t >= n) return; s[t] = a[t]; __syncthreads(); o[t] = s[n - 1 - t];",
        ),
        lambda: [ints(50), _zeros(50), np.int32(50)],
        lambda a, o, n: {1: a[::-1]},
        block=100,
        shared=200,
    ),
    Case(
        "barrier that counts",
        kernel(
            "const int* a, int* o",
            "o[t] = __syncthreads_count(a[t] > 0) + 1000 * __syncthreads_or(a[t] == 7) + 2000 * __syncthreads_and(a[t] < 5000);",
        ),
        lambda: [ints(96), _zeros(96)],
        lambda a, o: {1: np.full(96, (a > 0).sum() + 1000 * (a == 7).any() + 2000)},
        block=96,
    ),
    Case(
        "named barriers of half a block",
        kernel(
            "const int* a, int* o",
            '__shared__ int s[64]; s[t] = a[t]; int id = 1 + t / 32; asm volatile("bar.sync %0, 32;" :: "r"(id) : "memory"); o[t] = s[t ^ 31];',
        ),
        lambda: [ints(64), _zeros(64)],
        lambda a, o: {1: a[np.arange(64) ^ 31]},
        block=64,
    ),
    Case(
        "barrier inside a loop with different trip counts by block",
        kernel(
            "int* o",
            "__shared__ int s; if (t == 0) s = 0; __syncthreads(); for (int i = 0; i <= blockIdx.x; i++) { if (t == i) s += t + 1; __syncthreads(); } if (t == 0) o[blockIdx.x] = s;",
        ),
        lambda: [_zeros(5)],
        lambda o: {0: [1, 3, 6, 10, 15]},
        grid=5,
    ),
    Case(
        "three-dimensional blocks and grids",
        kernel(
            "int* o",
            "int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z); int i = t + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);"
            " o[b * blockDim.x * blockDim.y * blockDim.z + i] = t + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * blockIdx.z;",
        ),
        lambda: [_zeros(12 * 30)],
        lambda o: {
            0: [
                x + 10 * y + 100 * z + 1000 * (b // 6)
                for b in range(12)
                for z in range(2)
                for y in range(3)
                for x in range(5)
            ]
        },
        grid=(2, 3, 2),
        block=(5, 3, 2),
    ),
    _atomic("add", "int", np.int32, "atomicAdd(o, a[t])", lambda v: [v.sum()]),
    _atomic("min", "int", np.int32, "atomicMin(o, a[t])", lambda v: [v.min()]),
    _atomic("max", "unsigned", np.uint32, "atomicMax(o, a[t])", lambda v: [v.max()], 0),
    _atomic("xor", "unsigned long long", np.uint64, "atomicXor(o, a[t])", lambda v: [np.bitwise_xor.reduce(v)], 0),
    _atomic("add", "double", np.float64, "atomicAdd(o, a[t])", lambda v: [v.sum()]),
    _atomic("add", "float", np.float32, "atomicAdd(o, a[t])", lambda v: [v.sum()]),
    _atomic("inc", "unsigned", np.uint32, "atomicInc(o, 100)", lambda v: [(5 + 256) % 101], 0),
    Case(
        "atomic maximum of floats by compare and swap",
        kernel(
            "const float* a, float* o",
            "int* p = (int*)o; int old = *(volatile int*)p, seen; do { seen = old; if (__int_as_float(seen) >= a[t]) break; old = atomicCAS(p, seen, __float_as_int(a[t])); } while (old != seen);",
        ),
        lambda: [floats(64), np.full(1, -9, np.float32)],
        lambda a, o: {1: [a.max()]},
        block=64,
    ),
    Case(
        "atomic add of halves",
        kernel(
            "__half* o, __half2* p, __nv_bfloat16* q",
            "atomicAdd(o, __float2half(0.5f)); atomicAdd(p, __floats2half2_rn(1.f, 2.f)); atomicAdd(q, __float2bfloat16(1.f));",
            "#include <cuda_fp16.h>\n#include <cuda_bf16.h>",
        ),
        lambda: [np.zeros(2, np.float16), np.zeros(2, np.float16), np.zeros(2, ml_dtypes.bfloat16)],
        lambda o, p, q: {0: [16, 0], 1: [32, 64], 2: [32, 0]},
    ),
    Case(
        "cooperative groups: tiles and block",
        kernel(
            "const int* a, int* o",
            "auto block = cg::this_thread_block(); auto tile = cg::tiled_partition<8>(block); int v = a[block.thread_rank()];"
            " for (int d = tile.size() / 2; d; d /= 2) v += tile.shfl_down(v, d); block.sync(); v = tile.shfl(v, 0);"
            " o[t] = v + 10000 * (tile.any(a[t] > 900) ? 1 : 0);",
            "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;",
        ),
        lambda: [ints(64), _zeros(64)],
        lambda a, o: {1: np.repeat(a.reshape(8, 8).sum(1) + 10000 * (a.reshape(8, 8) > 900).any(1), 8)},
        block=64,
    ),
    Case(
        "barrier inside a function that is not inlined",
        "__device__ __noinline__ float all_sum(float v, float* s) { s[threadIdx.x] = v; __syncthreads(); if (v < -5) return -1; float t = 0;"
        " for (int i = 0; i < 32; i++) t += s[i]; __syncthreads(); return t; }\n"
        + kernel("float* o", "__shared__ float s[32]; float x = all_sum(t, s); o[t] = x + all_sum(o[t] + 2, s);"),
        lambda: [np.zeros(32, np.float32)],
        lambda o: {0: np.full(32, 496 + 64)},
    ),
    Case(
        "arrive and wait apart (cuda::barrier)",
        kernel(
            "float* o",
            "__shared__ cuda::barrier<cuda::thread_scope_block> bar; if (t == 0) init(&bar, blockDim.x); __syncthreads();"
            " __shared__ float s[64]; for (int i = 0; i < 3; i++) { s[t] = t + i; bar.arrive_and_wait(); o[t] += s[63 - t]; bar.arrive_and_wait(); }",
            "#include <cuda/barrier>",
        ),
        lambda: [np.zeros(64, np.float32)],
        lambda o: {0: 3 * (63 - np.arange(64)) + 3},
        block=64,
    ),
    Case(
        "cooperative reduce and coalesced groups",
        kernel(
            "int* o",
            "auto w = cg::tiled_partition<32>(cg::this_thread_block()); int s = cg::reduce(w, t, cg::plus<int>()); if (t % 4 == 1) { auto c = cg::coalesced_threads(); s += 1000 * c.size() + c.thread_rank(); } o[t] = s;",
            "#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>\nnamespace cg = cooperative_groups;",
        ),
        lambda: [np.zeros(32, np.int32)],
        lambda o: {0: 496 + np.where(LANES % 4 == 1, 8000 + LANES // 4, 0)},
    ),
]
