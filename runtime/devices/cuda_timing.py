"""True times of short and long kernels: each step repeated in a CUDA graph, and what a launch adds taken off.

An event pair around a launch says 7 to 10 µs of a kernel that takes one. A graph of K copies of the step, timed whole,
takes c + K · t, where c is what any graph costs before its first node; c and the time of an empty kernel are measured
once a device. t counts a step from the end of the one before it, so consecutive launches overlap as they do in a run;
the part of the launch that is hidden by that overlap belongs to the step when it is looked at alone, so half an empty
kernel's time is added. `benchmarks/timing_methods.py` compares this with events, CUPTI and ncu.

What a run takes before its first step is a matter of its own steps too, whose code and arguments are to be had first.
So it is what a graph of the whole run takes more than the run does among many of itself. That graph is the very one
that runs, where its steps follow each other: the same launches captured again may start a tenth of a microsecond
sooner or later, for as long as they live.

What has to come before each repeat (emptying the cache, clearing what the step adds to) is part of the graph, and the
time of a graph of that alone is taken off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kgrun.graphs.records import dataclass
from kgrun.runtime.devices.base import StepTimes, Timing

METHOD = "graph of repeats"

# A graph of repeats is long enough when timing it is coarse by less than a percent; of many steps each gets less.
_WANTED_NS = 200_000
_WANTED_NS_OF_MANY = 50_000
_MANY = 64
_MOST_REPEATS = 256
_LEAST_REPEATS = 4
_LEAST_REPEATS_AFTER_LEAD = 8  # what comes before is taken off: its noise must not weigh
_LONG_NS = 5_000_000  # so long a step needs no repeats in a graph
_MOST_NS = 500_000_000  # for one step, as long as it has a few runs
_FEWEST_RUNS = 3
_LEAST_RUNS = 5
_RUNS_OF_ONE = 4  # times as many: all of their error is in what comes before the first step
_MOST_NODES = 4_096
_RUNS_OF_ALL = 2_000
_CALIBRATION_RUNS = 15

Call = Callable[[], Any]


class GraphTimer(Protocol):
    """What the timing needs of a device: capture calls in a row, and time one replay."""

    def chain(self, calls: Sequence[Call]) -> Any:
        """A replay of the calls, one after the other."""
        ...

    def timed(self, replay: Any) -> int:
        """Nanoseconds of one replay, by events around it; the host has issued both before the first is reached."""
        ...


@dataclass(frozen=True, slots=True)
class LaunchCosts:
    """Nanoseconds: `graph` before the first node of any graph, `empty` of one empty kernel among others."""

    graph: int
    empty: int

    @property
    def ramp(self) -> int:
        """What the kernel before hides of a launch: half an empty kernel, which lies inside what ncu adds."""
        return self.empty // 2


def launch_costs(timer: GraphTimer, empty: Call) -> LaunchCosts:
    """Measure what launching costs, with a kernel that does nothing."""
    few, many = 16, 256
    a = _median_replay(timer, [empty] * few, _CALIBRATION_RUNS)
    b = _median_replay(timer, [empty] * many, _CALIBRATION_RUNS)
    each = max((b - a) // (many - few), 0)
    return LaunchCosts(max(a - few * each, 0), each)


def time_steps(
    timer: GraphTimer,
    calls: Sequence[Call],
    runs: int,
    costs: LaunchCosts,
    timing: Timing = Timing(),  # noqa: B008 - frozen
    flush: Call | None = None,
    on_host: frozenset[int] = frozenset(),
) -> StepTimes:
    """Samples of each step, at most `runs` of them; a step runs many times in a row.

    Args:
        calls: one a step; in the end all have run in order.
        flush: empties the cache; used where `timing` asks for it.
        on_host: steps that cannot be captured. They and those of `timing.once` run once and get no samples.
    """
    wanted = _WANTED_NS if len(calls) <= _MANY else _WANTED_NS_OF_MANY
    runs = max(min(runs, max(_LEAST_RUNS, _RUNS_OF_ALL // max(len(calls), 1))), 1)
    samples: list[list[int]] = []
    for index, call in enumerate(calls):
        if index in on_host or index in timing.once:
            call()
            samples.append([])
            continue
        lead = ([flush] if timing.cold and flush is not None else []) + [calls[i] for i in timing.again.get(index, ())]
        samples.append(_sample(timer, call, lead, runs, wanted, costs))
    methods = [METHOD if times else "" for times in samples]
    alike = bool(calls) and not (timing.cold or timing.once or on_host)
    once = sum(sorted(times)[len(times) // 2] for times in samples if times)
    run_ns, start_ns = _in_a_row(timer, calls, once, costs, timing.whole) if alike else (0, costs.graph)
    return StepTimes(samples, methods, costs.empty + costs.ramp, costs.ramp, start_ns, run_ns)


def _in_a_row(timer: GraphTimer, calls: Sequence[Call], once: int, costs: LaunchCosts, whole: Any) -> tuple[int, int]:
    """Nanoseconds of all calls in a row, and before the first of them, from replays of many such rows and of one.

    Cache and code are as a run finds them. A long run is its own row: what comes before it does not matter.

    Args:
        once: about what a row takes.
        whole: a replay of one row; None captures one.
    """
    if once > _LONG_NS or len(calls) * _LEAST_REPEATS > _MOST_NODES:
        return max(_median_replay(timer, calls, _FEWEST_RUNS) - costs.graph, 0), costs.graph
    many = max(min(_WANTED_NS // max(once, 1), _MOST_REPEATS, _MOST_NODES // len(calls)), _LEAST_REPEATS)
    runs = min(_CALIBRATION_RUNS, max(_FEWEST_RUNS, _MOST_NS // max(once * many, 1)))
    many_ns = _median_replay(timer, list(calls) * many, runs)
    runs *= _RUNS_OF_ONE
    one_ns = _median_replay(timer, calls, runs) if whole is None else _median_time(timer, whole, runs)
    each = max(many_ns - one_ns, 0) / (many - 1)
    return round(each), max(round(one_ns - each), 0)


def _sample(
    timer: GraphTimer, call: Call, lead: Sequence[Call], runs: int, wanted: int, costs: LaunchCosts
) -> list[int]:
    """Nanoseconds of `call`, `runs` times or fewer where it is long, each with `lead` right before it."""
    unit = [*lead, call]
    once = max(_median_replay(timer, unit, 2) - costs.graph, 1)
    least = 1 if once > _LONG_NS else _LEAST_REPEATS_AFTER_LEAD if lead else _LEAST_REPEATS
    repeats = max(least, min(_MOST_REPEATS, wanted // once))
    runs = min(runs, max(_FEWEST_RUNS, _MOST_NS // (once * repeats)))
    base = _median_replay(timer, list(lead) * repeats, _LEAST_RUNS) if lead else costs.graph
    replay = timer.chain(unit * repeats)
    try:
        timer.timed(replay)  # warm caches and clocks
        times = [timer.timed(replay) for _ in range(runs)]
    finally:
        replay.close()
    return [max((t - base) // repeats + costs.ramp, 0) for t in times]


def _median_replay(timer: GraphTimer, calls: Sequence[Call], runs: int) -> int:
    replay = timer.chain(calls)
    try:
        return _median_time(timer, replay, runs)
    finally:
        replay.close()


def _median_time(timer: GraphTimer, replay: Any, runs: int) -> int:
    timer.timed(replay)
    return sorted(timer.timed(replay) for _ in range(runs))[runs // 2]
