"""What the GPU's own sensors say: clocks, temperature, power, and what holds the clocks down. Reads only, sets nothing.

NVIDIA's management library, which comes with the driver: seven of its functions, all of which fill in one number.
Without it there are no readings.
"""

from __future__ import annotations

import ctypes
from typing import Any

from kgrun.runtime.report import GpuState

# nvml.h: nvmlClockType_t, nvmlTemperatureSensors_t.
_SM, _MEMORY = 1, 2
_GPU = 0
# Bits of nvmlDeviceGetCurrentClocksEventReasons; those in _HARMLESS say nothing of a measurement.
_REASONS = {
    0x1: "idle",
    0x2: "applications clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clocks",
}
_HARMLESS = 0x1 | 0x2 | 0x10 | 0x100
_NAMES_OF_REASONS = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"  # new, old


class GpuSensors:
    """Readings of one GPU. Every reading is optional: what the GPU does not tell is None."""

    def __init__(self, nvml: Any, handle: ctypes.c_void_p) -> None:
        self._nvml, self._handle = nvml, handle

    def read(self) -> GpuState:
        """The state now."""
        bits = next((found for name in _NAMES_OF_REASONS if (found := self._ask(name, wide=True)) is not None), 0)
        return GpuState(
            sm_mhz=self._ask("nvmlDeviceGetClockInfo", _SM),
            memory_mhz=self._ask("nvmlDeviceGetClockInfo", _MEMORY),
            max_sm_mhz=self._ask("nvmlDeviceGetMaxClockInfo", _SM),
            temperature_c=self._ask("nvmlDeviceGetTemperature", _GPU),
            power_mw=self._ask("nvmlDeviceGetPowerUsage"),
            throttle=tuple(name for bit, name in _REASONS.items() if bits & bit & ~_HARMLESS),
        )

    def close(self) -> None:
        """Let go of the library."""
        self._nvml.nvmlShutdown()

    def _ask(self, name: str, *which: int, wide: bool = False) -> int | None:
        answer = ctypes.c_ulonglong() if wide else ctypes.c_uint()
        call = getattr(self._nvml, name, None)
        refused = call is None or call(self._handle, *which, ctypes.byref(answer))
        return None if refused else answer.value


def open_sensors(pci_bus_id: str, nvml: Any = None) -> GpuSensors | None:
    """Sensors of the GPU at that bus address; None where they cannot be read. `nvml` stands in for the library."""
    if nvml is None:
        nvml = _library()
    if nvml is None or nvml.nvmlInit_v2():
        return None
    handle = ctypes.c_void_p()
    if nvml.nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id.encode(), ctypes.byref(handle)):
        nvml.nvmlShutdown()
        return None
    return GpuSensors(nvml, handle)


def _library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
