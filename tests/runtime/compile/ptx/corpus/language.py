"""What CUDA C can say: templates, structs, constants, functions, pointers to them, recursion, printf, local arrays."""
# ruff: noqa: E501 (a kernel in one string reads better with its statements on one line)

from __future__ import annotations

import struct

import numpy as np

from tests.runtime.compile.ptx.harness import Case, floats, ints


def _case(name, source, args, expect, **more):  # type: ignore[no-untyped-def]
    return Case(name, source, args, expect, **more)


CASES = [
    _case(
        "template instance",
        "template <class T, int N> __device__ T scale(T x) { return x * N; }\n"
        "template <class T, int N> __global__ void k(const T* a, T* o) { o[threadIdx.x] = scale<T, N>(a[threadIdx.x]); }\n"
        "template __global__ void k<double, 3>(const double*, double*);\n",
        lambda: [np.arange(32.0), np.zeros(32)],
        lambda a, o: {1: a * 3},
        entry="k<double, 3>",
    ),
    _case(
        "struct by value",
        "struct Box { int rows, cols; float scale; double bias; float w[5]; };\n"
        'extern "C" __global__ void k(Box b, const float* a, float* o) { int i = threadIdx.x;'
        " if (i < b.rows * b.cols) o[i] = a[i] * b.scale + (float)b.bias + b.w[i % 5]; }\n",
        lambda: [struct.pack("<iif4xd5f4x", 3, 5, 2.0, 0.5, 1, 2, 3, 4, 5), floats(15), np.zeros(15, np.float32)],
        lambda b, a, o: {2: a.astype(np.float64) * 2 + 0.5 + np.arange(15) % 5 + 1},
        rtol=1e-6,
        atol=1e-6,
    ),
    _case(
        "constant memory and device variables",
        "__constant__ float table[4] = {1, 2, 4, 8};\n__constant__ int* const nowhere = nullptr;\n__device__ int counter = 3;\n"
        '__device__ const int* where = &counter;\nextern "C" __global__ void k(float* o, int* c) { int i = threadIdx.x; o[i] = table[i & 3] + *where; '
        "__syncthreads(); if (i == 0) { counter += 4; *c = counter; counter = 3; } }\n",
        lambda: [np.zeros(32, np.float32), np.zeros(1, np.int32)],
        lambda o, c: {0: 2.0 ** (np.arange(32) % 4) + 3, 1: [7]},
    ),
    _case(
        "function that is not inlined",
        "struct Pair { int a; long long b; };\n"
        "__device__ __noinline__ Pair both(int x, const int* p) { return {x * *p, (long long)x << 33}; }\n"
        "__device__ __noinline__ float half_of(float x) { return x / 2; }\n"
        'extern "C" __global__ void k(const int* a, int* o, long long* l) { int i = threadIdx.x; Pair p = both(i, a + i);'
        " o[i] = p.a + (int)half_of(8.f); l[i] = p.b; }\n",
        lambda: [ints(32), np.zeros(32, np.int32), np.zeros(32, np.int64)],
        lambda a, o, b: {1: a * np.arange(32) + 4, 2: np.arange(32) << 33},
    ),
    _case(
        "recursion",
        "__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }\n"
        'extern "C" __global__ void k(int* o) { o[threadIdx.x] = fib(threadIdx.x % 12); }\n',
        lambda: [np.zeros(32, np.int32)],
        lambda o: {0: np.array([0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89])[np.arange(32) % 12]},
    ),
    _case(
        "function pointers and virtual calls",
        "typedef int (*op)(int, int);\n__device__ __noinline__ int add(int a, int b) { return a + b; }\n"
        "__device__ __noinline__ int mul(int a, int b) { return a * b; }\n"
        'extern "C" __global__ void k(const int* a, int* o) { int i = threadIdx.x; op f = a[i] & 1 ? add : mul; o[i] = f(a[i], i); }\n',
        lambda: [ints(32), np.zeros(32, np.int32)],
        lambda a, o: {1: np.where(a & 1, a + np.arange(32), a * np.arange(32))},
    ),
    _case(
        "local array with run-time index",
        'extern "C" __global__ void k(const int* a, int* o) { int s[16]; int i = threadIdx.x;'
        " for (int j = 0; j < 16; j++) s[j ^ (i & 15)] = a[i] + j; __syncthreads(); o[i] = s[a[i] & 15] - s[3]; }\n",
        lambda: [ints(64), np.zeros(64, np.int32)],
        lambda a, o: {1: (a & 15 ^ np.arange(64) & 15) - (3 ^ np.arange(64) & 15)},
        block=64,
    ),
    _case(
        "switch with many cases",
        'extern "C" __global__ void k(int* o) { int i = threadIdx.x, v; switch (i % 9) { case 0: v = 7; break; case 1: v = i * i; break;'
        " case 2: v = 1 << i % 5; break; case 3: v = -i; break; case 4: v = 11; case 5: v = 13 + i; break; case 6: v = ~i; break; default: v = 99; }"
        " o[i] = v; }\n",
        lambda: [np.zeros(64, np.int32)],
        lambda o: {0: [[7, i * i, 1 << i % 5, -i, 13 + i, 13 + i, ~i, 99, 99][i % 9] for i in range(64)]},
        block=64,
    ),
    _case(
        "two dynamic shared arrays",
        'extern "C" __global__ void k(const float* a, double* o) { extern __shared__ double d[]; float* f = (float*)(d + 32);'
        " int i = threadIdx.x; d[i] = a[i]; f[i] = a[i] * 2; __syncthreads(); o[i] = d[31 - i] + f[i]; }\n",
        lambda: [floats(32), np.zeros(32)],
        lambda a, o: {1: a[::-1].astype(np.float64) + (a * 2)},
        shared=384,
    ),
    _case(
        "generic pointers into shared and global memory",
        "__device__ __noinline__ int sum(const int* p, int n) { int s = 0; for (int i = 0; i < n; i++) s += p[i]; return s; }\n"
        'extern "C" __global__ void k(const int* a, int* o) { __shared__ int s[32]; int i = threadIdx.x; s[i] = a[i] * 2; __syncthreads();'
        " o[i] = sum(i & 1 ? s : a, i) + (int)__isShared(s) * 1000 + (int)__isGlobal(a) * 2000; }\n",
        lambda: [ints(32), np.zeros(32, np.int32)],
        lambda a, o: {1: (np.cumsum(a) - a) * np.where(np.arange(32) & 1, 2, 1) + 3000},
    ),
    _case(
        "grid-stride loop, while, break and continue",
        'extern "C" __global__ void k(const int* a, int* o, int n) { for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {'
        " int x = abs(a[i]), steps = 0; while (x > 1) { if (steps > 40) break; steps++; if (x & 1) { x = 3 * x + 1; continue; } x /= 2; } o[i] = steps; } }\n",
        lambda: [ints(500), np.zeros(500, np.int32), np.int32(500)],
        lambda a, o, n: {1: [_collatz(abs(int(x))) for x in a]},
        grid=2,
        block=64,
    ),
    _case(
        "clock goes forward",
        'extern "C" __global__ void k(int* o) { long long a = clock64(); unsigned b = clock(); __nanosleep(10); o[threadIdx.x] = clock64() >= a && (b != 0 || 1); }\n',
        lambda: [np.zeros(32, np.int32)],
        lambda o: {0: np.ones(32)},
    ),
    _case(
        "device memory from malloc",
        'extern "C" __global__ void k(int* o) { int* p = (int*)malloc(16); if (p) free(p); o[threadIdx.x] = p != nullptr; }\n',
        lambda: [np.zeros(32, np.int32)],
        lambda o: {0: np.ones(32)},
    ),
]


def _collatz(x: int) -> int:
    steps = 0
    while x > 1 and steps <= 40:
        steps += 1
        x = 3 * x + 1 if x & 1 else x // 2
    return steps
