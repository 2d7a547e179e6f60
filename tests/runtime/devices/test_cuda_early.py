"""The context is opened on a thread where there is a driver, and nothing happens elsewhere."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from kgrun.runtime.devices.cuda_early import open_context_early


class Driver:
    """Counts calls of the driver's library; `devices` are there."""

    def __init__(self, devices: int) -> None:
        self.devices, self.retained, self.sensors = devices, 0, 0

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGet(self, handle: Any, ordinal: int) -> int:
        return 0 if ordinal < self.devices else 101

    def cuDevicePrimaryCtxRetain(self, context: Any, handle: Any) -> int:
        self.retained += 1
        return 0

    def cuDeviceGetPCIBusId(self, bus: Any, size: int, handle: Any) -> int:
        bus.value = b"0000:07:00.0"
        return 0

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus: Any, found: Any) -> int:
        self.sensors += bus == b"0000:07:00.0"
        return 0


@pytest.mark.parametrize(("device", "retained"), [("auto", 1), ("cuda", 1), ("cuda:1", 1), ("cuda:2", 0)])
def test_one_context_of_the_device_asked_for(monkeypatch: pytest.MonkeyPatch, device: str, retained: int) -> None:
    driver = Driver(2)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    thread = open_context_early(device)
    assert thread is not None
    thread.join(10)
    assert driver.retained == retained
    assert driver.sensors == retained  # looked up at the GPU's address on the bus


@pytest.mark.parametrize("device", ["cpu", "cuda:x"])
def test_nothing_for_the_cpu_or_a_device_that_is_none(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(1))
    assert open_context_early(device) is None


def test_nothing_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert open_context_early("auto") is None
