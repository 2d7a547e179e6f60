"""Kernels in the style of tutorials and samples: what people run first and most."""
# ruff: noqa: E501 (a kernel in one string reads better with its statements on one line)

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tests.runtime.compile.ptx.harness import Case, floats, ints, rng


def kernel(params: str, body: str, head: str = "") -> str:
    return f'{head}\nextern "C" __global__ void k({params}) {{\n  int t = threadIdx.x, b = blockIdx.x;\n  {body}\n}}\n'


def f32(*shape):  # type: ignore[no-untyped-def]
    return np.zeros(shape, np.float32)


def _softmax(x):  # type: ignore[no-untyped-def]
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


BLOCK_SUM = """
__inline__ __device__ float warp_sum(float v) { for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d); return v; }
__device__ float block_sum(float v) { __shared__ float part[32]; int lane = threadIdx.x % 32, w = threadIdx.x / 32;
  v = warp_sum(v); __syncthreads(); if (lane == 0) part[w] = v; __syncthreads();
  v = threadIdx.x < blockDim.x / 32 ? part[lane] : 0.f; if (w == 0) v = warp_sum(v); if (threadIdx.x == 0) part[0] = v; __syncthreads(); return part[0]; }
"""
TILED = """
__shared__ float sa[16][16], sb[16][16]; int ty = threadIdx.y, row = blockIdx.y * 16 + ty, col = b * 16 + t; float s = 0;
for (int m = 0; m < n / 16; m++) { sa[ty][t] = x[row * n + m * 16 + t]; sb[ty][t] = y[(m * 16 + ty) * n + col]; __syncthreads();
  for (int j = 0; j < 16; j++) s += sa[ty][j] * sb[j][t]; __syncthreads(); }
z[row * n + col] = s;"""
TRANSPOSE = """
__shared__ float s[16][17]; int ty = threadIdx.y; int x = b * 16 + t, y = blockIdx.y * 16 + ty;
s[ty][t] = a[y * w + x]; __syncthreads(); o[(b * 16 + ty) * h + blockIdx.y * 16 + t] = s[t][ty];"""
BITONIC = """
__shared__ int s[256]; s[t] = a[t]; __syncthreads();
for (int size = 2; size <= 256; size *= 2) for (int d = size / 2; d; d /= 2) {
  int p = t ^ d; if (p > t) { bool up = (t & size) == 0; if ((s[t] > s[p]) == up) { int v = s[t]; s[t] = s[p]; s[p] = v; } } __syncthreads(); }
a[t] = s[t];"""
BLELLOCH = """
extern __shared__ int s[]; s[2 * t] = a[2 * t]; s[2 * t + 1] = a[2 * t + 1]; int off = 1;
for (int d = n / 2; d; d /= 2) { __syncthreads(); if (t < d) s[off * (2 * t + 2) - 1] += s[off * (2 * t + 1) - 1]; off *= 2; }
if (t == 0) s[n - 1] = 0;
for (int d = 1; d < n; d *= 2) { off /= 2; __syncthreads(); if (t < d) { int i = off * (2 * t + 1) - 1, j = off * (2 * t + 2) - 1, v = s[i]; s[i] = s[j]; s[j] += v; } }
__syncthreads(); o[2 * t] = s[2 * t]; o[2 * t + 1] = s[2 * t + 1];"""
CONVOLVE = """
__shared__ float s[64 + 8]; int i = b * 64 + t; s[t + 4] = i < n ? a[i] : 0.f;
if (t < 4) { s[t] = i >= 4 ? a[i - 4] : 0.f; s[t + 68] = i + 64 < n ? a[i + 64] : 0.f; } __syncthreads();
float v = 0; for (int j = 0; j < 9; j++) v += w[j] * s[t + j]; if (i < n) o[i] = v;"""
STENCIL = """
int x = b * blockDim.x + t, y = blockIdx.y * blockDim.y + threadIdx.y; if (x >= w || y >= h) return; int i = y * w + x;
o[i] = x > 0 && y > 0 && x < w - 1 && y < h - 1 ? 0.25f * (a[i - 1] + a[i + 1] + a[i - w] + a[i + w]) : a[i];"""
NBODY = """
__shared__ float3 s[32]; float3 p = make_float3(x[3 * (b * 32 + t)], x[3 * (b * 32 + t) + 1], x[3 * (b * 32 + t) + 2]), f = make_float3(0, 0, 0);
for (int m = 0; m < n; m += 32) { s[t] = make_float3(x[3 * (m + t)], x[3 * (m + t) + 1], x[3 * (m + t) + 2]); __syncthreads();
  for (int j = 0; j < 32; j++) { float dx = s[j].x - p.x, dy = s[j].y - p.y, dz = s[j].z - p.z; float r = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
    r = r * r * r; f.x += dx * r; f.y += dy * r; f.z += dz * r; } __syncthreads(); }
o[3 * (b * 32 + t)] = f.x; o[3 * (b * 32 + t) + 1] = f.y; o[3 * (b * 32 + t) + 2] = f.z;"""
SPMV = """
int row = (b * blockDim.x + t) / 32, lane = t & 31; if (row >= n) return; float s = 0;
for (int j = start[row] + lane; j < start[row + 1]; j += 32) s += value[j] * x[column[j]];
for (int d = 16; d; d /= 2) s += __shfl_xor_sync(~0u, s, d); if (lane == 0) y[row] = s;"""
ATTENTION = """
extern __shared__ float p[]; const float* qr = q + b * 16; float top = -1e30f, total = 0;
for (int j = t; j < n; j += 32) { float s = 0; for (int d = 0; d < 16; d++) s += qr[d] * kk[j * 16 + d]; p[j] = s * 0.25f; top = fmaxf(top, p[j]); }
for (int d = 16; d; d /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
for (int j = t; j < n; j += 32) { p[j] = __expf(p[j] - top); total += p[j]; }
for (int d = 16; d; d /= 2) total += __shfl_xor_sync(~0u, total, d);
__syncwarp(); if (t < 16) { float s = 0; for (int j = 0; j < n; j++) s += p[j] * v[j * 16 + t]; o[b * 16 + t] = s / total; }"""
HASH = """
unsigned key = keys[b * blockDim.x + t], at = key * 2654435761u % size;
while (true) { unsigned old = atomicCAS(&table[at], 0xffffffffu, key); if (old == 0xffffffffu || old == key) break; at = (at + 1) % size; }
atomicAdd(sum, table[at]); atomicAdd(sum + 1, 1u);"""
MONTE_CARLO = """
unsigned s = (b * blockDim.x + t) * 747796405u + 2891336453u; int in = 0;
for (int j = 0; j < 100; j++) { s = s * 1664525u + 1013904223u; float x = (s >> 8) * (1.f / 16777216.f); s = s * 1664525u + 1013904223u; float y = (s >> 8) * (1.f / 16777216.f); in += x * x + y * y < 1.f; }
atomicAdd(hits, in);"""
COMPACT = """
__shared__ int base; int i = b * 64 + t; bool keep = a[i] > 0; unsigned m = __ballot_sync(~0u, keep); int lane = t & 31; int first = 0;
if (lane == 0) first = atomicAdd(count, __popc(m)); first = __shfl_sync(~0u, first, 0); if (keep) o[first + __popc(m & ((1u << lane) - 1))] = a[i];"""


def _pi(hits):  # type: ignore[no-untyped-def]
    s = (np.arange(256, dtype=np.uint32) * np.uint32(747796405) + np.uint32(2891336453)).astype(np.uint32)
    total = np.zeros(256, np.int64)
    for _ in range(100):
        s = s * np.uint32(1664525) + np.uint32(1013904223)
        x = (s >> np.uint32(8)).astype(np.float32) * np.float32(1 / 16777216)
        s = s * np.uint32(1664525) + np.uint32(1013904223)
        y = (s >> np.uint32(8)).astype(np.float32) * np.float32(1 / 16777216)
        total += (x.astype(np.float64) ** 2 + y.astype(np.float64) ** 2).astype(np.float32) < 1
    return {0: [total.sum()]}


def _convolution(a, w, o, n):  # type: ignore[no-untyped-def]
    padded = np.pad(a.astype(np.float64), 4)
    return {2: sum(w[j] * padded[j : j + len(a)] for j in range(9))}


def _stencil(a, o, w, h):  # type: ignore[no-untyped-def]
    want = a.astype(np.float64).copy()
    want[1:-1, 1:-1] = 0.25 * (a[1:-1, :-2].astype(np.float64) + a[1:-1, 2:] + a[:-2, 1:-1] + a[2:, 1:-1])
    return {1: want}


