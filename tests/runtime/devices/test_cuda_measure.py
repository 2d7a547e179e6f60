"""The CUDA device's timing, lean loop, cache flush and roofline over a fake driver."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kgrun.graphs.errors import DeviceFault
from kgrun.runtime.devices import cuda_measure
from kgrun.runtime.devices.base import Timing
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.devices.cuda_roofline import measured_roofline
from kgrun.runtime.program import Clear, HostCall, KernelCode, Launch, Pointer, Step, Value
from kgrun.runtime.report import Roofline
from tests.runtime.devices.fake_cuda_driver import FACTS, ILLEGAL, FakeDriver

pytest.importorskip("cuda.bindings")

ADD = 'extern "C" __global__ void add(float* x, float a) { x[threadIdx.x] += a; }'
SCRATCH = 2 * 4096


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    monkeypatch.setattr(cuda_measure, "_LEAST_CACHE", SCRATCH // 2)
    return FakeDriver()


def launches(device: CudaDevice, *names: str) -> list[Any]:
    code = KernelCode(ADD, None, "cuda", "add.cu", "add", kernel="add")
    work = Launch(code, (Pointer(0), Value(struct.pack("<f", 2.0), 4)), (1, 1, 1), (32, 1, 1))
    at = device.allocate(512)
    return [device.prepare(Step(i, name, 0, "add", "compute", work, (0,), (0,)), lambda _: at)
            for i, name in enumerate(names)]  # fmt: skip


def test_the_lean_loop_issues_every_step_in_order_and_nothing_else(device: CudaDevice, driver: FakeDriver) -> None:
    steps = launches(device, "a", "b", "c")
    loop = device.issue_loop(steps)
    driver.calls.clear()
    loop()
    assert driver.calls == ["launch"] * 3


def test_the_lean_loop_names_the_step_that_failed(device: CudaDevice, driver: FakeDriver) -> None:
    loop = device.issue_loop(launches(device, "a", "b", "c"))
    driver.fail("launch", "cuLaunchKernel failed: invalid argument", skip=1)
    with pytest.raises(DeviceFault, match="launching b") as refused:
        loop()
    assert refused.value.details["suspects"] == ["b"]
    driver.fail("synchronize", ILLEGAL)
    loop()
    with pytest.raises(DeviceFault) as caught:
        device.synchronize()
    assert caught.value.details["suspects"] == ["a", "b", "c"]


def test_every_step_is_timed_in_graphs_that_are_closed(device: CudaDevice, driver: FakeDriver) -> None:
    made: list[Any] = []
    capture = driver.capture
    driver.capture = lambda *given: made.append(capture(*given)) or made[-1]  # type: ignore[method-assign]
    found = device.time_steps(launches(device, "a", "b"), 6)
    assert found is not None
    assert [len(times) for times in found.samples] == [6, 6]
    assert found.methods == ["graph of repeats"] * 2
    assert made
    assert all(replay.closed for replay in made)


def test_events_are_left_to_whoever_marks_steps(device: CudaDevice) -> None:
    assert device.time_steps(launches(device, "a"), 3, Timing("events")) is None
    assert device.marks_floor() == 1_000  # two marks of the fake clock


def test_what_is_timed_does_not_wait_for_the_host(device: CudaDevice, driver: FakeDriver) -> None:
    timing = device._timing_of()
    replay = timing.chain([])
    timing.timed(replay)
    driver.calls.clear()
    timing.timed(replay)
    assert driver.calls == ["launch", "record", "record", "elapsed"]  # a kernel that turns for a moment comes first


def test_a_step_on_the_host_runs_once_and_has_no_samples(device: CudaDevice) -> None:
    ran: list[int] = []
    host = Step(1, "host", 1, "op", "compute", HostCall(lambda *_: ran.append(1), (), ()), (), ())
    steps = [*launches(device, "a"), device.prepare(host, lambda _: 0)]
    found = device.time_steps(steps, 4)
    assert found is not None
    assert [bool(times) for times in found.samples] == [True, False]
    assert len(ran) == 1


def test_without_cupti_graphs_are_used_and_the_reason_is_told(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cupti", None)
    found = device.time_steps(launches(device, "a"), 3, Timing("cupti"))
    assert found is not None
    assert found.methods == ["graph of repeats"]
    assert len(found.notes) == 1
    assert "cupti-python" in found.notes[0]


def test_cold_times_empty_the_cache_before_each_repeat(device: CudaDevice, driver: FakeDriver) -> None:
    steps = launches(device, "a")
    held = device.memory_in_use()
    driver.calls.clear()
    found = device.time_steps(steps, 3, Timing(cold=True))
    assert found is not None
    assert [call for call in driver.calls if call in ("fill", "launch")][-40:] == ["fill", "launch"] * 20
    assert max(array.nbytes for array in driver.memory_of.values()) == SCRATCH
    assert device.memory_in_use() == held  # not the graph's memory
    assert device.flush_cache() is True


def test_what_is_cleared_for_a_step_is_cleared_before_each_repeat(device: CudaDevice, driver: FakeDriver) -> None:
    at = device.allocate(64)
    clear = device.prepare(Step(0, "n.clear", 0, "add", "compute", Clear(Pointer(0), 64), (), (0,)), lambda _: at)
    found = device.time_steps([clear, *launches(device, "a")], 3, Timing(again={1: (0,)}))
    assert found is not None
    launched = [call for call in driver.calls if call in ("fill", "launch")]
    assert "fill launch " * 20 in " ".join(launched)


def test_the_roofline_is_measured_once_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KGRUN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("kgrun.runtime.devices.cuda_roofline._COPY_BYTES", 1 << 12)
    device = CudaDevice(driver=FakeDriver(replace(FACTS, total_memory=1 << 20)))
    monkeypatch.setattr(device, "time_steps", lambda *_: __import__("types").SimpleNamespace(samples=[[2_000] * 5]))
    found = measured_roofline(device)
    assert found is not None
    assert found.bytes_per_s == 2 * (1 << 12) * 10**9 // 2_000
    assert found.flops_per_s > 0
    assert device.memory_in_use() == 0
    (file,) = (tmp_path / "rooflines").iterdir()
    file.write_text(json.dumps({"bytes_per_s": 5, "flops_per_s": 7}), encoding="utf-8")
    assert measured_roofline(device) == Roofline(5, 7)
    for damaged in ("{}", '{"bytes_per_s": Infinity, "flops_per_s": 7}', "[" * 100_000):
        file.write_text(damaged, encoding="utf-8")
        assert measured_roofline(device) == found
    assert list((tmp_path / "rooflines").iterdir()) == [file]


def test_no_roofline_where_there_is_no_room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KGRUN_CACHE_DIR", str(tmp_path))
    device = CudaDevice(driver=FakeDriver())
    assert measured_roofline(device) is None
    assert not (tmp_path / "rooflines").exists()
