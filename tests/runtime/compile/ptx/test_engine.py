"""The engine around the kernels: errors, limits, printf, threads, timeouts, the object cache, a dying compiler."""
# ruff: noqa: E501 (a kernel in one string reads better with its statements on one line)

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from kgrun.graphs.errors import CompileError, DeviceUnavailable, InternalError, TimeoutExpired, UsageError
from kgrun.runtime.compile.nvrtc import compile_cuda
from kgrun.runtime.compile.ptx import jit, worker
from kgrun.runtime.compile.ptx.launch import BufferInfo
from kgrun.runtime.compile.ptx.module import load_ptx
from tests.runtime.compile.ptx.harness import compiled, launch, pack

pytest.importorskip("llvmlite")
pytest.importorskip("cuda.bindings")

ADD = 'extern "C" __global__ void k(const float* a, float* o, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) o[i] = a[i] + 1; }'
FOREVER = 'extern "C" __global__ void k(volatile int* flag) { while (*flag == 0) { } }'
BLOCK_FOREVER = 'extern "C" __global__ void k(int* o) { unsigned x = 1; while (x) x = x * 3 + 2 | 1; *o = x; }'


def ptx_of(source: str) -> str:
    return compile_cuda(source, name="kernel.cu", arch="sm_80", kind="ptx").image.decode()


def test_parameters_are_described_with_offsets() -> None:
    source = "struct S { char c; double d; };\n"
    source += 'extern "C" __global__ void __launch_bounds__(128) k(const float* a, short b, S s, int n) { __shared__ int x[10]; x[n] = b; ((double*)a)[x[0]] = s.d; }'
    kernel = compiled(source, (), frozenset()).kernel("k")
    described = [(p.size, p.align, p.offset, p.is_pointer_guess) for p in kernel.params]
    assert described == [(8, 8, 0, True), (2, 2, 8, False), (16, 8, 16, False), (4, 4, 32, False)]
    assert (kernel.static_shared, kernel.max_threads) == (40, 128)