def _nbody(x, o, n):  # type: ignore[no-untyped-def]
    d = x.reshape(-1, 3)[None].astype(np.float64) - x.reshape(-1, 3)[:, None]
    return {1: (d / ((d**2).sum(-1, keepdims=True) + 0.01) ** 1.5).sum(1).reshape(-1)}


def _sparse():  # type: ignore[no-untyped-def]
    r = rng(4)
    counts = r.integers(0, 90, 20)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return [
        start,
        r.integers(0, 50, start[-1]).astype(np.int32),
        floats(int(start[-1])),
        floats(50, seed=5),
        f32(20),
        np.int32(20),
    ]


def _spmv(start, column, value, x, y, n):  # type: ignore[no-untyped-def]
    products = value.astype(np.float64) * x[column]
    return {4: [products[a:b].sum() for a, b in pairwise(start)]}


def _layer_norm(x, o, n):  # type: ignore[no-untyped-def]
    d = x.astype(np.float64)
    return {1: (d - d.mean(1, keepdims=True)) / np.sqrt(d.var(1, keepdims=True) + 1e-5)}


CASES = [
    Case(
        "matrix product, naive",
        kernel(
            "const float* x, const float* y, float* z, int n",
            "int r = blockIdx.y * blockDim.y + threadIdx.y, c = b * blockDim.x + t; if (r >= n || c >= n) return; float s = 0; for (int j = 0; j < n; j++) s += x[r * n + j] * y[j * n + c]; z[r * n + c] = s;",
        ),
        lambda: [floats(40, 40), floats(40, 40, seed=1), f32(40, 40), np.int32(40)],
        lambda x, y, z, n: {2: x.astype(np.float64) @ y},
        grid=(3, 3),
        block=(16, 16),
        rtol=1e-4,
        atol=1e-4,
    ),
    Case(
        "matrix product, tiled",
        kernel("const float* x, const float* y, float* z, int n", TILED),
        lambda: [floats(64, 64), floats(64, 64, seed=1), f32(64, 64), np.int32(64)],
        lambda x, y, z, n: {2: x.astype(np.float64) @ y},
        grid=(4, 4),
        block=(16, 16),
        rtol=1e-4,
        atol=1e-4,
    ),
    Case(
        "transpose with padding",
        kernel("const float* a, float* o, int w, int h", TRANSPOSE),
        lambda: [floats(32, 48), f32(48, 32), np.int32(48), np.int32(32)],
        lambda a, o, w, h: {1: a.T},
        grid=(3, 2),
        block=(16, 16),
    ),
    Case(
        "block reduction by shuffles",
        kernel(
            "const float* a, float* o, int n",
            "float s = 0; for (int i = b * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) s += a[i]; s = block_sum(s); if (t == 0) atomicAdd(o, s);",
            BLOCK_SUM,
        ),
        lambda: [floats(5000), f32(1), np.int32(5000)],
        lambda a, o, n: {1: [a.astype(np.float64).sum()]},
        grid=4,
        block=128,
        rtol=1e-4,
        atol=1e-4,
    ),
    Case(
        "tree reduction in dynamic shared memory",
        kernel(
            "const float* a, float* o, int n",
            "extern __shared__ float s[]; int i = b * blockDim.x * 2 + t; s[t] = (i < n ? a[i] : 0) + (i + blockDim.x < n ? a[i + blockDim.x] : 0); __syncthreads();"
            " for (unsigned d = blockDim.x / 2; d; d >>= 1) { if (t < d) s[t] += s[t + d]; __syncthreads(); } if (t == 0) o[b] = s[0];",
        ),
        lambda: [floats(1000), f32(4), np.int32(1000)],
        lambda a, o, n: {1: np.pad(a.astype(np.float64), (0, 24)).reshape(4, 256).sum(1)},
        grid=4,
        block=128,
        shared=512,
        rtol=1e-4,
        atol=1e-4,
    ),
    Case(
        "softmax by rows",
        kernel(
            "const float* a, float* o, int n",
            "const float* r = a + b * n; float m = -1e30f; for (int i = t; i < n; i += 32) m = fmaxf(m, r[i]); for (int d = 16; d; d /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, d));"
            " float s = 0; for (int i = t; i < n; i += 32) s += expf(r[i] - m); for (int d = 16; d; d /= 2) s += __shfl_xor_sync(~0u, s, d); for (int i = t; i < n; i += 32) o[b * n + i] = expf(r[i] - m) / s;",
        ),
        lambda: [floats(6, 77), f32(6, 77), np.int32(77)],
        lambda a, o, n: {1: _softmax(a.astype(np.float64))},
        grid=6,
        rtol=1e-5,
        atol=1e-7,
    ),
    Case(
        "layer norm",
        kernel(
            "const float* a, float* o, int n",
            "float s = 0, q = 0; for (int i = t; i < n; i += blockDim.x) s += a[b * n + i]; float m = block_sum(s) / n;"
            " for (int i = t; i < n; i += blockDim.x) { float d = a[b * n + i] - m; q += d * d; } float r = rsqrtf(block_sum(q) / n + 1e-5f); for (int i = t; i < n; i += blockDim.x) o[b * n + i] = (a[b * n + i] - m) * r;",
            BLOCK_SUM,
        ),
        lambda: [floats(3, 200), f32(3, 200), np.int32(200)],
        _layer_norm,
        grid=3,
        block=64,
        rtol=1e-4,
        atol=1e-5,
    ),
    Case("bitonic sort", kernel("int* a", BITONIC), lambda: [ints(256)], lambda a: {0: np.sort(a)}, block=256),
    Case(
        "exclusive scan, work-efficient",
        kernel("const int* a, int* o, int n", BLELLOCH),
        lambda: [ints(128), np.zeros(128, np.int32), np.int32(128)],
        lambda a, o, n: {1: np.cumsum(a) - a},
        block=64,
        shared=512,
    ),
    Case(
        "convolution with a halo",
        kernel("const float* a, const float* w, float* o, int n", CONVOLVE),
        lambda: [floats(200), floats(9, seed=1), f32(200), np.int32(200)],
        _convolution,
        grid=4,
        block=64,
        rtol=1e-5,
        atol=1e-5,
    ),
    Case(
        "five-point stencil",
        kernel("const float* a, float* o, int w, int h", STENCIL),
        lambda: [floats(21, 33), f32(21, 33), np.int32(33), np.int32(21)],
        _stencil,
        grid=(3, 3),
        block=(16, 8),
        rtol=1e-6,
        atol=1e-6,
    ),
    Case(
        "N-body",
        kernel("const float* x, float* o, int n", NBODY),
        lambda: [floats(192), f32(192), np.int32(64)],
        _nbody,
        grid=2,
        rtol=1e-3,
        atol=1e-2,
    ),
    Case(
        "sparse matrix by a warp a row",
        kernel("const int* start, const int* column, const float* value, const float* x, float* y, int n", SPMV),
        _sparse,
        _spmv,
        grid=5,
        block=128,
        rtol=1e-4,
        atol=1e-4,
    ),
    Case(
        "attention, one query a block",
        kernel("const float* q, const float* kk, const float* v, float* o, int n", ATTENTION),
        lambda: [floats(5, 16), floats(40, 16, seed=1), floats(40, 16, seed=2), f32(5, 16), np.int32(40)],
        lambda q, k, v, o, n: {3: _softmax(q.astype(np.float64) @ k.T * 0.25) @ v},
        grid=5,
        shared=160,
        rtol=1e-4,
        atol=1e-5,
    ),
    Case(
        "hash insert",
        kernel("const unsigned* keys, unsigned* table, unsigned size, unsigned* sum", HASH),
        lambda: [
            rng(6).permutation(1000)[:256].astype(np.uint32),
            np.full(512, 0xFFFFFFFF, np.uint32),
            np.uint32(512),
            np.zeros(2, np.uint32),
        ],
        lambda keys, table, size, total: {3: [keys.sum(), 256]},
        grid=4,
        block=64,
    ),
    Case("Monte Carlo", kernel("int* hits", MONTE_CARLO), lambda: [np.zeros(1, np.int32)], _pi, grid=4, block=64),
    Case(
        "stream compaction, counted",
        kernel("const int* a, int* o, int* count", COMPACT),
        lambda: [ints(256), np.zeros(256, np.int32), np.zeros(1, np.int32)],
        lambda a, o, c: {2: [(a > 0).sum()]},
        grid=4,
        block=64,
    ),
    Case(
        "Mandelbrot",
        kernel(
            "int* o, int w",
            "float x0 = t * 3.f / w - 2.f, y0 = b * 2.f / gridDim.x - 1.f, x = 0, y = 0; int i = 0; while (x * x + y * y < 4.f && i < 60) { float z = x * x - y * y + x0; y = 2 * x * y + y0; x = z; i++; } o[b * w + t] = i > 20;",
        ),
        lambda: [np.zeros(32 * 24, np.int32), np.int32(32)],
        lambda o, w: {},
        grid=24,
    ),
    Case(
        "prefix of warps by shuffles",
        kernel(
            "const int* a, int* o",
            "int v = a[t]; for (int d = 1; d < 32; d *= 2) { int u = __shfl_up_sync(~0u, v, d); if ((t & 31) >= d) v += u; } o[t] = v;",
        ),
        lambda: [ints(96), np.zeros(96, np.int32)],
        lambda a, o: {1: np.cumsum(a.reshape(3, 32), 1).reshape(-1)},
        block=96,
    ),
    Case(
        "gather, scatter and masks",
        kernel(
            "const float* a, const int* p, float* o, int n",
            "int i = b * blockDim.x + t; if (i < n && p[i] >= 0) o[p[i]] = a[n - 1 - i];",
        ),
        lambda: [
            floats(100),
            np.where(np.arange(100) % 4, rng(1).permutation(100), -1).astype(np.int32),
            f32(100),
            np.int32(100),
        ],
        lambda a, p, o, n: {2: _scatter(a, p)},
        grid=2,
        block=64,
    ),
]


def _scatter(a, p):  # type: ignore[no-untyped-def]
    o = np.zeros(100, np.float32)
    keep = p >= 0
    o[p[keep]] = a[::-1][keep]
    return o


def _mandelbrot(o, w):  # type: ignore[no-untyped-def]
    x0 = (np.arange(32, dtype=np.float32) * np.float32(3) / np.float32(32) - np.float32(2))[None].repeat(24, 0)
    y0 = (np.arange(24, dtype=np.float32) * np.float32(2) / np.float32(24) - np.float32(1))[:, None].repeat(32, 1)
    z, steps = np.zeros((24, 32), np.complex128), np.zeros((24, 32), np.int32)
    for _ in range(60):
        inside = abs(z) < 2
        steps += inside
        z = np.where(inside, z * z + x0 + 1j * y0, z)
    return {0: (steps > 20).reshape(-1)}
