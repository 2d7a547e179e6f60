"""Elementwise kernels: integers, bits, selections, vectors."""
# ruff: noqa: E501 (a kernel in one string reads better with its statements on one line)

from __future__ import annotations

import numpy as np

from tests.runtime.compile.ptx.harness import Case, floats, ints, rng

N = 333
INDEX = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;"


def elementwise(name, params, body, args, expect, **more):  # type: ignore[no-untyped-def]
    source = f'{more.pop("head", "")}\nextern "C" __global__ void k({params}, int n) {{\n  {INDEX}\n  {body}\n}}\n'
    return Case(name, source, lambda: [*args(), np.int32(N)], expect, grid=3, block=128, **more)


def _u(seed: int) -> np.ndarray:  # type: ignore[type-arg]
    return rng(seed).integers(0, 1 << 32, N, dtype=np.uint32)


def _bits(a):  # type: ignore[no-untyped-def]
    return np.array([int(x).bit_count() for x in a], np.int32)


def _clz(a):  # type: ignore[no-untyped-def]
    return np.array([32 - int(x).bit_length() for x in a], np.int32)


def _brev(a):  # type: ignore[no-untyped-def]
    return np.array([int(f"{int(x):032b}"[::-1], 2) for x in a], np.uint32)


def _prmt(a, b, s):  # type: ignore[no-untyped-def]
    out = []
    for x, y, c in zip(a, b, s, strict=True):
        both = int(x).to_bytes(4, "little") + int(y).to_bytes(4, "little")
        out.append(int.from_bytes(bytes(both[int(c) >> 4 * k & 7] for k in range(4)), "little"))
    return np.array(out, np.uint32)


def _divmod_case():  # type: ignore[no-untyped-def]
    a, b = ints(N, seed=1), ints(N, low=1, high=50, seed=2) * np.where(np.arange(N) % 2, 1, -1).astype(np.int32)
    return [a, b, np.zeros(N, np.int32), np.zeros(N, np.int32)]