def test_a_parameter_is_read_through_its_address() -> None:
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_param_0, .param .align 8 .b8 k_param_1[24]) {
  .reg .b64 %rd<6>;
  mov.b64 %rd1, k_param_1;
  add.s64 %rd2, %rd1, 16;
  ld.param.u64 %rd3, [%rd2+-8];
  ld.param.u64 %rd4, [k_param_0];
  cvta.to.global.u64 %rd5, %rd4;
  st.global.u64 [%rd5], %rd3;
  ret;
}
"""
    out = np.zeros(1, np.int64)
    kernel = load_ptx(text, name="x.ptx", checks=frozenset(("bounds",))).kernel("k")
    buffers = [BufferInfo("out", out.ctypes.data, out.nbytes)]
    result = kernel.launch((1, 1, 1), (1, 1, 1), 0, pack([out, np.array([5, 6, 7]).tobytes()]), buffers=buffers)
    assert (result.faults, out.tolist()) == ([], [6])


@pytest.mark.parametrize("name", ["graph.json:kernels.k.source", 'ü/a"b\\c\t.cu', "bad\udcff7.cu", r"a\303.cu"])
def test_a_fault_names_the_place_that_the_compiler_was_given(name: str) -> None:
    ptx = compile_cuda(ADD.replace("a[i]", "a[i + 4]"), name=name, arch="sm_80", kind="ptx").image.decode()
    kernel = load_ptx(ptx, name=name, checks=frozenset(("bounds",))).kernel("k")
    a, o = np.zeros(32, np.float32), np.zeros(32, np.float32)
    buffers = [BufferInfo("a", a.ctypes.data, a.nbytes), BufferInfo("o", o.ctypes.data, o.nbytes)]
    (fault,) = kernel.launch((1, 1, 1), (32, 1, 1), 0, pack([a, o, np.int32(32)]), buffers=buffers).faults
    assert (fault.file, fault.line, fault.thread, fault.count) == (name, 1, (28, 0, 0), 4)


def test_printf_formats_as_c_does() -> None:
    source = 'extern "C" __global__ void k() { printf("%d %5.2f|%-4s|%x %c %lld %%\\n", -3, 2.5, "ab", 255u, 65, 1ll << 40); }'
    assert launch(source, [], block=2).printf_text == "-3  2.50|ab  |ff A 1099511627776 %\n" * 2


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same(threads: int) -> None:
    a, o = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
    launch(ADD, [a, o, np.int32(1000)], grid=32, block=32, threads=threads)
    np.testing.assert_array_equal(o, a + 1)


def test_launches_that_cannot_be_are_refused() -> None:
    a = np.zeros(4, np.float32)
    with pytest.raises(UsageError, match="takes 20 bytes") as caught:
        launch(ADD, [a, a])
    assert caught.value.code == "KG200"
    with pytest.raises(UsageError, match="cannot be launched") as caught:
        launch(ADD, [a, a, np.int32(4)], block=2000)
    assert caught.value.code == "KG200"
    with pytest.raises(UsageError, match="unknown schedule") as caught:
        launch(ADD, [a, a, np.int32(4)], schedule="sideways")
    assert caught.value.code == "KG211"
    with pytest.raises(UsageError, match="allows 64 threads") as caught:
        launch(ADD.replace("void k", "void __launch_bounds__(64) k"), [a, a, np.int32(4)], block=65)
    assert caught.value.code == "KG200"
    with pytest.raises(UsageError, match="unknown check") as caught:
        load_ptx(ptx_of(ADD), name="x", checks=frozenset(("everything",)))
    assert caught.value.code == "KG214"


def test_a_wrong_entry_and_a_text_that_is_no_ptx() -> None:
    with pytest.raises(CompileError, match="no kernel 'kk'") as caught:
        load_ptx(ptx_of(ADD), name="x.ptx").kernel("kk")
    assert "'k'" in str(caught.value.help) or "it has k" in str(caught.value.help)
    with pytest.raises(CompileError, match="is no PTX"):
        load_ptx("hello", name="x.ptx")
    with pytest.raises(CompileError, match=r"PTX ISA 99.9 of x.ptx is too new: .* up to 9.x") as caught:
        load_ptx(re.sub(r"\.version [\d.]+", ".version 99.9", ptx_of(ADD)), name="x.ptx")
    assert (caught.value.exit, caught.value.code) == (5, "KG505")


@pytest.mark.parametrize(
    ("statement", "operation"),
    [
        ('asm volatile("bar.cluster.arrive;" ::);', "bar.cluster"),
        ('asm volatile("wgmma.fence.sync.aligned;");', "wgmma.fence.sync.aligned"),
        ('asm volatile("tex.1d.v4.f32.s32 {%0, %0, %0, %0}, [%1, {%2}];" :: "f"(1.f), "l"(o), "r"(1));', "tex.1d"),
    ],
)
def test_what_cannot_run_names_operation_and_line(statement: str, operation: str) -> None:
    ptx = ptx_of('extern "C" __global__ void k(float* o) {\n  asm volatile("membar.gl;");\n  o[0] = 1;\n}')
    inner = statement.split('"')[1].replace("%0", "%f1").replace("%1", "%rd1").replace("%2", "%r1")
    with_it = ptx.replace("membar.gl;", inner).replace(".reg .b64", ".reg .f32 %f<9>; .reg .b32 %r<9>; .reg .b64", 1)
    with pytest.raises(DeviceUnavailable) as caught:
        load_ptx(with_it, name="k.ptx").kernel("k").launch((1, 1, 1), (1, 1, 1), 0, bytes(8))
    assert caught.value.exit == 7
    assert operation in caught.value.message
    assert "kernel.cu (line 2)" in str(caught.value.where)


def test_a_spin_that_never_ends_is_reported_with_its_line() -> None:
    (fault,) = launch(FOREVER, [np.zeros(1, np.int32)], block=1).faults
    assert (fault.kind, fault.file, fault.line) == ("deadlock", "kernel.cu", 1)


def test_a_wait_for_a_block_that_computes_for_long_is_no_deadlock() -> None:
    source = 'extern "C" __global__ void k(volatile int* f, unsigned* o) { if (blockIdx.x == 0) { while (!*f) { } *o = f[1]; return; }\n'
    source += (
        "unsigned x = 3; for (int i = 0; i < 300000000; i++) x = x * x + i; f[1] = x | 1; __threadfence(); *f = 1; }"
    )
    f, o = np.zeros(2, np.int32), np.zeros(1, np.uint32)
    assert launch(source, [f, o], grid=2, block=1, threads=2).faults == []
    assert o[0] == f[1:].view(np.uint32)[0] != 0


def test_progress_is_told_while_a_launch_runs() -> None:
    told: list[tuple[float, float]] = []
    slow = 'extern "C" __global__ void k(unsigned* o) { unsigned x = blockIdx.x; for (int i = 0; i < 1000000; i++) x = x * x + i; *o = x; }'
    kernel = compiled(slow, (), frozenset()).kernel("k")
    with pytest.raises(TimeoutExpired):
        kernel.launch(
            (100000, 1, 1), (1, 1, 1), 0, pack([np.zeros(1, np.int32)]), timeout_s=1.4,
            on_progress=lambda fraction, seconds: told.append((fraction, seconds)),
        )  # fmt: skip
    assert told
    assert all(0 <= fraction <= 1 and seconds > 0 for fraction, seconds in told)


def test_a_loop_that_never_ends_times_out_and_the_process_goes_on() -> None:
    script = (
        "import numpy as np\nfrom kgrun.graphs.errors import TimeoutExpired\n"
        "from tests.runtime.compile.ptx.test_engine import ADD, BLOCK_FOREVER, launch\n"
        "o = np.zeros(1, np.int32)\n"
        "try:\n    launch(BLOCK_FOREVER, [o], block=1, timeout_s=0.5)\nexcept TimeoutExpired as error:\n    print(error.exit)\n"
        "a = np.ones(8, np.float32); launch(ADD, [a, a, np.int32(8)]); print(a.sum())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["9", "16.0"]), done.stderr


def test_a_call_through_a_null_pointer_is_a_trap() -> None:
    source = "typedef int (*op)(int);\n__device__ int next(int a) { return a + 1; }\n__device__ op table[2] = {next, nullptr};\n"
    source += 'extern "C" __global__ void k(int* o) {\n  o[threadIdx.x] = table[threadIdx.x](1);\n}\n'
    result = launch(source, [out := np.zeros(2, np.int32)], block=2)
    assert [(fault.kind, fault.line, fault.thread) for fault in result.faults] == [("trap", 5, (1, 0, 0))]
    assert out[0] == 2


def test_the_object_cache_serves_a_second_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ptx = ptx_of(ADD.replace("+ 1", "+ 7"))
    real, compiled = jit._in_worker, []

    def counted(ir: str, vectorize: bool) -> bytes | None:
        compiled.append(ir)
        return real(ir, vectorize)

    monkeypatch.setattr(jit, "_in_worker", counted)
    monkeypatch.setenv("KGRUN_CACHE_DIR", str(tmp_path))
    load_ptx(ptx, name="x").kernel("k").prepare()
    first = len(compiled)
    load_ptx(ptx, name="x").kernel("k").prepare()
    assert (first > 0, len(compiled)) == (True, first)


def test_llvm_dying_of_vectorisation_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = jit._in_worker

    def dies_when_vectorising(ir: str, vectorize: bool) -> bytes | None:
        calls.append(vectorize)
        return None if vectorize else real(ir, vectorize)

    monkeypatch.setattr(jit, "_in_worker", dies_when_vectorising)
    assert jit.compile_ir("define i32 @f() {\n  ret i32 3\n}\n", None)
    assert calls == [True, False]


def test_a_compiler_process_that_is_gone_is_replaced() -> None:
    ir = "define i32 @f() {\n  ret i32 4\n}\n"
    jit.compile_ir(ir, None)
    for process in list(jit._all):
        process.kill()
        process.wait()
    assert jit.compile_ir(ir, None)


def test_invalid_code_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="LLVM refused"):
        jit.compile_ir("define nonsense", None)


def test_frames_end_where_the_stream_does(tmp_path: Path) -> None:
    path = tmp_path / "frames"
    with path.open("wb") as out:
        worker.write_frame(out, b"abc")
        out.write(b"\x05\0\0\0\0\0\0\0xy")
    with path.open("rb") as stream:
        assert [worker.read_frame(stream) for _ in range(3)] == [b"abc", None, None]


def test_kernels_of_one_module_share_its_variables() -> None:
    source = "__device__ int total = 5;\n__constant__ int step;\n"
    source += 'extern "C" __global__ void add() { atomicAdd(&total, step); }\nextern "C" __global__ void get(int* o) { *o = total; }'
    module = load_ptx(ptx_of(source), name="x")
    address, size = module.symbol("step")
    assert size == 4
    np.frombuffer((np.ctypeslib.as_array((__import__("ctypes").c_int32 * 1).from_address(address))), np.int32)
    __import__("ctypes").c_int32.from_address(address).value = 3
    module.kernel("add").launch((2, 1, 1), (4, 1, 1), 0, b"")
    out = np.zeros(1, np.int32)
    module.kernel("get").launch((1, 1, 1), (1, 1, 1), 0, pack([out]))
    assert out[0] == 29


def test_launches_from_several_python_threads() -> None:
    outputs = [np.zeros(500, np.float32) for _ in range(4)]
    a = np.arange(500, dtype=np.float32)
    threads = [threading.Thread(target=launch, args=(ADD, [a, o, np.int32(500)]), kwargs={"grid": 16}) for o in outputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for out in outputs:
        np.testing.assert_array_equal(out, a + 1)


def test_the_overrun_that_a_compiler_generated_is_found_at_its_line() -> None:
    path = Path(__file__).parents[3] / "data" / "kernels" / "tvm_shared_overrun.cu"
    source = path.read_text()
    module = load_ptx(ptx_of(source), name="tvm", checks=frozenset(("bounds",)))
    shapes = (8 * 24 * 96, 8 * 24 * 96, 8, 16, 2, 8)
    arrays = [np.ones(max(count, 32768), np.float32) for count in shapes]
    kernel = module.kernel(module.entries[0])
    buffers = [BufferInfo(str(n), a.ctypes.data, a.nbytes) for n, a in enumerate(arrays)]
    arguments = pack(arrays[: len(kernel.params)])
    (fault,) = kernel.launch((1, 1, 1), (32, 16, 1), 0, arguments, buffers=buffers).faults
    assert (fault.kind, fault.tensor, fault.offset, fault.thread) == (
        "out-of-bounds",
        "shared lv24_shared_ptr",
        32,
        (0, 8, 0),
    )
    assert source.splitlines()[fault.line - 1].strip() == "lv24_shared_ptr[((int)threadIdx.y)] = red_buf0_ptr[0];"


def test_a_thread_that_waits_for_nobody_is_reported_and_goes_on_with_what_it_read() -> None:
    source = """extern "C" __global__ void k(const float* x, float* y) {
    y[0] = 0;
    while (*(volatile const float*)x > 0) y[0] += 1;
}"""
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    (fault,) = launch(source, [x, y], block=1).faults
    assert (fault.kind, fault.line) == ("deadlock", 3)
    assert y[0] > 1_000  # the value read before a pause is there after it


def test_a_bounded_wait_on_volatile_memory_counts_right() -> None:
    source = """extern "C" __global__ void k(const int* x, int* y) {
    int turns = 0;
    while (*(volatile const int*)(x + turns) > 0) turns += 1;
    y[threadIdx.x] = turns;
}"""
    x, y = np.r_[np.ones(500, np.int32), np.zeros(1, np.int32)], np.zeros(33, np.int32)
    assert launch(source, [x, y], block=33).faults == []
    assert y.tolist() == [500] * 33
