"""True times of short and long kernels: each step repeated in a CUDA graph, and what a launch adds taken off.

An event pair around a launch says 7 to 10 µs of a kernel that takes one. A graph of K copies of the step, timed whole,
takes c + K · t, where c is what any graph costs before its first node; c and the time of an empty kernel are measured
once a device. t counts a step from the end of the one before it, so consecutive launches overlap as they do in a run;
the launch ramp hidden by that overlap is about an empty kernel's time and belongs to the step when it is looked at
alone, so it is added. `benchmarks/timing_methods.py` compares this with events, CUPTI and ncu.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kgrun.runtime.devices.base import StepTimes

METHOD = "graph of repeats"

# A graph of repeats is long enough when timing it is coarse by less than a percent.
_WANTED_NS = 200_000
_MOST_REPEATS = 256
_LEAST_REPEATS = 4
_CALIBRATION_RUNS = 15


class GraphTimer(Protocol):
    """What the timing needs of a device: capture calls in a row, and time one replay."""

    def chain(self, calls: Sequence[Callable[[], Any]]) -> Any:
        """A replay of the calls, one after the other."""
        ...

    def timed(self, replay: Any) -> int:
        """Nanoseconds of one replay, by events around it."""
        ...


@dataclass(frozen=True, slots=True)
class LaunchCosts:
    """Nanoseconds: `graph` before the first node of any graph, `empty` of one empty kernel among others."""

    graph: int
    empty: int


def launch_costs(timer: GraphTimer, empty: Callable[[], Any]) -> LaunchCosts:
    """Measure what launching costs, with a kernel that does nothing."""
    few, many = 16, 256
    a = _median_replay(timer, [empty] * few, _CALIBRATION_RUNS)
    b = _median_replay(timer, [empty] * many, _CALIBRATION_RUNS)
    each = max((b - a) // (many - few), 0)
    return LaunchCosts(max(a - few * each, 0), each)


def time_steps(timer: GraphTimer, calls: Sequence[Callable[[], Any]], runs: int, costs: LaunchCosts) -> StepTimes:
    """Samples of each step, `runs` of them; every step runs many times in a row."""
    samples = []
    for call in calls:
        once = max(_median_replay(timer, [call], 2) - costs.graph, 1)
        repeats = max(_LEAST_REPEATS, min(_MOST_REPEATS, _WANTED_NS // once))
        replay = timer.chain([call] * repeats)
        try:
            timer.timed(replay)  # warm caches and clocks
            times = [timer.timed(replay) for _ in range(runs)]
        finally:
            replay.close()
        samples.append([max((t - costs.graph) // repeats + costs.empty, 0) for t in times])
    return StepTimes(samples, [METHOD] * len(samples), 2 * costs.empty)


def _median_replay(timer: GraphTimer, calls: Sequence[Callable[[], Any]], runs: int) -> int:
    replay = timer.chain(calls)
    try:
        timer.timed(replay)
        times = sorted(timer.timed(replay) for _ in range(runs))
    finally:
        replay.close()
    return times[len(times) // 2]
