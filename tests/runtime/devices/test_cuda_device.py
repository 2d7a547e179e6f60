"""CudaDevice over a fake driver: memory, launches, limits, faults, and clean ways out of every failure."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import CompileError, DeviceFault, DoesNotFit, GraphError, KgrunError
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.program import ArrayRef, Clear, Copy, HostCall, KernelCode, Launch, Pointer, Step, Value
from tests.runtime.devices.fake_cuda_driver import ILLEGAL, FakeDriver

pytest.importorskip("cuda.bindings")

SCALE = 'extern "C" __global__ void scale(const float* x, float a, float* y) { y[threadIdx.x] = a * x[threadIdx.x]; }'


def code(text: str = SCALE, entry: str = "scale", **more: Any) -> KernelCode:
    return KernelCode(text, None, more.pop("language", "cuda"), "scale.cu", entry, kernel="scale", **more)


def step(work: Any, name: str = "s") -> Step:
    return Step(0, name, 0, "op", "compute", work, (0,), (1,))


def scale(**changes: Any) -> Launch:
    args = (Pointer(0), Value(struct.pack("<f", 2.0), 4), Pointer(1))
    fields: dict[str, Any] = {"code": code(), "args": args, "grid": (1, 1, 1), "block": (32, 1, 1)}
    return Launch(**(fields | changes))


def addresses(pointer: Pointer) -> int:
    return 0x1000 * (pointer.buffer + 1) + pointer.offset


def test_peak_counts_what_was_held_at_once(device: CudaDevice) -> None:
    first = device.allocate(1000)
    device.free(first)
    second = device.allocate(600)
    third = device.allocate(300)
    assert (device.memory_in_use(), device.peak_memory()) == (900, 1000)
    assert second % 512 == third % 512 == 0
    device.free(second)
    device.free(second)
    assert (device.memory_in_use(), device.peak_memory()) == (300, 1000)


def test_out_of_memory_tells_planned_free_and_held(device: CudaDevice) -> None:
    device.allocate(500_000)
    with pytest.raises(DoesNotFit) as caught:
        device.allocate(600_000)
    assert caught.value.exit == 4
    assert caught.value.details["planned_bytes"] == 600_000
    assert caught.value.details["free_bytes"] == (1 << 20) - 500_000 - 4_096
    assert caught.value.details["held_bytes"] == 500_000
    assert caught.value.details["context_bytes"] == 4_096
    assert device.allocate(1) > 0  # the device is still good


@pytest.mark.parametrize("nbytes", [1, 4_097, 8 << 20, (40 << 20) + 3])
def test_uploads_and_downloads_are_exact_at_every_size(nbytes: int) -> None:
    driver = FakeDriver(facts=FakeDriver().facts.__class__("f", "sm_90", 1 << 30, 232_448, (13, 0)))
    device = CudaDevice(driver=driver)
    data = np.random.default_rng(0).integers(0, 256, nbytes, np.uint8)
    address = device.allocate(nbytes)
    device.upload(address, data)
    back = np.zeros_like(data)
    device.download(address, back)
    assert np.array_equal(back, data)
    assert driver.pinned_blocks <= 4
    device.close()


def test_arrays_of_types_without_a_buffer_protocol_travel(device: CudaDevice) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    data = np.arange(6, dtype=np.float32).astype(ml_dtypes.bfloat16).reshape(2, 3)
    address = device.allocate(data.nbytes)
    device.upload(address, data)
    back = np.zeros_like(data)
    device.download(address, back)
    assert back.tobytes() == data.tobytes()
    device.upload(address, np.zeros((0, 3), np.float32))
    scalar = np.array(3.5, np.float32)
    device.upload(address, scalar)


def test_a_launch_is_packed_once_and_issued_as_it_is(device: CudaDevice, driver: FakeDriver) -> None:
    prepared = device.prepare(step(scale(grid=(3, 2, 1), shared=64)), addresses)
    prepared.launch()
    prepared.launch()
    packed = struct.pack("<Qf4xQ", 0x1000, 2.0, 0x2000)
    assert driver.launches == [("scale", (3, 2, 1), (32, 1, 1), packed, 64, None, False)] * 2
    assert prepared.method == "stream events"


def test_code_is_compiled_and_loaded_once(device: CudaDevice, driver: FakeDriver) -> None:
    device.prepare_all([step(scale()), step(scale(block=(64, 1, 1)))])
    for _ in range(3):
        device.prepare(step(scale()), addresses)
    assert driver.calls.count("load") == 1


def test_many_sources_compile_before_the_first_launch(device: CudaDevice, driver: FakeDriver) -> None:
    sources = [SCALE.replace("a *", f"{index} + a *") for index in range(3)]
    steps = [step(scale(code=code(text))) for text in sources]
    device.prepare_all(steps)
    for one in steps:
        device.prepare(one, addresses)
    assert driver.calls.count("load") == 3


def test_templates_are_found_by_their_expression(device: CudaDevice, driver: FakeDriver) -> None:
    text = "template <class T, int N> __global__ void fill(T* x) { *x = N; }"
    work = scale(code=code(text, "fill<float, 3>"), args=(Pointer(0),))
    device.prepare(step(work), addresses).launch()
    assert driver.launches[0][0] == "_Z4fillIfLi3EEvPT_"


def test_a_source_of_many_kernels_is_compiled_once(device: CudaDevice, driver: FakeDriver) -> None:
    text = """extern "C" __global__ void a(int* x) { *x = 1; }
