"""Timing in graphs of repeats, on a timer that knows the true times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from kgrun.runtime.devices.base import Timing
from kgrun.runtime.devices.cuda_cupti import Unavailable, assign
from kgrun.runtime.devices.cuda_timing import METHOD, LaunchCosts, launch_costs, time_steps

START, EMPTY, RAMP = 6_000, 500, 250


@dataclass
class Kernel:
    """A call that knows its cost in nanoseconds among others, and counts how often it ran outside a replay."""

    ns: int
    ran: int = 0

    def __call__(self) -> None:
        self.ran += 1


@dataclass
class Chain:
    calls: list[Kernel]
    closed: bool = False

    def close(self) -> None:
        self.closed = True


@dataclass
class Timer:
    """Implements `cuda_timing.GraphTimer`: a replay takes START and what its calls cost."""

    chains: list[Chain] = field(default_factory=list)

    def chain(self, calls: Sequence[Callable[[], Any]]) -> Chain:
        self.chains.append(Chain(list(calls)))  # type: ignore[arg-type]
        return self.chains[-1]

    def timed(self, replay: Chain) -> int:
        assert not replay.closed
        return START + sum(call.ns for call in replay.calls)


COSTS = LaunchCosts(START, EMPTY)


def medians(kernels: Sequence[Kernel], timing: Timing, timer: Timer | None = None, **more: Any) -> list[int | None]:
    found = time_steps(timer or Timer(), kernels, 5, COSTS, timing, **more)
    return [sorted(times)[len(times) // 2] if times else None for times in found.samples]


def test_launch_costs_are_the_start_and_the_slope() -> None:
    assert launch_costs(Timer(), Kernel(EMPTY)) == COSTS


def test_a_time_is_the_kernels_own_and_the_ramp() -> None:
    kernels = [Kernel(ns) for ns in (500, 1_000, 35_000, 800_000)]
    found = time_steps(Timer(), kernels, 5, COSTS)
    assert [times[0] for times in found.samples] == [750, 1_250, 35_250, 800_250]
    assert found.methods == [METHOD] * 4
    assert (found.floor_ns, found.ramp_ns, found.start_ns) == (EMPTY + RAMP, RAMP, START)
    assert found.run_ns == 836_500
    assert all(kernel.ran == 0 for kernel in kernels)


def test_what_comes_before_the_first_step_is_found_from_rows_of_the_run_itself() -> None:
    """Some kernels are slower to begin with than an empty one: their code and arguments are to be had first."""

    class Slow(Timer):
        def timed(self, replay: Chain) -> int:
            return super().timed(replay) + 1_700

    found = time_steps(Slow(), [Kernel(2_000), Kernel(3_000)], 5, COSTS)
    assert (found.run_ns, found.start_ns) == (5_000, START + 1_700)
    found = time_steps(Slow(), [Kernel(9_000_000)], 5, COSTS)
    assert (found.run_ns, found.start_ns) == (9_001_700, START)  # long runs: no rows of them


def test_the_start_is_that_of_the_graph_that_runs() -> None:
    """Captured again the same launches may start a little sooner or later."""
    timer, kernels = Timer(), [Kernel(2_000), Kernel(3_000)]
    whole = Chain([*kernels, Kernel(160)])
    found = time_steps(timer, kernels, 5, COSTS, Timing(whole=whole))  # type: ignore[arg-type]
    assert found.start_ns + found.run_ns == timer.timed(whole) == START + 5_160
    assert found.run_ns == pytest.approx(5_000, abs=5)
    assert not whole.closed
    assert kernels not in [chain.calls for chain in timer.chains]  # no second graph of the run


def test_short_kernels_are_repeated_more_often_and_many_get_less_each() -> None:
    timer = Timer()
    medians([Kernel(500)], Timing(), timer)
    few = max(len(chain.calls) for chain in timer.chains)
    assert 100 <= few <= 256
    timer = Timer()
    found = time_steps(timer, [Kernel(500) for _ in range(1_000)], 30, COSTS)
    assert max(len(chain.calls) for chain in timer.chains[:-2]) < few
    assert [len(chain.calls) for chain in timer.chains[-2:]] == [4_000, 1_000]  # all in a row, a few times and once
    assert {len(times) for times in found.samples} == {5}
    assert all(chain.closed for chain in timer.chains)


def test_long_kernels_are_not_repeated_for_minutes() -> None:
    timer = Timer()
    found = time_steps(timer, [Kernel(100_000_000)], 30, COSTS)
    assert found.samples[0] == [100_000_250] * 5
    assert {len(chain.calls) for chain in timer.chains} == {1}


def test_the_time_of_emptying_the_cache_is_taken_off() -> None:
    timer, flush = Timer(), Kernel(40_000)
    assert time_steps(timer, [Kernel(2_000)], 5, COSTS, Timing(cold=True), flush).run_ns == 0
    assert medians([Kernel(2_000)], Timing(cold=True), timer, flush=flush) == [2_250]
    last = timer.chains[-1].calls
    assert last[0] is flush
    assert all((call is flush) == (i % 2 == 0) for i, call in enumerate(last))


def test_what_must_come_before_comes_before_each_repeat() -> None:
    timer, clear, count = Timer(), Kernel(700), Kernel(3_000)
    assert medians([clear, count], Timing(again={1: (0,)}), timer) == [950, 3_250]
    last = timer.chains[-1].calls
    assert last == [clear, count] * (len(last) // 2)


def test_steps_that_must_not_repeat_run_once_in_their_turn() -> None:
    kernels = [Kernel(1_000), Kernel(1_000), Kernel(1_000)]
    timer = Timer()
    assert medians(kernels, Timing(once=frozenset({0})), timer, on_host=frozenset({2})) == [None, 1_250, None]
    assert [kernel.ran for kernel in kernels] == [1, 0, 1]
    assert all(call is kernels[1] for chain in timer.chains for call in chain.calls)


def test_records_go_to_steps_by_their_order() -> None:
    replays = [[(0, 5), (6, 8), (8, 20), (30, 31)], [(100, 104), (105, 106), (107, 110), (120, 122)]]
    assert assign(replays, [1, 2, 1]) == [[5, 4], [14, 5], [1, 2]]
    assert assign(replays, [2, 2], dropped=1) == [[2, 1], [1, 2]]
    with pytest.raises(Unavailable, match="4 records where 3 were expected"):
        assign(replays, [1, 2])
