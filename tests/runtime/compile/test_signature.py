"""Signatures: exact from sources, sizes from PTX and cubins, limits, unknown kernels."""
# ruff: noqa: E501 (a kernel in one string reads better with its statements on one line)

from __future__ import annotations

import pytest

from kgrun.graphs.errors import CompileError
from kgrun.runtime.compile import mangling, signature
from kgrun.runtime.compile.nvrtc import compile_cuda
from kgrun.runtime.compile.signature import signature_of_cubin, signature_of_ptx, signatures_of_source

pytest.importorskip("cuda.bindings")

SOURCE = """#include <cuda_fp16.h>
struct Options { int rows; double scale; };
namespace deep { template <class T, int N> struct Box { T values[N]; }; }
extern "C" __global__ void __launch_bounds__(96, 1) plain(const float* __restrict__ x, float* y, int n, float a, Options o) {
  __shared__ float s[10]; s[threadIdx.x % 10] = x[0]; __syncthreads(); y[0] = s[n] * a + o.rows; }
template <class T, int N> __global__ void scale(const T* x, T* y, deep::Box<T, N> b, const T* z, unsigned char c) { y[0] = x[0] * b.values[c] + z[0]; }
__global__ void halves(const __half2* a, __half b, volatile const long long* c, const float* const* d, bool e, unsigned long long f) { *(__half*)a = b; }
__global__ void nothing() {}
"""


def described(entry: str) -> list[tuple[str, int, int, str, bool | None]]:
    found = signatures_of_source(SOURCE, [entry], name="k.cu")[entry]
    return [(p.kind, p.size, p.offset, p.type_name, p.const) for p in found.params]


def test_types_sizes_and_constness_of_a_plain_kernel() -> None:
    assert described("plain") == [
        ("pointer", 8, 0, "float const*", True),
        ("pointer", 8, 8, "float*", False),
        ("scalar", 4, 16, "int", None),
        ("scalar", 4, 20, "float", None),
        ("struct", 16, 24, "Options", None),
    ]


def test_a_template_instance_with_substitutions() -> None:
    assert described("scale<float, 4>") == [
        ("pointer", 8, 0, "float const*", True),
        ("pointer", 8, 8, "float*", False),
        ("struct", 16, 16, "deep::Box<float, 4>", None),
        ("pointer", 8, 32, "float const*", True),
        ("scalar", 1, 40, "unsigned char", None),
    ]


def test_halves_pointers_to_pointers_and_wide_integers() -> None:
    assert described("halves") == [
        ("pointer", 8, 0, "__half2 const*", True),
        ("struct", 2, 8, "__half", None),
        ("pointer", 8, 16, "long long volatile const*", True),
        ("pointer", 8, 24, "float const* const*", True),
        ("scalar", 1, 32, "bool", None),
        ("scalar", 8, 40, "unsigned long long", None),
    ]


def test_a_kernel_without_parameters_and_its_symbol() -> None:
    found = signatures_of_source(SOURCE, ["nothing"], name="k.cu")["nothing"]
    assert (found.symbol, found.params) == ("_Z7nothingv", [])


def test_limits_come_with_the_signature() -> None:
    found = signatures_of_source(SOURCE, ["plain"], name="k.cu")["plain"]
    assert (found.static_shared, found.max_threads) == (40, 96)


def test_an_entry_that_is_not_there_is_a_compile_error() -> None:
    with pytest.raises(CompileError):
        signatures_of_source(SOURCE, ["plane"], name="k.cu")


def test_ptx_tells_sizes_and_offsets() -> None:
    ptx = compile_cuda(SOURCE, name="k.cu", arch="sm_80", kind="ptx").image.decode()
    found = signature_of_ptx(ptx, "plain", name="k.ptx")
    assert [(p.kind, p.size, p.offset) for p in found.params] == [
        ("pointer", 8, 0),
        ("pointer", 8, 8),
        ("scalar", 4, 16),
        ("scalar", 4, 20),
        ("struct", 16, 24),
    ]
    with pytest.raises(CompileError, match="no kernel 'other'"):
        signature_of_ptx(ptx, "other", name="k.ptx")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_a_cubin_tells_parameters_and_resources(arch: str) -> None:
    cubin = compile_cuda(SOURCE, name="k.cu", arch=arch).image
    found = signature_of_cubin(cubin, "plain", name="k.cubin")
    assert [(p.size, p.offset) for p in found.params] == [(8, 0), (8, 8), (4, 16), (4, 20), (16, 24)]
    assert found.max_threads == 96
    assert found.static_shared == 40
    assert found.registers is not None
    assert 4 <= found.registers <= 255


def test_what_is_no_cubin_is_refused() -> None:
    for image in (b"", b"\x7fELF\x02", b"PTX", b"\x7fELF\x02" + bytes(60)):
        with pytest.raises(CompileError, match="no cubin"):
            signature.cubin_kernels(image, "k.cubin")


@pytest.mark.parametrize("symbol", ["_Z3fooi", "_Z15kgrun_signatureIFvPS9_EE", "_Z15kgrun_signatureIFv", "x"])
def test_an_unreadable_name_gives_nothing(symbol: str) -> None:
    assert mangling.function_parameters(symbol) is None