__global__ void b(int* x) { *x = 2; }
template <class T> __global__ void c(T* x) { *x = 3; }"""
    steps = [step(scale(code=code(text, entry), args=(Pointer(0),))) for entry in ("a", "b", "c<int>")]
    device.prepare_all(steps)
    for one in steps:
        device.prepare(one, addresses).launch()
    assert [launch[0] for launch in driver.launches] == ["a", "_Z1bPi", "_Z1cIiEvPT_"]
    assert driver.calls.count("load") == 1


def test_what_is_no_cubin_never_reaches_the_driver(device: CudaDevice, driver: FakeDriver) -> None:
    junk = KernelCode(None, b"junk", "cubin", "j.cubin", "k")
    with pytest.raises(CompileError, match=r"kernel k does not load: j\.cubin is no cubin"):
        device.prepare(step(scale(code=junk)), addresses)
    assert "load" not in driver.calls


def test_a_wrong_entry_names_what_is_there(device: CudaDevice) -> None:
    with pytest.raises(CompileError) as caught:
        device.prepare(step(scale(code=code(entry="scael"))), addresses)
    assert "did you mean 'scale'?" in str(caught.value.help)
    assert caught.value.exit == 5


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((Pointer(0), Value(bytes(4), 4)), "takes 3 arguments, the node gives 2"),
        ((Pointer(0), Value(bytes(8), 8), Pointer(1)), "argument 1 of kernel scale takes 4 bytes"),
        ((Pointer(0), Pointer(1), Pointer(1)), "gives an address of 8"),
    ],
)
def test_arguments_are_compared_with_the_kernels_parameters(
    device: CudaDevice, driver: FakeDriver, args: tuple[Any, ...], words: str
) -> None:
    with pytest.raises(GraphError, match=words) as caught:
        device.prepare(step(scale(args=args)), addresses)
    assert caught.value.exit == 3
    assert "launcher" not in driver.calls


def test_shared_memory_beyond_48_kib_is_asked_for(device: CudaDevice, driver: FakeDriver) -> None:
    for nbytes in (49_151, 49_152, 49_153, 232_448, 60_000):
        device.prepare(step(scale(shared=nbytes)), addresses)
    assert driver.shared_allowed == {"scale": 232_448}
    assert driver.calls.count("allow_shared") == 3
    with pytest.raises(GraphError, match=r"shared=232449 > 232448"):
        device.prepare(step(scale(shared=232_449)), addresses)


def test_static_and_dynamic_shared_memory_count_together(device: CudaDevice, driver: FakeDriver) -> None:
    driver.static_shared = 1_024
    device.prepare(step(scale(shared=48 * 1024)), addresses)
    assert driver.shared_allowed == {"scale": 48 * 1024}
    with pytest.raises(GraphError, match="1024 static = 232449 > 232448"):
        device.prepare(step(scale(shared=231_425)), addresses)


def test_limits_are_checked_before_a_launch(device: CudaDevice, driver: FakeDriver) -> None:
    with pytest.raises(GraphError, match=r"s: grid\[2\]=65536 > 65535 \(max_grid_dim_z\)"):
        device.prepare(step(scale(grid=(1, 1, 65_536))), addresses)


def test_a_kernel_compiled_for_small_blocks_is_not_launched_with_large_ones(
    device: CudaDevice, driver: FakeDriver
) -> None:
    driver.max_threads = 256
    with pytest.raises(GraphError, match="512 threads > 256 that kernel scale was compiled for"):
        device.prepare(step(scale(block=(512, 1, 1))), addresses)


def test_clears_and_copies_run_in_order_with_steps(device: CudaDevice, driver: FakeDriver) -> None:
    a, b = device.allocate(8), device.allocate(8)
    at = {0: a, 1: b}
    device.upload(a, np.arange(8, dtype=np.uint8))
    device.prepare(step(Copy(Pointer(1), Pointer(0), 8)), lambda p: at[p.buffer] + p.offset).launch()
    device.prepare(step(Clear(Pointer(1, 4), 4)), lambda p: at[p.buffer] + p.offset).launch()
    device.prepare(step(Clear(Pointer(1), 0)), lambda p: at[p.buffer] + p.offset).launch()
    back = np.empty(8, np.uint8)
    device.download(b, back)
    assert back.tolist() == [0, 1, 2, 3, 0, 0, 0, 0]


def test_a_host_function_runs_between_steps(device: CudaDevice) -> None:
    a, b = device.allocate(8), device.allocate(8)
    device.upload(a, np.array([3, 4], np.int32))

    def double(inputs: Any, outputs: Any) -> None:
        assert inputs[1] is None
        outputs[0][:] = 2 * inputs[0]

    refs = ArrayRef(Pointer(0), "int32", (2,)), ArrayRef(Pointer(1), "int32", (2,))
    prepared = device.prepare(step(HostCall(double, (refs[0], None), (refs[1],))), lambda p: (a, b)[p.buffer])
    prepared.launch()
    back = np.empty(2, np.int32)
    device.download(b, back)
    assert back.tolist() == [6, 8]
    assert prepared.method == "host clock"


def test_marks_measure_in_nanoseconds(device: CudaDevice) -> None:
    start, end = device.record(), device.record()
    assert device.elapsed_ns(start, end) == 1_000


def test_a_fault_names_the_only_step_that_ran(device: CudaDevice, driver: FakeDriver) -> None:
    prepared = device.prepare(step(scale(), "blur"), addresses)
    driver.fail("synchronize", ILLEGAL)
    prepared.launch()
    with pytest.raises(DeviceFault) as caught:
        device.synchronize()
    error = caught.value
    assert error.message == "blur: an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)"
    assert (error.code, error.exit, error.details["suspects"]) == ("KG601", 6, ["blur"])


def test_a_fault_after_several_steps_names_them_and_how_to_tell(device: CudaDevice, driver: FakeDriver) -> None:
    for name in ("a", "b"):
        device.prepare(step(scale(), name), addresses).launch()
    device.synchronize()
    for name in ("c", "d", "c"):
        device.prepare(step(scale(), name), addresses).launch()
    driver.fail("synchronize", ILLEGAL)
    with pytest.raises(DeviceFault) as caught:
        device.synchronize()
    assert "issued since the last wait: c, d" in caught.value.message
    assert "--sync-each" in str(caught.value.help)


def test_after_a_fault_nothing_is_touched_and_closing_is_silent(
    device: CudaDevice, driver: FakeDriver, capfd: pytest.CaptureFixture[str]
) -> None:
    address = device.allocate(16)
    device.prepare(step(scale()), addresses).launch()
    driver.fail("synchronize", ILLEGAL)
    with pytest.raises(DeviceFault):
        device.synchronize()
    calls = len(driver.calls)
    with pytest.raises(DeviceFault, match="lost after a fault"):
        device.allocate(1)
    device.free(address)
    device.close()
    device.close()
    assert len(driver.calls) == calls
    assert driver.closed is True
    assert capfd.readouterr() == ("", "")


def test_a_fault_nobody_waited_for_is_found_when_closing(device: CudaDevice, driver: FakeDriver) -> None:
    device.prepare(step(scale()), addresses).launch()
    driver.fail("synchronize", "cuStreamSynchronize failed: unspecified launch failure")
    device.close()
    assert driver.closed is True


def test_a_refused_launch_leaves_the_device_usable(device: CudaDevice, driver: FakeDriver) -> None:
    prepared = device.prepare(step(scale(), "big"), addresses)
    driver.fail("launch", "cuLaunchKernel failed: too many resources requested for launch")
    with pytest.raises(DeviceFault, match="launching big: too many resources") as caught:
        prepared.launch()
    assert caught.value.details["cuda_code"] == 701
    prepared.launch()
    device.synchronize()
    device.close()
    assert driver.closed is False


def run_everything(device: CudaDevice) -> None:
    address = device.allocate(64)
    try:
        device.fill(address, 0, 64)
        device.upload(address, np.zeros(16, np.float32))
        prepared = device.prepare(step(scale(shared=50_000)), addresses)
        start = device.record()
        prepared.launch()
        device.elapsed_ns(start, device.record())
        device.synchronize()
        device.download(address, np.empty(16, np.float32))
    finally:
        device.free(address)


CALLS = [
    "alloc",
    "fill",
    "copy_in",
    "load",
    "function",
    "allow_shared",
    "launcher",
    "record",
    "launch",
    "elapsed",
    "synchronize",
    "copy_out",
    "free",
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "message", [f"{{}} failed: {text}" for text in ("invalid argument", "out of memory")] + [ILLEGAL]
)
def test_every_failing_call_ends_as_a_kgrun_error_and_leaks_nothing(
    driver: FakeDriver, device: CudaDevice, call: str, message: str
) -> None:
    driver.fail(call, message.format(call))
    if call == "free":  # found while releasing: nothing is left to report
        run_everything(device)
    else:
        with pytest.raises(KgrunError) as caught:
            run_everything(device)
        assert caught.value.exit in (4, 5, 6)
    assert driver.calls.count(call) >= 1
    device.close()
    assert driver.closed == ("illegal" in message or call == "free")
    assert driver.memory_of == {}


def test_the_happy_road_frees_and_closes(driver: FakeDriver, device: CudaDevice) -> None:
    run_everything(device)
    assert driver.held == 0
    device.close()
    assert driver.closed is False
    with pytest.raises(DeviceFault, match="is closed"):
        device.allocate(1)


@pytest.mark.parametrize("nbytes", [64, 9 << 20])
def test_S74_copies_to_the_host_come_after_all_work_and_end_before_they_return(nbytes: int) -> None:
    driver = FakeDriver(facts=FakeDriver().facts.__class__("f", "sm_90", 1 << 30, 232_448, (13, 0)))
    device = CudaDevice(driver=driver)
    address = device.allocate(nbytes)
    for copy in (device.upload, device.download):
        driver.calls.clear()
        copy(address, np.zeros(nbytes, np.uint8))
        last = max(i for i, call in enumerate(driver.calls) if call.startswith("copy"))
        assert {"synchronize", "wait"} & set(driver.calls[last:])  # on the one stream of all steps


def test_a_limit_counts_what_the_device_hands_out(device: CudaDevice, driver: FakeDriver) -> None:
    first = device.allocate(1_000)
    device.limit_memory(5_000)  # beyond what is held
    second = device.allocate(3_000)
    assert device.free_memory() == (2_000, 6_000)
    asked = driver.calls.count("alloc")
    with pytest.raises(DoesNotFit, match="2,001 bytes planned, 2,000 of 6,000 free under the memory limit") as caught:
        device.allocate(2_001)
    assert caught.value.code == "KG410"
    assert driver.calls.count("alloc") == asked  # the driver is not even asked
    device.free(first)
    device.free(second)
    device.allocate(6_000)
    device.limit_memory(None)
    device.allocate(6_000)
    assert device.free_memory()[1] == driver.facts.total_memory