CASES = [
    elementwise(
        "saxpy",
        "const float* x, float* y, float a",
        "y[i] = a * x[i] + y[i];",
        lambda: [floats(N), floats(N, seed=1), np.float32(2.5)],
        lambda x, y, a, n: {1: x.astype(np.float64) * 2.5 + y},
        rtol=1e-6,
        atol=1e-6,
    ),
    elementwise(
        "integer division, remainder and overflow",
        "const int* a, const int* b, int* q, int* r",
        "q[i] = a[i] / b[i]; r[i] = a[i] % b[i];",
        _divmod_case,
        lambda a, b, q, r, n: {2: np.trunc(a / b).astype(np.int32), 3: np.fmod(a, b)},
    ),
    elementwise(
        "division by zero gives a value",
        "const int* a, int* o",
        "o[i] = a[i] / (i % 3 - 1) * 0 + (a[i] / (unsigned)(i % 2) != 0) * 0 + i;",
        lambda: [np.full(N, -(1 << 31), np.int32), np.zeros(N, np.int32)],
        lambda a, o, n: {1: np.arange(N)},
    ),
    elementwise(
        "64-bit integers",
        "const long long* a, long long* o",
        "long long x = a[i]; o[i] = (x * 1000003ll >> 7) ^ (x << (i & 63)) ^ __mul64hi(x, 0x123456789abcdefll);",
        lambda: [rng(1).integers(-(1 << 62), 1 << 62, N), np.zeros(N, np.int64)],
        lambda a, o, n: {
            1: np.array(
                [
                    (
                        (((int(x) * 1000003 + (1 << 63)) % (1 << 64) - (1 << 63)) >> 7)
                        ^ (int(x) << (i & 63))
                        ^ (int(x) * 0x123456789ABCDEF >> 64)
                    )
                    + (1 << 63)
                    & (1 << 64) - 1
                    for i, x in enumerate(a)
                ],
                dtype=np.uint64,
            )
            .astype(np.uint64)
            .view(np.int64)
            + np.int64(-(1 << 63))
        },
    ),
    elementwise(
        "bit counts and fields",
        "const unsigned* a, int* p, int* c, unsigned* r, int* f",
        "p[i] = __popc(a[i]); c[i] = __clz(a[i]); r[i] = __brev(a[i]); f[i] = __ffs(a[i]);",
        lambda: [_u(1), *(np.zeros(N, t) for t in (np.int32, np.int32, np.uint32, np.int32))],
        lambda a, p, c, r, f, n: {1: _bits(a), 2: _clz(a), 3: _brev(a), 4: _bits((a & -a) - 1) + (a != 0)},
    ),
    elementwise(
        "byte permutation",
        "const unsigned* a, const unsigned* b, const unsigned* s, unsigned* o",
        "o[i] = __byte_perm(a[i], b[i], s[i] & 0x7777);",
        lambda: [_u(1), _u(2), _u(3), np.zeros(N, np.uint32)],
        lambda a, b, s, o, n: {3: _prmt(a, b, s & 0x7777)},
    ),
    elementwise(
        "funnel shifts",
        "const unsigned* a, const unsigned* b, unsigned* l, unsigned* r",
        "l[i] = __funnelshift_l(a[i], b[i], i); r[i] = __funnelshift_rc(a[i], b[i], i % 40);",
        lambda: [_u(1), _u(2), np.zeros(N, np.uint32), np.zeros(N, np.uint32)],
        lambda a, b, left, right, n: {
            2: np.array(
                [
                    ((int(y) << 32 | int(x)) << i % 32) >> 32 & 0xFFFFFFFF
                    for i, (x, y) in enumerate(zip(a, b, strict=True))
                ],
                np.uint32,
            ),
            3: np.array(
                [
                    (int(y) << 32 | int(x)) >> min(i % 40, 32) & 0xFFFFFFFF
                    for i, (x, y) in enumerate(zip(a, b, strict=True))
                ],
                np.uint32,
            ),
        },
    ),
    elementwise(
        "dot products of bytes",
        "const unsigned* a, const unsigned* b, int* o, unsigned* u",
        "o[i] = __dp4a((int)a[i], (int)b[i], i); u[i] = __dp2a_hi(a[i], b[i], 7u);",
        lambda: [_u(1), _u(2), np.zeros(N, np.int32), np.zeros(N, np.uint32)],
        lambda a, b, o, u, n: {
            2: (a.view(np.int8).reshape(N, 4).astype(np.int32) * b.view(np.int8).reshape(N, 4)).sum(1) + np.arange(N),
            3: (a.view(np.uint16).reshape(N, 2).astype(np.uint32) * b.view(np.uint8).reshape(N, 4)[:, 2:]).sum(1) + 7,
        },
    ),
    elementwise(
        "wide addition with carry",
        "const unsigned* a, const unsigned* b, unsigned* lo, unsigned* hi",
        'asm("add.cc.u32 %0, %2, %3; addc.u32 %1, %2, %3;" : "=r"(lo[i]), "=r"(hi[i]) : "r"(a[i]), "r"(b[i]));',
        lambda: [_u(1), _u(2), np.zeros(N, np.uint32), np.zeros(N, np.uint32)],
        lambda a, b, lo, hi, n: {2: a + b, 3: a + b + (a.astype(np.uint64) + b >> np.uint64(32)).astype(np.uint32)},
    ),
    elementwise(
        "inline PTX: bfe, bfi, lop3, scoped registers",
        "const unsigned* a, unsigned* x, unsigned* y, unsigned* z",
        'asm("{ .reg .u32 t; bfe.u32 t, %3, 5, 9; mov.u32 %0, t; bfi.b32 %1, %3, 255, 8, 16;'
        ' lop3.b32 %2, %3, %4, %5, 0x96; }" : "=r"(x[i]), "=r"(y[i]), "=r"(z[i]) : "r"(a[i]), "r"(i), "r"(77));',
        lambda: [_u(1), *(np.zeros(N, np.uint32) for _ in range(3))],
        lambda a, x, y, z, n: {
            1: a >> 5 & 511,
            2: (a & 0xFFFF) << 8 | 255,
            3: a ^ np.arange(N, dtype=np.uint32) ^ 77,
        },
    ),
    elementwise(
        "select, compare, absolute difference",
        "const int* a, const int* b, int* o",
        "o[i] = (a[i] > b[i] ? a[i] : -b[i]) + __sad(a[i], b[i], 5u) + abs(a[i]) + min(a[i], b[i]) + (a[i] < 3 && b[i] != 2);",
        lambda: [ints(N), ints(N, seed=1), np.zeros(N, np.int32)],
        lambda a, b, o, n: {
            2: np.where(a > b, a, -b) + abs(a - b) + 5 + abs(a) + np.minimum(a, b) + ((a < 3) & (b != 2))
        },
    ),
    elementwise(
        "vector loads and stores",
        "const float4* a, float2* o",
        "if (i < 64) { float4 v = a[i]; o[2 * i] = make_float2(v.w, v.z); o[2 * i + 1] = make_float2(v.y, v.x); }",
        lambda: [floats(256), np.zeros(256, np.float32)],
        lambda a, o, n: {1: a.reshape(64, 4)[:, ::-1].reshape(-1)},
    ),
    elementwise(
        "narrow integers",
        "const signed char* a, const unsigned short* b, short* o",
        "o[i] = (short)(a[i] * 3 - (b[i] >> 2));",
        lambda: [
            rng(1).integers(-128, 128, N, dtype=np.int8),
            rng(2).integers(0, 1 << 16, N, dtype=np.uint16),
            np.zeros(N, np.int16),
        ],
        lambda a, b, o, n: {2: (a.astype(np.int32) * 3 - (b >> 2).astype(np.int32)).astype(np.int16)},
    ),
]
