"""What the GPU's own sensors say: clocks, temperature, power, and what holds the clocks down. Reads only, sets nothing.

NVIDIA's management library through the package `nvidia-ml-py`; without either there are no readings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kgrun.runtime.report import GpuState

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


class GpuSensors:
    """Readings of one GPU. Every reading is optional: what the GPU does not tell is None."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    def read(self) -> GpuState:
        """The state now."""
        nvml, handle = self._nvml, self._handle
        bits = self._ask(self._reasons_call(), handle) or 0
        return GpuState(
            sm_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            memory_mhz=self._ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
            max_sm_mhz=self._ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM),
            temperature_c=self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            power_mw=self._ask(nvml.nvmlDeviceGetPowerUsage, handle),
            throttle=tuple(name for bit, name in _REASONS.items() if bits & bit & ~_HARMLESS),
        )

    def close(self) -> None:
        """Let go of the library."""
        self._ask(self._nvml.nvmlShutdown)

    def _reasons_call(self) -> Callable[..., Any]:
        new = getattr(self._nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        call: Callable[..., Any] = new or self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        return call

    def _ask(self, call: Callable[..., Any], *arguments: Any) -> int | None:
        try:
            answer = call(*arguments)
        except self._nvml.NVMLError:
            return None
        return None if answer is None else int(answer)


def open_sensors(pci_bus_id: str, nvml: Any = None) -> GpuSensors | None:
    """Sensors of the GPU at that bus address; None where they cannot be read. `nvml` stands in for the package."""
    if nvml is None:
        nvml = _library()
    if nvml is None:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        return GpuSensors(nvml, nvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id))
    except nvml.NVMLError:
        nvml.nvmlShutdown()
        return None


def _library() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml
