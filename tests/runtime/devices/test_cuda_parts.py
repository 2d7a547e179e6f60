"""Cubins, PTX signatures, argument packing, error texts and the status rows: all without a GPU."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest

from kgrun.graphs.cubin import Parameter, read_cubin
from kgrun.graphs.errors import CompileError, DeviceFault, DoesNotFit
from kgrun.runtime.compile.nvrtc import compile_cuda
from kgrun.runtime.devices.cuda_arguments import layout, pack
from kgrun.runtime.devices.cuda_code import newest_ptx, ptx_parameters
from kgrun.runtime.devices.cuda_errors import is_sticky, translate
from kgrun.runtime.devices.cuda_status import gpu_status
from kgrun.runtime.program import Pointer, Value

KERNELS = r"""
struct S { int a; double b; char c; };
extern "C" __global__ void mixed(int a, float4 v, S s, float* out, short h) {
  __shared__ float sm[100];
  sm[threadIdx.x] = v.y;
  __syncthreads();
  out[threadIdx.x] = v.x + a + s.b + h + sm[threadIdx.x ^ 1];
}
extern "C" __global__ void none() {}
"""
MIXED = (Parameter(0, 4), Parameter(16, 16), Parameter(32, 24), Parameter(56, 8), Parameter(64, 2))
ARGS = (Value(bytes(4), 4), Value(b"v" * 16, 16), Value(b"s" * 24, 8), Pointer(0), Value(b"hh", 2))


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_a_cubin_tells_parameters_registers_and_shared_memory(arch: str) -> None:
    pytest.importorskip("cuda.bindings")
    facts = read_cubin(compile_cuda(KERNELS, name="k.cu", arch=arch).image)
    assert facts["mixed"].parameters == MIXED
    assert facts["mixed"].static_shared == 400
    assert 4 <= facts["mixed"].registers <= 64
    assert (facts["none"].parameters, facts["none"].static_shared) == ((), 0)


def test_ptx_tells_the_same_parameters() -> None:
    pytest.importorskip("cuda.bindings")
    text = compile_cuda(KERNELS, name="k.cu", kind="ptx").image.decode()
    assert ptx_parameters(text) == {"mixed": MIXED, "none": ()}


def test_pointer_attributes_in_ptx_do_not_hide_the_parameter() -> None:
    first = ".param .u64 .ptr .global .align 16 k_param_0, // a comment, with (brackets)"
    text = f".visible .entry k(\n {first}\n .param .f32 b)"
    assert ptx_parameters(text) == {"k": (Parameter(0, 8), Parameter(8, 4))}


@pytest.mark.parametrize("image", [b"", b"\x7fELF\x02", b"\x7fELF\x02" + bytes(80), b"\x7fELF\x02" + b"\xff" * 80])
def test_what_is_no_cubin_has_no_kernels(image: bytes) -> None:
    assert read_cubin(image) == {}


def test_the_layout_of_arguments_is_the_compilers() -> None:
    assert tuple(layout(ARGS)) == MIXED


def test_arguments_are_packed_at_their_alignment() -> None:
    block = pack((*ARGS, None), lambda pointer: 0x1234 + pointer.offset)
    assert len(block) == 80
    assert block[16:32] == b"v" * 16
    assert struct.unpack_from("<Q", block, 56) == (0x1234,)
    assert block[64:66] == b"hh"
    assert block[72:] == bytes(8)
    assert pack((), lambda _: 0) == b""


@pytest.mark.parametrize(
    ("text", "kind", "sticky", "number"),
    [
        ("cuCtxSynchronize failed: an illegal memory access was encountered", DeviceFault, True, 700),
        ("cuStreamSynchronize failed: misaligned address", DeviceFault, True, 716),
        ("cuMemAlloc failed: out of memory", DoesNotFit, False, 2),
        ("cuLaunchKernel failed: invalid argument", DeviceFault, False, 1),
        ("cuModuleLoadDataEx failed: a PTX JIT compilation failed - ptxas error", DeviceFault, False, 218),
    ],
)
def test_driver_errors_are_named_and_explained(text: str, kind: type, sticky: bool, number: int) -> None:
    error = translate(RuntimeError(text), "doing it")
    assert type(error) is kind
    assert error.details["cuda_code"] == number
    assert error.help
    assert is_sticky(RuntimeError(text)) is sticky


def test_an_unknown_error_keeps_its_words() -> None:
    error = translate(RuntimeError("cuFoo failed: something new"), "doing it")
    assert error.message == "doing it: cuFoo failed: something new"
    assert type(translate(RuntimeError("odd"), "loading", image=True)) is CompileError


def test_the_newest_ptx_follows_the_drivers_cuda() -> None:
    assert [newest_ptx(v) for v in ((13, 0), (13, 2), (12, 0), (12, 8), (11, 8))] == [
        (9, 0),
        (9, 2),
        (8, 0),
        (8, 7),
        (7, 8),
    ]


def test_the_status_says_why_there_is_no_gpu() -> None:
    status = gpu_status()
    assert status.usable == (not status.reason)
    assert all(row.help for row in status.rows if not row.ok)
    assert any("PyCUDA" in row.name for row in status.rows)


def test_the_cuda_modules_import_nothing_heavy() -> None:
    script = (
        "import sys, kgrun.runtime.devices.cuda, kgrun.runtime.devices.cuda_status\n"
        "print([m for m in ('numpy', 'pycuda', 'cuda', 'concurrent.futures.thread') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
