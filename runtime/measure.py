"""Measure: warm-up, runs timed whole, and runs in which every step is timed, kept apart."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any

from kgrun.graphs.records import dataclass
from kgrun.runtime.devices.base import Device, PreparedStep, Replay, StepTimes, Timing, TimingMethod
from kgrun.runtime.execute import Observer, StepTimer, run_observed
from kgrun.runtime.nvtx_ranges import ranged
from kgrun.runtime.program import Step
from kgrun.runtime.queues.base import UNDER_WAY, Feed
from kgrun.runtime.report import GpuState

MAX_STEP_RUNS = 30
# Warm-up ends when the last runs agree within this share, or after so many.
_STABLE_WITHIN = 0.02
_STABLE_RUNS = 5
_MAX_WARMUP = 50
_MAX_WARMUP_SECONDS = 2.0
_NOTHING: Mapping[int, Sequence[int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Amount:
    """How much to measure.

    Attributes:
        iterations: whole runs that count.
        warmup: runs before; None runs until times are stable.
        duration: seconds to go on for instead of `iterations`.
        per_step: time every step, in runs of its own.
        method: how steps are timed.
        cold: empty the cache before every run, and before every step that is timed.
        to_end: stop where the data queues end.
    """

    iterations: int
    warmup: int | None = None
    duration: float | None = None
    per_step: bool = True
    method: TimingMethod = "auto"
    cold: bool = False
    to_end: bool = False


@dataclass(slots=True)
class Measured:
    """Raw nanoseconds: of whole runs, and of each step (one list a step) with the method of each.

    Attributes:
        issued: what the host took to start each whole run.
        wall_ns: by the host's clock, all whole runs with what lies between them.
        floors: by method, what it says of a step that does nothing.
        ramp_ns, start_ns, run_ns: as `StepTimes` has them.
        cold: whether the cache was in fact emptied.
        states: of the GPU, before and after the whole runs.
        notes: why a method was not used.
    """

    totals: list[int] = field(default_factory=list)
    samples: list[list[int]] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    timeline: list[tuple[int, int, int]] = field(default_factory=list)
    warmup: int = 0
    issued: list[int] = field(default_factory=list)
    wall_ns: int = 0
    floors: dict[str, int] = field(default_factory=dict)
    ramp_ns: int = 0
    start_ns: int = 0
    run_ns: int = 0
    cold: bool = False
    states: list[GpuState] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def issue_ns(self) -> int | None:
        """The median of `issued`; None where runs are the host's own work."""
        return sorted(self.issued)[len(self.issued) // 2] if self.issued else None


class Runner:
    """One program on one device, ready to be measured.

    Args:
        replay: the whole program as one unit, where the device made one.
        snapshot: keeps what runs update, and returns a call that puts it back; None where runs update nothing.
        again, once: as `Timing` has them.
        in_a_row: whether each step of the replay waits for the one before it.
        feed: puts a new batch in place for each whole run that counts; the others see the first of them.
    """

    def __init__(
        self,
        device: Device,
        steps: Sequence[Step],
        prepared: Sequence[PreparedStep],
        replay: Replay | None = None,
        snapshot: Callable[[], Callable[[], None]] | None = None,
        again: Mapping[int, Sequence[int]] = _NOTHING,
        once: frozenset[int] = frozenset(),
        feed: Feed | None = None,
        in_a_row: bool = False,
    ) -> None:
        self.device, self.steps, self.prepared = device, steps, prepared
        self._snapshot, self._again, self._once = snapshot, again, once
        self._whole = replay if in_a_row else None
        self._start = replay.launch if replay is not None else device.issue_loop(prepared)
        if device.info.kind == "cuda":
            self._start = ranged("kgrun run", self._start)
        self._feed = feed or Feed()
        self._restore: Callable[[], None] | None = None
        self._dirty = False

    def close(self) -> None:
        """Let go of the steps; nothing runs any more."""
        self._start, self._whole = _closed, None

    def issue(self) -> None:
        """Start one whole run; it may still be going on when this returns."""
        self._dirty = True
        self._start()

    def restore(self) -> None:
        """Undo the updates of the runs since the snapshot."""
        if self._dirty and self._restore is not None:
            self._restore()
        self._dirty = False

    def measure(
        self, amount: Amount, observers: Sequence[Observer] = (), before_last: Callable[[], None] | None = None
    ) -> Measured:
        """Run and measure.

        What the device holds afterwards is the work of the whole runs alone: updated parameters are restored after the
        warm-up and after the runs in which steps are timed, so that they see exactly `iterations` updates.
        """
        result = Measured()
        self._dirty = False
        result.cold = amount.cold and self.device.flush_cache()
        if amount.cold and not result.cold:
            result.notes.append("this device's cache is not emptied: times are those of a hot one")
        if self.device.info.kind == "cpu" and amount.duration is None and not observers:
            if amount.method not in ("auto", "events"):
                result.notes.append(f"no times by {amount.method!r} on the CPU: the host's clock is used")
            # Marks on the host clock cost nothing worth a second pass.
            self._keep_state(bool(amount.warmup))
            self._warm_up(0 if amount.warmup is None else amount.warmup, result)
            timer = StepTimer(self.device, len(self.steps))
            self._totals(amount, result, [timer] if amount.per_step else [], before_last)
            self._keep(timer, None, result)
            return result
        self._keep_state(amount.warmup != 0 or amount.per_step or bool(observers))
        self._warm_up(amount.warmup, result)
        if amount.per_step or observers:
            self._time_steps(amount, observers, result)
        self.restore()
        self._read_sensors(result)
        self._totals(amount, result, [], before_last)
        self._read_sensors(result)
        return result

    def _keep_state(self, needed: bool) -> None:
        """Remember what runs update, where runs that do not count will follow."""
        self._restore = self._snapshot() if needed and self._snapshot is not None else None

    def _read_sensors(self, result: Measured) -> None:
        state = self.device.read_state()
        if state is not None:
            result.states.append(state)

    def _warm_up(self, runs: int | None, result: Measured) -> None:
        times: list[int] = []
        limit = time.monotonic() + _MAX_WARMUP_SECONDS
        while len(times) < (_MAX_WARMUP if runs is None else runs):
            times.append(self.device.elapsed_ns(*self._begin(None)))
            last = times[-_STABLE_RUNS:]
            stable = len(last) == _STABLE_RUNS and max(last) - min(last) <= _STABLE_WITHIN * max(last)
            if runs is None and (stable or time.monotonic() > limit):
                break
        result.warmup = len(times)
        self.restore()

    def _begin(self, result: Measured | None) -> tuple[Any, Any]:
        """Start a whole run; the marks before and after it. Where it counts, so does what the host took to start it."""
        if result is not None and result.cold:
            self.device.flush_cache()
        elif result is not None and result.samples and not self._feed.in_line:
            self.device.hold()  # steps were timed: so is the run, and the host's part apart from it
        start = self.device.record()
        before = time.perf_counter_ns()
        self.issue()
        issued = time.perf_counter_ns() - before
        end = self.device.record()
        if result is not None:
            result.issued.append(issued)
            self._feed.ahead()
        return start, end

    def _time_steps(self, amount: Amount, observers: Sequence[Observer], result: Measured) -> None:
        """Time every step: one run with marks and observers, then the device's own method, then marks for the rest."""
        runs = max(1, min(amount.iterations, MAX_STEP_RUNS))
        timer = StepTimer(self.device, len(self.steps))
        watchers: list[Observer] = [_Flush(self.device), timer] if result.cold else [timer]
        self._dirty = True
        run_observed(self.device, self.steps, self.prepared, [*observers, *watchers])
        timeline = timer.timeline
        better: StepTimes | None = None
        if amount.per_step:
            timing = Timing(amount.method, result.cold, self._again, self._once, self._whole)
            better = self.device.time_steps(self.prepared, runs, timing)
            if better is None or not all(better.samples):
                self.restore()
                self._dirty = True
                for _ in range(runs - 1):
                    run_observed(self.device, self.steps, self.prepared, watchers)
        self._keep(timer, better, result)
        result.timeline = timeline

    def _keep(self, timer: StepTimer, better: StepTimes | None, result: Measured) -> None:
        result.samples = timer.samples
        result.timeline = timer.timeline
        result.methods = [step.method for step in self.prepared]
        if better is not None:
            result.ramp_ns, result.start_ns, result.run_ns = better.ramp_ns, better.start_ns, better.run_ns
            result.notes.extend(better.notes)
            for index, times in enumerate(better.samples):
                if times:
                    result.samples[index], result.methods[index] = list(times), better.methods[index]
                    result.floors[better.methods[index]] = better.floor_ns
        for method in set(result.methods) - set(result.floors):
            result.floors[method] = self.device.marks_floor()

    def _totals(
        self, amount: Amount, result: Measured, watchers: Sequence[Observer], before_last: Callable[[], None] | None
    ) -> None:
        deadline = None if amount.duration is None else time.monotonic() + amount.duration
        under_way: deque[tuple[Any, Any]] = deque()
        most = UNDER_WAY if self._feed.in_line else 0
        done, started = 0, time.perf_counter_ns()
        while (done < amount.iterations) if deadline is None else (done == 0 or time.monotonic() < deadline):
            if done and (amount.to_end or deadline is not None) and not self._feed.more():
                break
            self._feed.next()
            done += 1
            if before_last is not None and deadline is None and done == amount.iterations:
                before_last()
            if watchers:
                self._dirty = True
                start = self.device.record()
                run_observed(self.device, self.steps, self.prepared, watchers)
                result.totals.append(self.device.elapsed_ns(start, self.device.record()))
            else:
                under_way.append(self._begin(result))
                if len(under_way) > most:
                    result.totals.append(self.device.elapsed_ns(*under_way.popleft()))
        result.totals.extend(self.device.elapsed_ns(*marks) for marks in under_way)
        self.device.synchronize()
        result.wall_ns = time.perf_counter_ns() - started


def _closed() -> None:
    raise RuntimeError("the program was closed")


class _Flush:
    """Empties the cache before each step. Implements `execute.Observer`."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def before(self, step: Step) -> None:
        """Empty it."""
        self._device.flush_cache()

    def after(self, step: Step) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""
