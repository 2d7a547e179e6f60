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
        "tables of functions",
        "struct V { int a[5]; };\ntypedef V (*op)(V, int);\n"
        "__device__ V bump(V v, int i) { v.a[i]++; return v; }\n__device__ V fill(V v, int i) { v.a[i] = 100; return v; }\n"
        "__device__ op table[2] = {bump, fill};\n__constant__ op other[2] = {fill, bump};\n"
        'extern "C" __global__ void k(int* o) { int t = threadIdx.x; V v = {{1, 2, 3, 4, 5}}; v = table[t % 2](v, t % 5);'
        " v = other[t % 2](v, 0); int s = 0; for (int i = 0; i < 5; i++) s += v.a[i]; o[t] = s; }\n",
        lambda: [np.zeros(32, np.int32)],
        lambda o: {0: [_table_sum(t) for t in range(32)]},
    ),
    _case(
        "virtual methods",
        "struct Shape { float x; __device__ Shape(float v) : x(v) {} __device__ virtual float area() const = 0; };\n"
        "struct Square : Shape { __device__ Square(float v) : Shape(v) {} __device__ float area() const override { return x * x; } };\n"
        "struct Disc : Shape { __device__ Disc(float v) : Shape(v) {} __device__ float area() const override { return 3 * x * x; } };\n"
        'extern "C" __global__ void k(const float* a, float* o) { int t = threadIdx.x; Square q(a[t]); Disc c(a[t]);'
        " const Shape* s = t & 1 ? (const Shape*)&q : (const Shape*)&c; o[t] = s->area(); }\n",
        lambda: [floats(32), np.zeros(32, np.float32)],
        lambda a, o: {1: a.astype(np.float64) ** 2 * np.where(np.arange(32) & 1, 1, 3)},
        rtol=1e-6,
    ),
    _case(
        "variables of functions that are not inlined",
        "__device__ __noinline__ void add(int* p, int v) { *p += v; }\n"
        "__device__ __noinline__ int pick(const int* a, int i) { int h[16]; for (int j = 0; j < 16; j++) h[j] = a[j] + i; add(h + (i & 15), 5); return h[i * 7 & 15]; }\n"
        "__device__ int deep(int n, const int* last) { int own[2] = {last[0] + n, last[1] * 2}; return n ? deep(n - 1, own) : own[0] + own[1]; }\n"
        'extern "C" __global__ void k(const int* a, int* o) { int i = threadIdx.x; int first[2] = {i, 1}; o[i] = pick(a, i) + deep(i % 5, first); }\n',
        lambda: [ints(32), np.zeros(32, np.int32)],
        lambda a, o: {
            1: [
                a[i * 7 & 15] + i + (5 if i * 7 & 15 == i & 15 else 0) + i + sum(range(i % 5 + 1)) + 2 ** (i % 5 + 1)
                for i in range(32)
            ]
        },
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
        "scan that looks back through volatile flags",
        'extern "C" __global__ void k(const int* a, int* o, volatile int* flag, volatile int* part, volatile int* all) {'
        " int b = blockIdx.x, sum = a[b], before = 0; part[b] = sum; __threadfence(); flag[b] = 1;"
        " for (int p = b - 1; p >= 0; p--) { int f; while ((f = flag[p]) == 0) {} __threadfence();"
        " if (f == 2) { before += all[p]; break; } before += part[p]; }"
        " all[b] = before + sum; __threadfence(); flag[b] = 2; o[b] = before + sum; }\n",
        lambda: [ints(16), *(np.zeros(16, np.int32) for _ in range(4))],
        lambda a, *rest: {1: np.cumsum(a)},
        grid=16,
        block=1,
        outputs=(1, 3, 4),
    ),
    _case(
        "device memory from malloc",
        'extern "C" __global__ void k(int* o) { int* p = (int*)malloc(16); if (p) free(p); o[threadIdx.x] = p != nullptr; }\n',
        lambda: [np.zeros(32, np.int32)],
        lambda o: {0: np.ones(32)},
    ),
    _case(
        "lists of nodes from new",
        "struct N { int v; N* next; };\n"
        'extern "C" __global__ void k(int* o) { int t = threadIdx.x, sum = 0; N* head = nullptr;'
        " for (int n = 0; n <= t; n++) head = new N{n + o[t], head};"
        " for (N* p = head; p;) { N* next = p->next; sum += p->v; delete p; p = next; } o[t] = sum; }\n",
        lambda: [np.zeros(64, np.int32)],
        lambda o: {0: np.arange(64) * (np.arange(64) + 1) // 2},
        grid=1,
        block=64,
    ),
    _case(
        "bytes and vectors in memory of odd sizes",
        'extern "C" __global__ void k(int* o) { int t = threadIdx.x; char* p = (char*)malloc(17 + t);'
        " for (int n = 0; n < 17 + t; n++) p[n] = n + o[t]; float4 v = *(float4*)p;"
        " o[t] = p[16 + t] + (int)((unsigned)__float_as_int(v.x) >> 24); free(p); }\n",
        lambda: [np.zeros(32, np.int32)],
        lambda o: {0: np.arange(32) + 16 + 3},
    ),
]


def _table_sum(t: int) -> int:
    row = [1, 2, 3, 4, 5]
    row[t % 5] = 100 if t % 2 else row[t % 5] + 1
    row[0] = row[0] + 1 if t % 2 else 100
    return sum(row)


def _collatz(x: int) -> int:
    steps = 0
    while x > 1 and steps <= 40:
        steps += 1
        x = 3 * x + 1 if x & 1 else x // 2
    return steps
