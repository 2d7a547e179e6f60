"""Kernels with one planted bug each in what they read and write, and where a checked run must find it."""

from __future__ import annotations

import numpy as np

from tests.runtime.compile.ptx.harness import Bug, floats


def kernel(params: str, *lines: str, head: str = "") -> str:
    body = "\n  ".join(lines)
    return f'{head}\nextern "C" __global__ void k({params}) {{\n  int t = threadIdx.x;\n  {body}\n}}\n'


def f32(*shape):  # type: ignore[no-untyped-def]
    return np.zeros(shape, np.float32)


def i32(*shape):  # type: ignore[no-untyped-def]
    return np.zeros(shape, np.int32)


def two(n=32):  # type: ignore[no-untyped-def]
    return lambda: [floats(n), f32(n)]


BUGS = [
    Bug(
        "store one past the end",
        kernel("const float* a, float* o", "float v = a[t];", "o[t + 1] = v; // bug"),
        "out-of-bounds",
        "bug",
        two(),
        thread=(31, 0, 0),
        block_index=(0, 0, 0),
    ),
    Bug(
        "store one past memory from malloc",
        kernel("int* o", "int* p = (int*)malloc(20);", "p[5] = t; // bug", "o[t] = p[4 + t / 32];", "free(p);"),
        "out-of-bounds",
        "bug",
        lambda: [i32(32)],
        thread=(0, 0, 0),
    ),
    Bug(
        "load before memory from malloc",
        kernel("int* o", "volatile int* p = (int*)malloc(16);", "o[t] = p[-1]; // bug", "free((void*)p);"),
        "out-of-bounds",
        "bug",
        lambda: [i32(32)],
        thread=(0, 0, 0),
    ),
    Bug(
        "load after free",
        kernel("int* o", "volatile int* p = (int*)malloc(16);", "p[1] = t;", "free((void*)p);", "o[t] = p[1]; // bug"),
        "use-after-free",
        "bug",
        lambda: [i32(32)],
        thread=(0, 0, 0),
    ),
    Bug(
        "memory freed twice",
        kernel("int* o", "int* p = (int*)malloc(16);", "o[t] = p != 0;", "free(p);", "if (t == 3) free(p); // bug"),
        "bad-free",
        "bug",
        lambda: [i32(32)],
        thread=(3, 0, 0),
    ),
    Bug(
        "free of what malloc did not give",
        kernel("int* o", "o[t] = 1;", "free(o); // bug"),
        "bad-free",
        "bug",
        lambda: [i32(32)],
        thread=(0, 0, 0),
    ),
    Bug(
        "load before the start",
        kernel("const float* a, float* o", "float v = a[t - 1]; // bug", "o[t] = v;"),
        "out-of-bounds",
        "bug",
        two(),
        thread=(0, 0, 0),
    ),
    Bug(
        "grid one block too large",
        kernel("const float* a, float* o", "int i = blockIdx.x * 32 + t;", "o[i] = a[i] * 2; // bug"),
        "out-of-bounds",
        "bug",
        two(64),
        grid=3,
        block_index=(2, 0, 0),
        thread=(0, 0, 0),
    ),
    Bug(
        "off by one in the guard",
        kernel("float* o, int n", "int i = blockIdx.x * 32 + t;", "if (i <= n)", "  o[i] = i; // bug"),
        "out-of-bounds",
        "bug",
        lambda: [f32(40), np.int32(40)],
        grid=2,
        thread=(8, 0, 0),
        block_index=(1, 0, 0),
    ),
    Bug(
        "row and column exchanged",
        kernel("const float* a, float* o, int w, int h", "if (t < w)", "  o[t * h + h] = a[t]; // bug"),
        "out-of-bounds",
        "bug",
        lambda: [floats(32), f32(4, 8), np.int32(8), np.int32(4)],
        thread=(7, 0, 0),
    ),
    Bug(
        "index from data",
        kernel("const int* p, float* o", "o[p[t]] = 1; // bug"),
        "out-of-bounds",
        "bug",
        lambda: [np.array([*range(31), 1000], np.int32), f32(32)],
        thread=(31, 0, 0),
    ),
    Bug(
        "static shared memory overrun",
        kernel(
            "const float* a, float* o",
            "__shared__ float s[32];",
            "s[t + 4] = a[t]; // bug",
            "__syncthreads();",
            "o[t] = s[31 - t];",
        ),
        "out-of-bounds",
        "bug",
        two(),
        thread=(28, 0, 0),
        also=frozenset(("uninitialised",)),
    ),
    Bug(
        "shared memory before its start",
        kernel(
            "const float* a, float* o",
            "__shared__ float s[32];",
            "s[t] = a[t]; __syncthreads();",
            "o[t] = s[t - 1]; // bug",
        ),
        "out-of-bounds",
        "bug",
        two(),
        thread=(0, 0, 0),
    ),
    Bug(
        "overrun into the neighbouring array",
        kernel(
            "const float* a, float* o",
            "__shared__ float s[32], r[32];",
            "r[t] = 1; s[t * 2] = a[t]; // bug",
            "__syncthreads();",
            "o[t] = s[t / 2 * 2] + r[31 - t];",
        ),
        "out-of-bounds",
        "bug",
        two(),
        thread=(16, 0, 0),
    ),
    Bug(
        "dynamic shared memory too small",
        kernel(
            "const float* a, float* o",
            "extern __shared__ float s[];",
            "s[t] = a[t]; // bug",
            "__syncthreads();",
            "o[t] = t < 31 ? s[30 - t] : 0;",
        ),
        "out-of-bounds",
        "bug",
        two(),
        shared=31 * 4,
        thread=(31, 0, 0),
    ),
    Bug(
        "local array overrun",
        kernel(
            "const int* a, int* o",
            "int s[4] = {1, 2, 3, 4};",
            "for (int i = 0; i < 4; i++) s[a[i] & 3] += i;",
            "o[t] = s[a[t]]; // bug",
        ),
        "out-of-bounds",
        "bug",
        lambda: [np.arange(32, dtype=np.int32) * 100, i32(32)],
    ),
    Bug(
        "atomic past the end",
        kernel("const int* a, int* h", "atomicAdd(&h[a[t]], 1); // bug"),
        "out-of-bounds",
        "bug",
        lambda: [np.full(32, 8, np.int32), i32(8)],
    ),
    Bug(
        "vector load past the end",
        kernel("const float4* a, float* o", "float4 v = a[t]; // bug", "o[t] = v.x + v.w;"),
        "out-of-bounds",
        "bug",
        lambda: [floats(127), f32(32)],
        thread=(31, 0, 0),
    ),
    Bug(
        "arguments in the wrong order",
        kernel("const float* a, float* o, int n", "if (t < n)", "  o[t] = a[t] + 1; // bug"),
        "read-only-write",
        "bug",
        lambda: [f32(32), floats(32), np.int32(32)],
        readonly=(1,),
    ),
    Bug(
        "write to a constant input",
        kernel("float* a, float* o", "a[t] *= 2; // bug", "o[t] = a[t];"),
        "read-only-write",
        "bug",
        two(),
        readonly=(0,),
    ),
    Bug(
        "misaligned vector",
        kernel("const float* a, float* o", "float2 v = *(const float2*)(a + t); // bug", "o[t] = v.x + v.y;"),
        "misaligned",
        "bug",
        lambda: [floats(40), f32(32)],
        thread=(1, 0, 0),
    ),
    Bug(
        "misaligned int from bytes",
        kernel("const char* a, int* o", "if (t < 8)", "  o[t] = *(const int*)(a + t * 3); // bug"),
        "misaligned",
        "bug",
        lambda: [np.zeros(64, np.int8), i32(32)],
        thread=(1, 0, 0),
    ),
    Bug(
        "uninitialised output read",
        kernel("const float* a, float* o", "o[t] += a[t]; // bug"),
        "uninitialised",
        "bug",
        two(),
        outputs=(1,),
    ),
    Bug(
        "uninitialised shared memory",
        kernel(
            "const float* a, float* o",
            "__shared__ float s[64];",
            "if (t > 4) s[t] = a[t];",
            "__syncthreads();",
            "o[t] = s[31 - t]; // bug",
        ),
        "uninitialised",
        "bug",
        two(),
        thread=(27, 0, 0),
    ),
    Bug(
        "workspace used before it is filled",
        kernel(
            "const float* a, float* w, float* o",
            "if (t < 16) w[t] = a[t];",
            "__syncthreads();",
            "o[t] = w[t ^ 16]; // bug",
        ),
        "uninitialised",
        "bug",
        lambda: [floats(32), f32(32), f32(32)],
        outputs=(1, 2),
        thread=(0, 0, 0),
    ),
    Bug(
        "trap",
        kernel("const int* a, int* o", "if (a[t] == 7)", "  __trap(); // bug", "o[t] = 1;"),
        "trap",
        "bug",
        lambda: [np.full(32, 7, np.int32), i32(32)],
    ),
    Bug(
        "failed assertion",
        kernel("const int* a, int* o", "o[t] = 1;", "assert(a[t] < 5); // bug", head="#include <cassert>"),
        "assertion",
        "bug",
        lambda: [np.arange(32, dtype=np.int32), i32(32)],
        thread=(5, 0, 0),
    ),
]
