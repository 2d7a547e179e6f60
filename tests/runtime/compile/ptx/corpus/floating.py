"""Elementwise kernels of floats: rounding, conversions, functions, half formats."""
# ruff: noqa: E501 (a kernel in one string reads better with its statements on one line)

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.runtime.compile.ptx.corpus.arithmetic import N, elementwise
from tests.runtime.compile.ptx.harness import Case, floats, rng


def _rounded(mode: str):  # type: ignore[no-untyped-def]
    def expect(a, b, c, out, n):  # type: ignore[no-untyped-def]
        from fractions import Fraction

        want = np.empty(N, np.float32)
        for i in range(N):
            exact = Fraction(float(a[i])) * Fraction(float(b[i])) + Fraction(float(c[i]))
            near = np.float32(float(exact))
            value = Fraction(float(near))
            if value > exact and (mode == "rd" or (mode == "rz" and exact > 0)):
                near = np.nextafter(near, np.float32(-np.inf))
            if value < exact and (mode == "ru" or (mode == "rz" and exact < 0)):
                near = np.nextafter(near, np.float32(np.inf))
            want[i] = near
        return {3: want}

    return expect


F3 = "const float* a, const float* b, const float* c, float* o"


def _f3():  # type: ignore[no-untyped-def]
    return [floats(N, seed=1), floats(N, seed=2), floats(N, seed=3), np.zeros(N, np.float32)]


def _one(seed: int, scale: float = 1.0):  # type: ignore[no-untyped-def]
    return lambda: [(floats(N, seed=seed) * scale).astype(np.float32), np.zeros(N, np.float32)]


def _math(name, expression, reference, scale=1.0, rtol=2e-6, atol=1e-7, options=()):  # type: ignore[no-untyped-def]
    return elementwise(
        name,
        "const float* a, float* o",
        f"float x = a[i]; o[i] = {expression};",
        _one(7, scale),
        lambda a, o, n: {1: reference(a.astype(np.float64))},
        rtol=rtol,
        atol=atol,
        options=options,
    )


def _halves(dtype):  # type: ignore[no-untyped-def]
    return lambda: [*(floats(N, seed=s).astype(dtype) for s in (1, 2, 3)), np.zeros(N, dtype), np.zeros(N, dtype)]


def _half_expect(dtype):  # type: ignore[no-untyped-def]
    def expect(a, b, c, o, p, n):  # type: ignore[no-untyped-def]
        x, y, z = (v.astype(np.float64) for v in (a, b, c))
        total = (x + y).astype(np.float32).astype(dtype)
        return {3: total, 4: (x * y + z).astype(dtype)}

    return expect


