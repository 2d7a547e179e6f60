"""Launches: limits, the widths and places of arguments, shared memory, code that does not compile."""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import CompileError
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.devices.cuda_driver import DeviceFacts, LoadFailed
from kgrun.runtime.program import KernelCode, Launch, Pointer, Step
from tests.cases.conftest import ON_EACH_DEVICE, launch, value
from tests.runtime.devices.fake_cuda_driver import FakeDriver

EMPTY = 'extern "C" __global__ void k(float* y) {}'
OPTIN = 227 * 1024  # sm_90


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ([1, 1, 65_536], "grid[2]=65536 > 65535 (max_grid_dim_z)"),
        ([1, 65_536], "grid[1]=65536 > 65535 (max_grid_dim_y)"),
        ([2**31], "grid[0]=2147483648 > 2147483647 (max_grid_dim_x)"),
        ([2, 2, 93_288], "grid[2]=93288 > 65535 (max_grid_dim_z)"),
        ([0], "grid[0]=0 < 1"),
        (["0 - 4"], "grid[0]=-4 < 1"),
    ],
)
@pytest.mark.parametrize("command", ["validate", "plan-memory", "execute"])
def test_launch_01_grid_beyond_its_axis_is_refused_by_name(
    kgrun: Any, write: Any, grid: Any, words: str, command: str
) -> None:
    done = kgrun(command, write(launch(EMPTY, grid=grid)), "--json")
    assert done.code == 3
    assert words in done.error
    assert "nodes[0].grid" in done.error


@pytest.mark.parametrize("grid", [[1, 65_535], [1, 1, 65_535], [2**31 - 1, 1, 1]])
def test_launch_01_the_largest_grids_pass(kgrun: Any, write: Any, grid: Any) -> None:
    assert kgrun("validate", write(launch(EMPTY, grid=grid))).code == 0


@pytest.mark.gpu
@pytest.mark.parametrize("grid", [[1, 65_535], [1, 1, 65_535], [2**31 - 1, 1, 1]])
def test_launch_01_the_largest_grids_run(kgrun: Any, write: Any, grid: Any) -> None:
    done = kgrun("execute", write(launch(EMPTY, grid=grid)), "--device", "cuda", "--iterations", "1", "--warmup", "0")
    assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("body", "more", "code", "words"),
    [
        ("__shared__ float s[20000]; s[threadIdx.x] = 1; y[0] = s[31];", {}, "KG360", "80000 bytes of static shared"),
        (
            "__shared__ float s[8000]; extern __shared__ float d[]; int t = threadIdx.x; s[t] = d[t] = y[0];"
            " __syncthreads(); y[t] = s[31 - t] + d[1];",
            {"shared": 210_000},
            "KG360",
            "242000 > 232448",
        ),
        ("y[0] = 1;", {"block": [128]}, "KG361", "block of 128 threads > 64 that kernel k was compiled for"),
    ],
)
def test_what_no_gpu_launches_does_not_run_on_the_cpu(
    kgrun: Any, write: Any, body: str, more: dict[str, Any], code: str, words: str
) -> None:
    bounds = "__launch_bounds__(64)" if code == "KG361" else ""
    graph = launch(f'extern "C" __global__ void {bounds} k(float* y) {{ {body} }}', **more)
    done = kgrun("execute", write(graph), "--device", "cpu", "--json")
    assert done.code == 3
    assert code in done.error
    assert words in done.error
    assert "nodes[0]" in done.error


@pytest.mark.parametrize("scalar", [7, 2.5, True])
def test_launch_03_a_scalar_without_a_type_is_refused_at_its_place(kgrun: Any, write: Any, scalar: Any) -> None:
    source = 'extern "C" __global__ void k(float* y, int n) {}'
    done = kgrun("validate", write(launch(source, args=["y", scalar])), "--json")
    assert done.code == 3
    assert "nodes[0].args[1]" in done.error


@ON_EACH_DEVICE
@pytest.mark.parametrize(("kind", "c_type"), [("int32", "int"), ("int8", "signed char"), ("int64", "long long")])
def test_launch_03_a_typed_scalar_arrives(kgrun: Any, write: Any, kind: str, c_type: str, device: str) -> None:
    source = f'extern "C" __global__ void k(long long* y, {c_type} n) {{ y[0] = n; }}'
    graph = launch(source, args=["y", {kind: -7}], out=("int64", [1]))
    done = kgrun("execute", write(graph), "--device", device, "--json")
    assert value(done, "y") == [-7]


@ON_EACH_DEVICE
@pytest.mark.parametrize(
    ("args", "words"),
    [(["y", {"int64": 7}], "8"), (["y"], "1"), (["y", {"int32": 1}, {"int32": 1}], "3")],
    ids=["wide", "few", "many"],
)
def test_launch_03_arguments_that_are_not_the_kernels_are_refused_before_the_launch(
    kgrun: Any, write: Any, args: Any, words: str, device: str
) -> None:
    source = 'extern "C" __global__ void k(float* y, int n) { y[0] = n; }'
    done = kgrun("execute", write(launch(source, args=args)), "--device", device, "--json")
    assert done.code == 3
    assert "kernel k " in done.error
    assert "argument" in done.error
    assert words in done.error


