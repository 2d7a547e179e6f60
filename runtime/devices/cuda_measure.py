"""How the CUDA device times its steps: which method for which step, and an emptied cache where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kgrun.runtime.devices.base import PreparedStep, Replay, StepTimes, Timing
from kgrun.runtime.devices.cuda_cupti import Unavailable, kernel_times
from kgrun.runtime.devices.cuda_steps import ON_HOST, DeviceReplay, Prepared
from kgrun.runtime.devices.cuda_timing import LaunchCosts, launch_costs, time_steps
from kgrun.runtime.program import KernelCode

if TYPE_CHECKING:
    from kgrun.runtime.devices.cuda import CudaDevice

_SOURCE = """
extern "C" __global__ void empty() {}
extern "C" __global__ void hold(long long cycles) { for (long long start = clock64(); clock64() - start < cycles;); }
"""
_HOLD_CYCLES = 40_000  # about 20 µs: longer than the host takes to issue two marks and a replay
_LEAST_CACHE = 32 << 20  # where the driver does not say how large the cache is
_FLOOR_RUNS = 15


class CudaTiming:
    """Measures steps on one device; what it finds out about the device it remembers."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._costs: LaunchCosts | None = None
        self._marks_floor: int | None = None
        self._scratch: int | None = None
        self._empty: Callable[[], Any] | None = None
        self._hold: Callable[[], Any] | None = None

    # What cuda_timing.GraphTimer asks for

    def chain(self, calls: Sequence[Callable[[], Any]]) -> DeviceReplay:
        """A replay in which each call waits for the one before it: calls on one stream do, when they are captured."""

        def issue() -> None:
            for call in calls:
                call()

        device = self._device
        replay: Replay = device._guard("capturing a step", device.driver.capture, [issue], [[]])
        return DeviceReplay(device, replay, [])

    def timed(self, replay: DeviceReplay) -> int:
        """Nanoseconds of one replay, none of them spent waiting for the host."""
        self.hold()
        start = self._device.record()
        replay.launch()
        return self._device.elapsed_ns(start, self._device.record())

    # What the device asks for

    def time_steps(self, prepared: Sequence[PreparedStep], runs: int, timing: Timing) -> StepTimes | None:
        """As `Device.time_steps`."""
        steps = [step for step in prepared if isinstance(step, Prepared)]
        if timing.method == "events" or len(steps) != len(prepared):
            return None
        calls = [step.raw for step in steps]
        if self._costs is None:
            self._costs = launch_costs(self, self._empty_call())
        if timing.cold:
            self._make_scratch()
        notes = []
        if timing.method == "cupti":
            try:
                return self._by_cupti(steps, runs, timing.cold)
            except Unavailable as reason:
                notes.append(f"no times by CUPTI: {reason}; graphs of repeats are used")
        on_host = frozenset(i for i, step in enumerate(steps) if step.method == ON_HOST)
        found = time_steps(self, calls, runs, self._costs, timing, self._flush, on_host)
        return replace(found, notes=notes)

    def marks_floor(self) -> int:
        """What an event pair says of an empty kernel."""
        if self._marks_floor is None:
            empty, device = self._empty_call(), self._device
            times = []
            for _ in range(_FLOOR_RUNS):
                start = device.record()
                empty()
                times.append(device.elapsed_ns(start, device.record()))
            self._marks_floor = sorted(times)[_FLOOR_RUNS // 2]
        return self._marks_floor

    def hold(self) -> None:
        """A kernel that turns for a moment, while the host issues what is to come after it."""
        if self._hold is None:
            self._hold = self._launcher("hold", _HOLD_CYCLES.to_bytes(8, "little"))
        self._device._guard("holding the device", self._hold)

    def flush_cache(self) -> None:
        """Write more than the cache holds, in order with steps."""
        self._make_scratch()
        self._device._guard("emptying the cache", self._flush)

    def _by_cupti(self, steps: Sequence[Prepared], runs: int, cold: bool) -> StepTimes:
        for step in steps:
            if step.method == ON_HOST:
                raise Unavailable(f"{step.name} runs on the host")
        calls = [step.raw for step in steps]
        flush = self._flush if cold else None
        samples, floor = kernel_times(self, calls, runs, self._empty_call(), flush, self._device.synchronize)
        costs = self._costs
        assert costs is not None
        methods = ["CUPTI" if times else "" for times in samples]
        return StepTimes(samples, methods, floor, max(floor - costs.empty, 0), costs.graph)

    def _empty_call(self) -> Callable[[], Any]:
        if self._empty is None:
            self._empty = self._launcher("empty")
        return self._empty

    def _launcher(self, entry: str, packed: bytes = b"") -> Callable[[], Any]:
        device, code = self._device, KernelCode(_SOURCE, None, "cuda", "kgrun:timing.cu", entry)
        function = device._guard("loading a kernel", device.code.kernel, code).function
        return device.driver.launcher(function, (1, 1, 1), (32, 1, 1), packed, 0, None, False)

    @property
    def _scratch_bytes(self) -> int:
        return 2 * max(self._device.driver.facts.l2_bytes, _LEAST_CACHE)

    def _make_scratch(self) -> None:
        # Straight from the driver, so that it does not count as the graph's memory.
        if self._scratch is None:
            device = self._device
            self._scratch = device._guard("making room to empty the cache", device.driver.alloc, self._scratch_bytes)

    def _flush(self) -> None:
        if self._scratch is not None:
            self._device.driver.fill(self._scratch, 0, self._scratch_bytes)