CASES = [
    elementwise(
        "saturating and rounding conversions",
        "const float* a, int* r, int* t, unsigned char* u, float* s",
        "r[i] = __float2int_rn(a[i]); t[i] = (int)(a[i] * 1e10f); u[i] = (unsigned char)min(max(a[i], 0.f), 255.f);"
        " s[i] = __saturatef(a[i]);",
        lambda: [
            floats(N) * 100,
            np.zeros(N, np.int32),
            np.zeros(N, np.int32),
            np.zeros(N, np.uint8),
            np.zeros(N, np.float32),
        ],
        lambda a, r, t, u, s, n: {
            1: np.rint(a).astype(np.int32),
            2: np.clip((a * np.float32(1e10)).astype(np.float64), -(2**31), 2**31 - 1)
            .astype(np.int64)
            .astype(np.int32),
            3: np.clip(a, 0, 255).astype(np.uint8),
            4: np.clip(a, 0, 1),
        },
    ),
    elementwise(
        "NaN: saturate gives 0, min and max ignore it",
        "float* a, float* b, int* c",
        "float x = __int_as_float(0x7fc00000); a[i] = __saturatef(x); b[i] = fmaxf(x, (float)i); c[i] = (int)x;",
        lambda: [np.ones(N, np.float32), np.ones(N, np.float32), np.ones(N, np.int32)],
        lambda a, b, c, n: {0: np.zeros(N), 1: np.arange(N), 2: np.zeros(N)},
    ),
    *(
        elementwise(f"fma rounded {mode}", F3, f"o[i] = __fmaf_{mode}(a[i], b[i], c[i]);", _f3, _rounded(mode))
        for mode in ("rn", "rd", "ru", "rz")
    ),
    elementwise(
        "int64 to float and back",
        "const long long* a, float* f, double* d, long long* b",
        "f[i] = (float)a[i]; d[i] = (double)a[i]; b[i] = (long long)d[i];",
        lambda: [rng(3).integers(-(1 << 50), 1 << 50, N), np.zeros(N, np.float32), np.zeros(N), np.zeros(N, np.int64)],
        lambda a, f, d, b, n: {1: a.astype(np.float32), 2: a.astype(np.float64), 3: a},
    ),
    _math("expf", "expf(x)", np.exp, 5),
    _math("fast exp", "__expf(x)", np.exp, 5, 5e-6),
    _math("logf", "logf(fabsf(x))", lambda x: np.log(np.abs(x)), 5, 2e-6, 2e-7),
    _math("fast log", "__logf(fabsf(x) + 2.f)", lambda x: np.log(np.abs(x) + 2), 5, 2e-6),
    _math("sin and cos", "sinf(x) + 2.f * cosf(x)", lambda x: np.sin(x) + 2 * np.cos(x), 20, 2e-6, 3e-6),
    _math("sine of a large argument", "sinf(x)", np.sin, 1e6, 2e-6, 3e-6),
    _math("fast sin", "__sinf(x)", np.sin, 1, 2e-6, 1e-6),
    _math(
        "tanh and erf",
        "tanhf(x) + erff(x)",
        lambda x: np.tanh(x) + np.vectorize(__import__("math").erf)(x),
        1,
        2e-6,
        2e-7,
    ),
    _math("powf", "powf(fabsf(x), 1.7f)", lambda x: np.abs(x) ** np.float64(np.float32(1.7)), 3, 4e-6),
    _math(
        "sqrt, rsqrt, cbrt",
        "sqrtf(fabsf(x)) + rsqrtf(fabsf(x)) + cbrtf(x)",
        lambda x: np.sqrt(np.abs(x)) + 1 / np.sqrt(np.abs(x)) + np.cbrt(x),
        3,
        1e-6,
        1e-6,
    ),
    _math(
        "fast math division",
        "1.f / (1.f + exp2f(x))",
        lambda x: 1 / (1 + np.exp2(x)),
        3,
        2e-6,
        options=("-use_fast_math",),
    ),
    elementwise(
        "double precision functions",
        "const double* a, double* o",
        "double x = a[i]; o[i] = exp(x) + sin(x) * log(fabs(x)) + sqrt(fabs(x)) + pow(fabs(x), 0.3);",
        lambda: [rng(5).standard_normal(N), np.zeros(N)],
        lambda a, o, n: {1: np.exp(a) + np.sin(a) * np.log(abs(a)) + np.sqrt(abs(a)) + abs(a) ** 0.3},
        rtol=1e-13,
        atol=1e-13,
    ),
    elementwise(
        "half arithmetic",
        "const __half* a, const __half* b, const __half* c, __half* o, __half* p",
        "o[i] = __hadd(a[i], b[i]); p[i] = __hfma(a[i], b[i], c[i]);",
        _halves(np.float16),
        _half_expect(np.float16),
        head="#include <cuda_fp16.h>",
    ),
    elementwise(
        "bf16 arithmetic",
        "const __nv_bfloat16* a, const __nv_bfloat16* b, const __nv_bfloat16* c, __nv_bfloat16* o, __nv_bfloat16* p",
        "o[i] = __hadd(a[i], b[i]); p[i] = __hfma(a[i], b[i], c[i]);",
        _halves(ml_dtypes.bfloat16),
        _half_expect(ml_dtypes.bfloat16),
        head="#include <cuda_bf16.h>",
    ),
    Case(
        "packed halves",
        '#include <cuda_fp16.h>\nextern "C" __global__ void k(const __half2* a, const __half2* b, __half2* o, float2* f) {\n'
        "  int i = threadIdx.x; __half2 x = __hmul2(a[i], b[i]); o[i] = __hmax2(__hfma2(a[i], b[i], x), __hneg2(b[i]));\n"
        "  f[i] = __half22float2(__hadd2(a[i], b[i]));\n}\n",
        lambda: [
            *(floats(64, seed=s).astype(np.float16) for s in (1, 2)),
            np.zeros(64, np.float16),
            np.zeros(64, np.float32),
        ],
        lambda a, b, o, f: {
            2: np.maximum((a.astype(np.float64) * b + (a * b)).astype(np.float16), -b),
            3: (a + b).astype(np.float32),
        },
    ),
    elementwise(
        "half conversions and comparisons",
        "const float* a, const double* d, __half* o, __half* p, int* c",
        "o[i] = __float2half_rn(a[i]); p[i] = __double2half(d[i]); c[i] = __hlt(o[i], p[i]) + 2 * __hisnan(o[i]);",
        lambda: [
            floats(N) * 1e-3,
            rng(9).standard_normal(N),
            np.zeros(N, np.float16),
            np.zeros(N, np.float16),
            np.zeros(N, np.int32),
        ],
        lambda a, d, o, p, c, n: {
            2: a.astype(np.float16),
            3: d.astype(np.float16),
            4: a.astype(np.float16) < d.astype(np.float16),
        },
        head="#include <cuda_fp16.h>",
    ),
    Case(
        "functions of halves",
        '#include <cuda_fp16.h>\nextern "C" __global__ void k(const __half* a, __half* o, __half* p) {\n'
        "  int i = threadIdx.x; o[i] = hexp(a[i]); p[i] = __hadd(hrcp(__hadd(a[i], __float2half(8.f))), hlog2(__habs(a[i])));\n}\n",
        lambda: [floats(64).astype(np.float16), np.zeros(64, np.float16), np.zeros(64, np.float16)],
        lambda a, o, p: {
            1: np.exp(a.astype(np.float64)),
            2: 1 / (a.astype(np.float64) + 8) + np.log2(abs(a.astype(np.float64))),
        },
        block=64,
        rtol=2e-3,
        atol=2e-3,
    ),
    Case(
        "NaN and what is out of range as integers",
        'extern "C" __global__ void k(const float* a, int* i, unsigned* u, long long* l, unsigned long long* w, int* di, unsigned* du) {\n'
        "  int t = threadIdx.x; i[t] = a[t]; u[t] = a[t]; l[t] = a[t]; w[t] = a[t]; di[t] = (double)a[t]; du[t] = (double)a[t];\n}\n",
        lambda: [
            np.array([np.nan, 1e20, -1e20, -2.5, 3.5], np.float32),
            *(np.zeros(5, kind) for kind in (np.int32, np.uint32, np.int64, np.uint64, np.int32, np.uint32)),
        ],
        lambda a, *rest: {
            1: [0, 2**31 - 1, -(2**31), -2, 3],
            2: [0, 2**32 - 1, 0, 0, 3],
            3: [-(2**63), 2**63 - 1, -(2**63), -2, 3],
            4: np.array([2**63, 2**64 - 1, 0, 0, 3], np.uint64),
            5: [-(2**31), 2**31 - 1, -(2**31), -2, 3],
            6: [2**31, 2**32 - 1, 0, 0, 3],
        },
        block=5,
    ),
    elementwise(
        "fp8 conversions",
        "const float* a, unsigned char* e4, unsigned char* e5, float* back",
        "__nv_fp8_e4m3 x(a[i]); e4[i] = x.__x; e5[i] = __nv_fp8_e5m2(a[i]).__x; back[i] = (float)x;",
        lambda: [floats(N) * 50, np.zeros(N, np.uint8), np.zeros(N, np.uint8), np.zeros(N, np.float32)],
        lambda a, x, y, z, n: {
            1: a.astype(ml_dtypes.float8_e4m3fn).view(np.uint8),
            2: a.astype(ml_dtypes.float8_e5m2).view(np.uint8),
            3: a.astype(ml_dtypes.float8_e4m3fn).astype(np.float32),
        },
        head="#include <cuda_fp8.h>",
    ),
]
