"""Sensors of a GPU through a stand-in for NVIDIA's management library."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kgrun.runtime.devices import cuda_nvml
from kgrun.runtime.devices.cuda_nvml import open_sensors
from kgrun.runtime.report import GpuState

GPU, NOT_SUPPORTED = 0x7F00_1234_5678, 3


def answering(number: int) -> Callable[..., int]:
    """A function that fills in this number for the GPU."""

    def call(handle: Any, *more: Any) -> int:
        assert handle.value == GPU
        more[-1]._obj.value = number
        return 0

    return call


def clock(handle: Any, which: int, answer: Any) -> int:
    return answering({1: 1_980, 2: 3_201}[which])(handle, answer)


def refuse(*_: Any) -> int:
    return NOT_SUPPORTED


def library(**changes: Any) -> Any:
    """A library of one GPU at 0000:01:00.0, running at 1,980 MHz with the power cap active."""
    calls: list[str] = []

    def handle(bus: bytes, found: Any) -> int:
        found._obj.value = GPU
        return 0 if bus == b"0000:01:00.0" else NOT_SUPPORTED

    parts: dict[str, Any] = {
        "nvmlInit_v2": lambda: calls.append("init") or 0,
        "nvmlShutdown": lambda: calls.append("shutdown") or 0,
        "nvmlDeviceGetHandleByPciBusId_v2": handle,
        "nvmlDeviceGetClockInfo": clock,
        "nvmlDeviceGetMaxClockInfo": clock,
        "nvmlDeviceGetTemperature": answering(41),
        "nvmlDeviceGetPowerUsage": answering(312_000),
        "nvmlDeviceGetCurrentClocksEventReasons": answering(0x1 | 0x4 | 0x40),
        "calls": calls,
    }
    return SimpleNamespace(**(parts | changes))


def test_a_reading_names_what_holds_the_clocks_down_and_leaves_out_idleness() -> None:
    sensors = open_sensors("0000:01:00.0", library())
    assert sensors is not None
    expected = GpuState(1_980, 3_201, 1_980, 41, 312_000, ("power cap", "hardware thermal slowdown"))
    assert sensors.read() == expected


def test_what_the_gpu_does_not_tell_is_none() -> None:
    nvml = library(nvmlDeviceGetClockInfo=refuse, nvmlDeviceGetCurrentClocksEventReasons=refuse)
    sensors = open_sensors("0000:01:00.0", nvml)
    assert sensors is not None
    assert sensors.read() == GpuState(None, None, 1_980, 41, 312_000, ())


def test_older_libraries_know_the_reasons_by_their_old_name() -> None:
    nvml = library(nvmlDeviceGetCurrentClocksThrottleReasons=answering(0x80))
    del nvml.nvmlDeviceGetCurrentClocksEventReasons
    sensors = open_sensors("0000:01:00.0", nvml)
    assert sensors is not None
    assert sensors.read().throttle == ("power brake",)


@pytest.mark.parametrize("changes", [{"nvmlInit_v2": refuse}, {"nvmlDeviceGetHandleByPciBusId_v2": refuse}])
def test_no_sensors_where_the_library_does_not_open_the_gpu(changes: dict[str, Any]) -> None:
    assert open_sensors("0000:01:00.0", library(**changes)) is None


def test_no_sensors_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(cuda_nvml.ctypes, "CDLL", missing)
    assert open_sensors("0000:01:00.0") is None


def test_only_readings_are_asked_for() -> None:
    nvml = library()
    sensors = open_sensors("0000:01:00.0", nvml)
    assert sensors is not None
    sensors.read()
    sensors.close()
    assert nvml.calls == ["init", "shutdown"]
