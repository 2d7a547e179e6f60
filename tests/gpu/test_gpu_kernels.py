"""What a custom kernel may ask for on a GPU: arguments of every kind, shared memory, templates, PTX, clusters."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from kgrun.graphs.dtypes import DTYPES, VECTORS
from kgrun.graphs.errors import CompileError, GraphError
from kgrun.graphs.limits import limits_of
from kgrun.runtime.compile.nvrtc import compile_cuda
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.program import KernelCode, Launch, Pointer, Value
from tests.gpu.gpu_run import Arena, run_kernel, step
from tests.runtime.kernels.cuda.emulation import array_dtype

HEADERS = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuda_fp8.h>\n"
COPY = 'extern "C" __global__ void k(float* y, const float* x) { y[threadIdx.x] = x[threadIdx.x] + 1; }'


def output(count: int, dtype: str = "float32") -> np.ndarray:
    return np.zeros(count, array_dtype(dtype))


@pytest.mark.parametrize("dtype", list(DTYPES))
def test_scalars_of_every_type_arrive(device: CudaDevice, dtype: str) -> None:
    kind = DTYPES[dtype]
    value = np.array(0.1 if kind.kind == "float" else 1 if kind.kind == "bool" else 100).astype(array_dtype(dtype))
    source = f'{HEADERS}extern "C" __global__ void k(char a, {kind.c_type} v, {kind.c_type}* y) {{ *y = v; }}'
    args = [Value(b"\1", 1), Value(value.tobytes(), kind.itemsize), output(1, dtype)]
    (got,) = run_kernel(device, source, args, block=(1,))
    assert got.tobytes() == value.tobytes()


def test_half_and_bfloat16_scalars_have_the_documented_bits(device: CudaDevice) -> None:
    stores = "y[0] = __half_as_ushort(h); y[1] = __bfloat16_as_ushort(b);"
    source = f'{HEADERS}extern "C" __global__ void k(__half h, __nv_bfloat16 b, unsigned short* y) {{ {stores} }}'
    half, brain = (np.array(0.1).astype(array_dtype(name)).tobytes() for name in ("float16", "bfloat16"))
    (got,) = run_kernel(device, source, [Value(half, 2), Value(brain, 2), output(2, "uint16")], block=(1,))
    assert [hex(v) for v in got.tolist()] == ["0x2e66", "0x3dcd"]


@pytest.mark.parametrize("vector", list(VECTORS))
def test_vectors_keep_their_alignment(device: CudaDevice, vector: str) -> None:
    element, count, align = VECTORS[vector]
    values = np.arange(1, count + 1).astype(array_dtype(element))
    stores = " ".join(f"y[{i}] = v.{'xyzw'[i]};" for i in range(count))
    source = f'extern "C" __global__ void k(int a, {vector} v, {DTYPES[element].c_type}* y) {{ {stores} }}'
    args = [Value(b"\7\0\0\0", 4), Value(values.tobytes(), align), output(count, element)]
    (got,) = run_kernel(device, source, args, block=(1,))
    assert got.tolist() == values.tolist()


def test_structs_travel_as_the_compiler_lays_them_out(device: CudaDevice) -> None:
    stores = "y[0] = s.a; y[1] = s.b; y[2] = s.c; y[3] = x;"
    source = "struct S { int a; double b; signed char c; };\n"
    source += f'extern "C" __global__ void k(char x, S s, double* y) {{ {stores} }}'
    args = [Value(b"\5", 1), Value(struct.pack("<i4xdb7x", 3, 2.5, -4), 8), output(4, "float64")]
    (got,) = run_kernel(device, source, args, block=(1,))
    assert got.tolist() == [3.0, 2.5, -4.0, 5.0]


def test_null_pointers_and_no_arguments(device: CudaDevice) -> None:
    source = 'extern "C" __global__ void k(int* p, int* y) { *y = p == nullptr; }'
    assert run_kernel(device, source, [None, output(1, "int32")], block=(1,))[0].tolist() == [1]
    run_kernel(device, 'extern "C" __global__ void k() {}', [])


SHARED = """extern "C" __global__ void k(unsigned char* y, int n) {
  extern __shared__ unsigned char s[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = i * 7;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = s[n - 1 - i];
}"""


@pytest.mark.parametrize("nbytes", [0, 49_151, 49_152, 49_153, -1])
def test_dynamic_shared_memory_up_to_the_devices_limit(device: CudaDevice, nbytes: int) -> None:
    most = device.driver.facts.shared_optin
    assert most == limits_of(device.info.arch or "").shared_optin
    n = most if nbytes < 0 else nbytes
    (got,) = run_kernel(device, SHARED, [output(max(n, 1), "uint8"), Value(struct.pack("<i", n), 4)], shared=n)
    want = (np.arange(n) * 7).astype(np.uint8)[::-1] if n else np.zeros(1, np.uint8)
    assert np.array_equal(got, want)


def test_shared_memory_beyond_the_limit_is_refused_before_the_launch(device: CudaDevice) -> None:
    args = [output(1, "uint8"), Value(struct.pack("<i", 1), 4)]
    most = device.driver.facts.shared_optin
    with pytest.raises(GraphError, match=f"shared={most + 1} > {most}"):
        run_kernel(device, SHARED, args, shared=most + 1)
    static = SHARED.replace(
        "extern __shared__ unsigned char s[];",
        "extern __shared__ unsigned char s[]; __shared__ int t[256]; t[threadIdx.x] = n; y[0] = t[n & 1];",
    )
    run_kernel(device, static, args, shared=48 * 1024)
    with pytest.raises(GraphError, match="1024 static"):
        run_kernel(device, static, args, shared=most)


def test_templates_and_namespaces(device: CudaDevice) -> None:
    source = "namespace a { template <class T, int N> __global__ void fill(T* y) { *y = T(N) / 2; } }"
    assert run_kernel(device, source, [output(1)], entry="a::fill<float, 5>", block=(1,))[0].tolist() == [2.5]


def test_ptx_runs_and_ptx_from_the_future_is_explained(device: CudaDevice) -> None:
    source = 'extern "C" __global__ void k(float* y) { *y = 3; }'
    ptx = compile_cuda(source, name="k.cu", arch="sm_80", kind="ptx").image.decode()
    lines = [line for line in ptx.splitlines() if not line.startswith(".version")]
    old = "\n".join([".version 8.0", *lines])
    assert run_kernel(device, old, [output(1)], language="ptx", block=(1,))[0].tolist() == [3.0]
    with pytest.raises(CompileError, match=r"PTX ISA 99\.9 .*needs a newer driver.*accepts up to") as caught:
        run_kernel(device, "\n".join([".version 99.9", *lines]), [output(1)], language="ptx", block=(1,))
    assert caught.value.exit == 5
    with pytest.raises(CompileError) as broken:
        run_kernel(device, old.replace("ret;", "rat;"), [output(1)], language="ptx", block=(1,))
    assert "rat" in broken.value.message


def test_cubins_run(device: CudaDevice) -> None:
    image = compile_cuda(COPY, name="k.cu", arch=device.info.arch or "").image
    arena = Arena(device, [128, 128])
    try:
        arena.write(1, np.arange(32, dtype=np.float32))
        code = KernelCode(None, image, "cubin", "k.cubin", "k")
        launch = Launch(code, (Pointer(0), Pointer(1)), (1, 1, 1), (32, 1, 1))
        device.prepare(step(launch), arena.address).launch()
        assert np.array_equal(arena.read(0, np.empty(32, np.float32)), np.arange(1, 33, dtype=np.float32))
        with pytest.raises(CompileError, match="does not load"):
            device.prepare(
                step(Launch(KernelCode(None, b"junk", "cubin", "j.cubin", "k"), (), (1, 1, 1), (1, 1, 1))),
                arena.address,
            )
    finally:
        arena.close()


CLUSTER = """#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(int* y) {
  auto c = cg::this_cluster();
  if (threadIdx.x == 0) y[blockIdx.x] = c.block_rank() * 10 + c.num_blocks();
}"""
GRID = """#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void k(int* y, int* z) {
  y[blockIdx.x] = blockIdx.x;
  cg::this_grid().sync();
  z[blockIdx.x] = y[gridDim.x - 1 - blockIdx.x];
}"""


def test_cluster_launches(device: CudaDevice) -> None:
    if not limits_of(device.info.arch or "").cluster:
        pytest.skip("no clusters on this architecture")
    (got,) = run_kernel(device, CLUSTER, [output(8, "int32")], grid=(8,), cluster=(4, 1, 1))
    assert got.tolist() == [4, 14, 24, 34] * 2


def test_cooperative_launches(device: CudaDevice) -> None:
    args = [output(64, "int32"), output(64, "int32")]
    got = run_kernel(device, GRID, args, grid=(64,), block=(1,), cooperative=True)
    assert got[1].tolist() == list(range(63, -1, -1))


def test_large_uploads_and_downloads_are_exact(device: CudaDevice) -> None:
    data = np.random.default_rng(1).integers(0, 256, (100 << 20) + 13, np.uint8)
    address = device.allocate(data.nbytes)
    try:
        device.upload(address, data)
        back = np.empty_like(data)
        device.download(address, back)
        assert np.array_equal(back, data)
    finally:
        device.free(address)


def test_marks_measure_time(device: CudaDevice) -> None:
    body = "long long t = clock64(); while (clock64() - t < 2000000) {} *y = 1;"
    source = f'extern "C" __global__ void k(long long* y) {{ {body} }}'
    arena = Arena(device, [8])
    try:
        launch = Launch(KernelCode(source, None, "cuda", "spin.cu", "k"), (Pointer(0),), (1, 1, 1), (1, 1, 1))
        prepared = device.prepare(step(launch), arena.address)
        start = device.record()
        prepared.launch()
        assert 500_000 < device.elapsed_ns(start, device.record()) < 50_000_000
    finally:
        arena.close()
