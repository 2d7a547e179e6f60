"""Sensors of a GPU through a stand-in for NVIDIA's management library."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kgrun.runtime.devices.cuda_nvml import open_sensors
from kgrun.runtime.report import GpuState


class NVMLError(Exception):
    """Stands for `pynvml.NVMLError`."""


def library(**changes: Any) -> Any:
    """A library of one GPU at 0000:01:00.0, running at 1,980 MHz with the power cap active."""
    calls: list[str] = []

    def handle(bus: str) -> str:
        if bus != "0000:01:00.0":
            raise NVMLError("not found")
        return "gpu"

    def clock(_handle: str, which: int) -> int:
        return {1: 1_980, 2: 3_201}[which]

    parts: dict[str, Any] = {
        "NVMLError": NVMLError,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": lambda: calls.append("init"),
        "nvmlShutdown": lambda: calls.append("shutdown"),
        "nvmlDeviceGetHandleByPciBusId": handle,
        "nvmlDeviceGetClockInfo": clock,
        "nvmlDeviceGetMaxClockInfo": clock,
        "nvmlDeviceGetTemperature": lambda _handle, _sensor: 41,
        "nvmlDeviceGetPowerUsage": lambda _handle: 312_000,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda _handle: 0x1 | 0x4 | 0x40,
        "calls": calls,
    }
    return SimpleNamespace(**(parts | changes))


def refuse(*_: Any) -> Any:
    raise NVMLError("not supported")


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


def test_older_packages_know_the_reasons_by_their_old_name() -> None:
    nvml = library(nvmlDeviceGetCurrentClocksThrottleReasons=lambda _handle: 0x80)
    del nvml.nvmlDeviceGetCurrentClocksEventReasons
    sensors = open_sensors("0000:01:00.0", nvml)
    assert sensors is not None
    assert sensors.read().throttle == ("power brake",)


@pytest.mark.parametrize("changes", [{"nvmlInit": refuse}, {"nvmlDeviceGetHandleByPciBusId": refuse}])
def test_no_sensors_without_library_or_gpu(changes: dict[str, Any]) -> None:
    assert open_sensors("0000:01:00.0", library(**changes)) is None


def test_only_readings_are_asked_for() -> None:
    nvml = library()
    sensors = open_sensors("0000:01:00.0", nvml)
    assert sensors is not None
    sensors.read()
    sensors.close()
    assert nvml.calls == ["init", "shutdown"]
