"""Matrices in tensor cores, and what brings them there: mma, wmma, ldmatrix, asynchronous copies."""
# ruff: noqa: E501 (a kernel in one string reads better with its statements on one line)

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.runtime.compile.ptx.corpus.cooperation import kernel
from tests.runtime.compile.ptx.harness import Case, floats, rng

MMA = """
unsigned ra[4], rb[2]; float c[4] = {1, 2, 3, 4};
int g = t / 4, q = t % 4;
for (int i = 0; i < 4; i++) ra[i] = *(const unsigned*)&a[(g + i % 2 * 8) * 16 + q * 2 + i / 2 * 8];
for (int i = 0; i < 2; i++) rb[i] = *(const unsigned*)&b[g * 16 + q * 2 + i * 8];
asm("mma.sync.aligned.m16n8k16.row.col.f32.TYPE.TYPE.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
for (int i = 0; i < 4; i++) o[(g + i / 2 * 8) * 8 + q * 2 + i % 2] = c[i];"""

MMA_TF32 = """
unsigned ra[4], rb[2]; float c[4] = {0, 0, 0, 0}; int g = t / 4, q = t % 4;
for (int i = 0; i < 4; i++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(ra[i]) : "f"(a[(g + i % 2 * 8) * 8 + q + i / 2 * 4]));
for (int i = 0; i < 2; i++) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rb[i]) : "f"(b[g * 8 + q + i * 4]));
asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
for (int i = 0; i < 4; i++) o[(g + i / 2 * 8) * 8 + q * 2 + i % 2] = c[i];"""

LDMATRIX = """
__shared__ alignas(16) unsigned short s[4][8][8];
for (int i = t; i < 256; i += 32) (&s[0][0][0])[i] = a[i];
__syncthreads();
unsigned r[4]; unsigned at = (unsigned)__cvta_generic_to_shared(&s[t / 8][t % 8][0]);
asm volatile("ldmatrix.sync.aligned.m8n8.x4.TRANSshared.b16 {%0,%1,%2,%3}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
for (int i = 0; i < 4; i++) o[i * 32 + t] = r[i];"""

CP_ASYNC = """
__shared__ alignas(16) float s[128];
unsigned at = (unsigned)__cvta_generic_to_shared(&s[t * 4]);
asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(a + t * 4));
asm volatile("cp.async.commit_group;"); asm volatile("cp.async.wait_group 0;");
__syncthreads();
o[t] = s[127 - t]; o[t + 32] = s[t];"""

BARRIER_COPY = """
__shared__ cuda::barrier<cuda::thread_scope_block> bar; __shared__ float s[64]; auto block = cg::this_thread_block();
if (t == 0) init(&bar, 64); __syncthreads();
for (int i = 0; i < 3; i++) { cuda::memcpy_async(block, s, a + i * 64, sizeof(s), bar); bar.arrive_and_wait(); o[i * 64 + t] = s[63 - t]; bar.arrive_and_wait(); }"""

PIPELINE = """
__shared__ float s[2][64]; __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state; auto block = cg::this_thread_block();
auto pipe = cuda::make_pipeline(block, &state);
for (int i = 0, f = 0; i < 3; i++) {
  for (; f < 3 && f < i + 2; f++) { pipe.producer_acquire(); cuda::memcpy_async(block, s[f % 2], a + f * 64, 256, pipe); pipe.producer_commit(); }
  pipe.consumer_wait(); o[i * 64 + t] = s[i % 2][63 - t]; pipe.consumer_release(); }"""

BARRIER_BY_HAND = """
__shared__ unsigned long long bar; __shared__ float s[64]; unsigned at = (unsigned)__cvta_generic_to_shared(&bar), to = (unsigned)__cvta_generic_to_shared(s + t);
if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" :: "r"(at)); __syncthreads();
asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(a + t));
asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" :: "r"(at));
int done = 0; while (!done) asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p; }" : "=r"(done) : "r"(at) : "memory");
o[t] = s[63 - t];"""


def _copied(name, body):  # type: ignore[no-untyped-def]
    head = "#include <cuda/barrier>\n#include <cuda/pipeline>\n#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;"
    return Case(
        name,
        kernel("const float* a, float* o", body, head),
        lambda: [floats(192), np.zeros(192, np.float32)],
        lambda a, o: {1: a.reshape(3, 64)[:, ::-1].ravel()},
        block=64,
    )


def _bytes_product(ctype, dtype, m, n, k):  # type: ignore[no-untyped-def]
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max + 1
    return Case(
        f"wmma {m}x{n}x{k} of {ctype}",
        kernel(
            f"const {ctype}* a, const {ctype}* b, int* c",
            f"wmma::fragment<wmma::matrix_a, {m}, {n}, {k}, {ctype}, wmma::row_major> fa; wmma::fragment<wmma::matrix_b, {m}, {n}, {k}, {ctype}, wmma::col_major> fb;"
            f" wmma::fragment<wmma::accumulator, {m}, {n}, {k}, int> fc; wmma::fill_fragment(fc, 3);"
            f" wmma::load_matrix_sync(fa, a, {k}); wmma::load_matrix_sync(fb, b, {k}); wmma::mma_sync(fc, fa, fb, fc); wmma::store_matrix_sync(c, fc, {n}, wmma::mem_row_major);",
            "#include <mma.h>\nusing namespace nvcuda;",
        ),
        lambda: [
            rng(1).integers(low, high, (m, k), dtype=dtype),
            rng(2).integers(low, high, (n, k), dtype=dtype),
            np.zeros((m, n), np.int32),
        ],
        lambda a, b, c: {2: 3 + a.astype(np.int32) @ b.astype(np.int32).T},
    )