VECTORS = [
    ("float4", "float4", [1.5, -2, 3, 4], 4),
    ("int4", "int4", [1, -2, 3, 4], 4),
    ("double2", "double2", [1, 2], 2),
]


@ON_EACH_DEVICE
@pytest.mark.parametrize(("kind", "c_type", "elements", "count"), VECTORS)
@pytest.mark.parametrize("before", ["char", "int", "long long"])
def test_launch_05_a_vector_by_value_lies_at_its_own_alignment(
    kgrun: Any, write: Any, kind: str, c_type: str, elements: Any, count: int, before: str, device: str
) -> None:
    stores = " ".join(f"out[{i}] = v.{axis};" for i, axis in enumerate("xyzw"[:count]))
    parameters = f"{before} a, {c_type} v, double* out, char z"
    source = f'extern "C" __global__ void k({parameters}) {{ {stores} out[{count}] = a + z; }}'
    name = {"char": "int8", "int": "int32", "long long": "int64"}[before]
    args = [{name: 5}, {kind: elements}, "y", {"int8": 2}]
    done = kgrun(
        "execute", write(launch(source, args=args, out=("float64", [count + 1]))), "--device", device, "--json"
    )
    assert value(done, "y") == [*elements, 7]


@ON_EACH_DEVICE
@pytest.mark.parametrize(
    ("kind", "number", "bits"),
    [
        ("float16", 0.1, 0x2E66), ("bfloat16", 0.1, 0x3DCD), ("float16", "-inf", 0xFC00), ("bfloat16", 1e39, 0x7F80),
        ("float16", 65_520, 0x7C00), ("float16", 6e-8, 0x0001), ("bfloat16", 1.00390625, 0x3F80),
    ],
)  # fmt: skip
def test_launch_07_half_scalars_are_rounded_once(
    kgrun: Any, write: Any, kind: str, number: Any, bits: int, device: str
) -> None:
    source = 'extern "C" __global__ void k(int* y, unsigned short h) { y[0] = h; }'
    done = kgrun(
        "execute", write(launch(source, args=["y", {kind: number}], out=("int32", [1]))), "--device", device, "--json"
    )
    assert value(done, "y") == [bits]


@pytest.mark.parametrize(("kind", "format"), [("float16", "<e"), ("bfloat16", None)])
def test_launch_07_half_scalars_equal_the_oracle_for_many_numbers(kind: str, format: str | None) -> None:
    import ml_dtypes

    from kgrun.graphs.bind.launches import pack_float

    numbers = np.random.default_rng(0).normal(0, 100, 500)
    for number in numbers.tolist():
        if format is None:
            expected = np.array(number).astype(ml_dtypes.bfloat16).tobytes()
        else:
            expected = struct.pack(format, number)
        assert pack_float(kind, number) == expected


SHARED = """extern "C" __global__ void k(float* y) {
  extern __shared__ char s[];
  s[LAST] = 3;
  y[0] = s[LAST];
}"""


def shared(nbytes: int, static: int = 0) -> dict[str, Any]:
    source = SHARED.replace("LAST", str(nbytes - 1))
    if static:
        source = source.replace(
            "extern __shared__", f"__shared__ volatile char own[{static}]; own[0] = 1; extern __shared__"
        )
    return launch(source, shared=nbytes, out=("float32", [1]))


@ON_EACH_DEVICE
@pytest.mark.parametrize("nbytes", [49_151, 49_152, 49_153, OPTIN])
def test_launch_09_shared_memory_up_to_the_opt_in_limit_runs(kgrun: Any, write: Any, nbytes: int, device: str) -> None:
    assert value(kgrun("execute", write(shared(nbytes)), "--device", device, "--json"), "y") == [3]


@ON_EACH_DEVICE
def test_launch_09_static_and_dynamic_shared_memory_add_up(kgrun: Any, write: Any, device: str) -> None:
    assert value(kgrun("execute", write(shared(48 * 1024, static=1024)), "--device", device, "--json"), "y") == [3]


@pytest.mark.parametrize("command", ["validate", "execute"])
def test_launch_09_beyond_the_limit_is_refused_with_both_numbers(kgrun: Any, write: Any, command: str) -> None:
    done = kgrun(command, write(shared(OPTIN + 1)), "--json")
    assert done.code == 3
    assert f"shared={OPTIN + 1} > {OPTIN}" in done.error
    told = shared(OPTIN - 1023)
    told["kernels"]["k"]["static_shared"] = 1024
    done = kgrun(command, write(told), "--json")
    assert done.code == 3
    assert f"{OPTIN - 1023} + 1024 static = {OPTIN + 1} > {OPTIN}" in done.error


@pytest.mark.gpu
def test_launch_09_static_memory_that_only_the_code_tells_counts_too(kgrun: Any, write: Any) -> None:
    done = kgrun("execute", write(shared(OPTIN - 512, static=1024)), "--device", "cuda", "--json")
    assert done.code == 3
    assert str(OPTIN) in done.error


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ([1025], "block[0]=1025 > 1024"), ([1, 1025], "block[1]=1025 > 1024"), ([1, 1, 65], "block[2]=65 > 64"),
        ([32, 33], "1056 threads > 1024"), ([16, 16, 5], "1280 threads > 1024"), ([0], "block[0]=0 < 1"),
    ],
)  # fmt: skip
def test_launch_11_block_beyond_a_limit_is_refused_by_name(kgrun: Any, write: Any, block: Any, words: str) -> None:
    done = kgrun("validate", write(launch(EMPTY, block=block)), "--json")
    assert done.code == 3
    assert words in done.error
    assert "nodes[0].block" in done.error


@pytest.mark.parametrize("block", [[1024, 1, 1], [32, 32], [1, 1024], [16, 1, 64]])
def test_launch_11_the_largest_blocks_pass(kgrun: Any, write: Any, block: Any) -> None:
    assert kgrun("validate", write(launch(EMPTY, block=block))).code == 0


NEW_PTX = """.version 99.9
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p) { ret; }
"""


@pytest.mark.gpu
def test_launch_13_ptx_newer_than_the_driver_names_both_versions(kgrun: Any, write: Any) -> None:
    graph = launch(NEW_PTX, kernel={"language": "ptx"})
    done = kgrun("execute", write(graph), "--device", "cuda", "--json")
    assert done.code == 5
    assert "PTX ISA 99.9" in done.error
    assert re.search(r"this driver \(CUDA \d+\.\d+\) accepts up to \d\.\d", done.error)


def test_launch_13_ptx_newer_than_the_cpu_device_takes_names_both_versions_and_the_place(
    kgrun: Any, write: Any
) -> None:
    graph = launch(NEW_PTX, kernel={"language": "ptx"})
    done = kgrun("execute", write(graph), "--device", "cpu", "--json")
    assert (done.code, done.json()["error"]["code"]) == (5, "KG505")
    assert "PTX ISA 99.9" in done.error
    assert re.search(r"the CPU device takes versions up to \d", done.error)
    assert "kernels.k.source" in done.json()["error"]["where"]


def test_launch_13_ptx_newer_than_the_driver_names_both_versions_and_has_the_log() -> None:
    driver = FakeDriver(facts=DeviceFacts("f", "sm_90", 1 << 30, OPTIN, (12, 4)))
    log = "ptxas fatal: Unsupported .version 99.9"
    driver.errors = (LoadFailed,)

    def refuse(image: bytes, name: str) -> Any:
        raise LoadFailed("cuModuleLoadDataEx failed", log)

    driver.load = refuse  # type: ignore[method-assign]
    code = KernelCode(NEW_PTX, None, "ptx", "new.ptx", "k", kernel="k")
    step = Step(0, "k0", 0, "k", "compute", Launch(code, (Pointer(0),), (1, 1, 1), (1, 1, 1)), (), ())
    with pytest.raises(CompileError) as caught:
        CudaDevice(driver=driver).prepare(step, lambda pointer: 0x1000)
    assert (caught.value.exit, caught.value.code) == (5, "KG505")
    for words in ("PTX ISA 99.9", "new.ptx", "CUDA 12.4", "up to 8.4", log):
        assert words in caught.value.message


BROKEN = 'extern "C" __global__ void k(float* y) {\n  int i = 0;\n  y[i] = nothing;\n}\n'


@ON_EACH_DEVICE
def test_launch_15_an_error_in_inline_code_is_placed_in_the_graph(kgrun: Any, write: Any, device: str) -> None:
    done = kgrun("execute", write(launch(BROKEN)), "--device", device, "--json")
    assert done.code == 5
    text = done.error
    assert "kernels.k.source" in text
    assert "3" in text.partition("kernels.k.source")[2]
    assert "nothing" in text
    assert "/tmp/" not in text.replace(str(write(launch(BROKEN)).parent), "")


@ON_EACH_DEVICE
def test_launch_15_an_error_in_a_file_is_placed_in_the_file(kgrun: Any, write: Any, tmp_path: Any, device: str) -> None:
    (tmp_path / "foo.cu").write_text("// a comment\n" + BROKEN)
    done = kgrun("execute", write(launch("foo.cu")), "--device", device, "--json")
    assert done.code == 5
    assert "foo.cu (line 4)" in done.error
    assert "nothing" in done.error


def test_launch_15_the_message_shows_the_line_at_fault(kgrun: Any, write: Any) -> None:
    done = kgrun("execute", write(launch(BROKEN)), "--device", "cpu")
    assert done.code == 5
    assert "y[i] = nothing;" in done.err