def _mma(dtype, name, ptx):  # type: ignore[no-untyped-def]
    ctype = "__half" if ptx == "f16" else "__nv_bfloat16"
    header = "cuda_fp16.h" if ptx == "f16" else "cuda_bf16.h"
    return Case(
        name,
        kernel(f"const {ctype}* a, const {ctype}* b, float* o", MMA.replace("TYPE", ptx), f"#include <{header}>"),
        lambda: [floats(16, 16).astype(dtype), floats(8, 16, seed=1).astype(dtype), np.zeros((16, 8), np.float32)],
        lambda a, b, o: {
            2: a.astype(np.float64) @ b.astype(np.float64).T
            + np.tile([1, 2], (16, 4))
            + np.where(np.arange(16) < 8, 0, 2)[:, None]
        },
        rtol=1e-5,
        atol=1e-5,
    )


def _tf32(x):  # type: ignore[no-untyped-def]
    return ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32).astype(np.float64)


def _ldmatrix(transposed: bool) -> Case:
    def expect(a, o):  # type: ignore[no-untyped-def]
        tiles = a.reshape(4, 8, 8).astype(np.uint32)
        tiles = tiles.transpose(0, 2, 1) if transposed else tiles
        return {1: (tiles[:, :, ::2] | tiles[:, :, 1::2] << 16).reshape(-1)}

    return Case(
        "ldmatrix" + (" transposed" if transposed else ""),
        kernel("const unsigned short* a, unsigned* o", LDMATRIX.replace("TRANS", "trans." if transposed else "")),
        lambda: [rng(1).integers(0, 1 << 16, 256, dtype=np.uint16), np.zeros(128, np.uint32)],
        expect,
    )


CASES = [
    _mma(np.float16, "tensor cores, f16", "f16"),
    _mma(ml_dtypes.bfloat16, "tensor cores, bf16", "bf16"),
    Case(
        "tensor cores, tf32",
        kernel("const float* a, const float* b, float* o", MMA_TF32),
        lambda: [floats(16, 8), floats(8, 8, seed=1), np.zeros((16, 8), np.float32)],
        lambda a, b, o: {2: _tf32(a) @ _tf32(b).T},
        rtol=1e-5,
        atol=1e-5,
    ),
    _ldmatrix(False),
    _ldmatrix(True),
    Case(
        "asynchronous copy to shared memory",
        kernel("const float* a, float* o", CP_ASYNC),
        lambda: [floats(128), np.zeros(64, np.float32)],
        lambda a, o: {1: np.concatenate([a[127:95:-1], a[:32]])},
    ),
    _copied("asynchronous copies that arrive at a barrier", BARRIER_COPY),
    _copied("asynchronous copies in a pipeline", PIPELINE),
    Case(
        "asynchronous copy that counts as an arrival",
        kernel("const float* a, float* o", BARRIER_BY_HAND),
        lambda: [floats(64), np.zeros(64, np.float32)],
        lambda a, o: {1: a[::-1]},
        block=64,
    ),
    _bytes_product("signed char", np.int8, 16, 16, 16),
    _bytes_product("unsigned char", np.uint8, 32, 8, 16),
    _bytes_product("signed char", np.int8, 8, 32, 16),
    *(
        Case(
            f"wmma {m}x{n}x{k}, {accumulator} sums",
            kernel(
                "const half* a, const half* b, ACC* c".replace("ACC", accumulator),
                f"wmma::fragment<wmma::matrix_a, {m}, {n}, {k}, half, wmma::row_major> fa; wmma::fragment<wmma::matrix_b, {m}, {n}, {k}, half, wmma::col_major> fb;"
                f" wmma::fragment<wmma::accumulator, {m}, {n}, {k}, {accumulator}> fc; wmma::fill_fragment(fc, ({accumulator})1.0f);"
                f" wmma::load_matrix_sync(fa, a, {k}); wmma::load_matrix_sync(fb, b, {k}); wmma::mma_sync(fc, fa, fb, fc);"
                f" for (int i = 0; i < fc.num_elements; i++) fc.x[i] = fc.x[i] * ({accumulator})2.0f; wmma::store_matrix_sync(c, fc, {n}, wmma::mem_row_major);",
                "#include <mma.h>\n#include <cuda_fp16.h>\nusing namespace nvcuda;",
            ),
            lambda m=m, n=n, k=k, accumulator=accumulator: [
                floats(m, k).astype(np.float16),
                floats(n, k, seed=1).astype(np.float16),
                np.zeros((m, n), np.float16 if accumulator == "half" else np.float32),
            ],
            lambda a, b, c: {2: 2 * (1 + a.astype(np.float64) @ b.astype(np.float64).T)},
            rtol=1e-5 if accumulator == "float" else 2e-3,
            atol=1e-4 if accumulator == "float" else 2e-2,
        )
        for m, n, k, accumulator in ((16, 16, 16, "float"), (32, 8, 16, "float"), (8, 32, 16, "half"))
    ),
]
