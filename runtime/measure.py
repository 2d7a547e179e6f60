"""Measure: warm-up, runs timed whole, and runs in which every step is timed, kept apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kgrun.runtime.devices.base import Device, PreparedStep, Replay
from kgrun.runtime.execute import Observer, StepTimer, run_observed, run_steps
from kgrun.runtime.program import Step

MAX_STEP_RUNS = 30
# Warm-up ends when the last runs agree within this share, or after so many.
_STABLE_WITHIN = 0.02
_STABLE_RUNS = 5
_MAX_WARMUP = 50
_MAX_WARMUP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Amount:
    """How much to measure.

    Attributes:
        iterations: whole runs that count.
        warmup: runs before; None runs until times are stable.
        duration: seconds to go on for instead of `iterations`.
        per_step: time every step, in runs of its own.
    """

    iterations: int
    warmup: int | None = None
    duration: float | None = None
    per_step: bool = True


@dataclass(slots=True)
class Measured:
    """Raw nanoseconds: of whole runs, and of each step (one list a step) with the method of each."""

    totals: list[int] = field(default_factory=list)
    samples: list[list[int]] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)
    timeline: list[tuple[int, int, int]] = field(default_factory=list)
    warmup: int = 0
    floor_ns: int = 0


class Runner:
    """One program on one device, ready to be measured.

    Args:
        replay: the whole program as one unit, where the device made one.
        snapshot: keeps what runs update, and returns a call that puts it back; None where runs update nothing.
    """

    def __init__(
        self,
        device: Device,
        steps: Sequence[Step],
        prepared: Sequence[PreparedStep],
        replay: Replay | None = None,
        snapshot: Callable[[], Callable[[], None]] | None = None,
    ) -> None:
        self.device, self.steps, self.prepared = device, steps, prepared
        self.replay, self._snapshot = replay, snapshot
        self._restore: Callable[[], None] | None = None
        self._dirty = False

    def issue(self) -> None:
        """Start one whole run; it may still be going on when this returns."""
        self._dirty = True
        if self.replay is not None:
            self.replay.launch()
        else:
            run_steps(self.prepared)

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
        if self.device.info.kind == "cpu" and amount.duration is None and not observers:
            # Marks on the host clock cost nothing worth a second pass.
            self._keep_state(bool(amount.warmup))
            self._warm_up(0 if amount.warmup is None else amount.warmup, result)
            timer = StepTimer(self.device, len(self.steps))
            self._totals(amount, result, [timer] if amount.per_step else [], before_last)
            self._keep(timer, result)
            return result
        self._keep_state(amount.warmup != 0 or amount.per_step or bool(observers))
        self._warm_up(amount.warmup, result)
        if amount.per_step or observers:
            self._time_steps(amount, observers, result)
        self.restore()
        self._totals(amount, result, [], before_last)
        return result

    def _keep_state(self, needed: bool) -> None:
        """Remember what runs update, where runs that do not count will follow."""
        self._restore = self._snapshot() if needed and self._snapshot is not None else None

    def _warm_up(self, runs: int | None, result: Measured) -> None:
        times: list[int] = []
        limit = time.monotonic() + _MAX_WARMUP_SECONDS
        while len(times) < (_MAX_WARMUP if runs is None else runs):
            times.append(self._one())
            last = times[-_STABLE_RUNS:]
            stable = len(last) == _STABLE_RUNS and max(last) - min(last) <= _STABLE_WITHIN * max(last)
            if runs is None and (stable or time.monotonic() > limit):
                break
        result.warmup = len(times)
        self.restore()

    def _one(self) -> int:
        start = self.device.record()
        self.issue()
        return self.device.elapsed_ns(start, self.device.record())

    def _time_steps(self, amount: Amount, observers: Sequence[Observer], result: Measured) -> None:
        runs = max(1, min(amount.iterations, MAX_STEP_RUNS))
        timer = StepTimer(self.device, len(self.steps))
        self._dirty = True
        for _ in range(runs if amount.per_step else 1):
            run_observed(self.device, self.steps, self.prepared, [*observers, timer])
        self._keep(timer, result)
        better = self.device.time_steps(self.prepared, runs) if amount.per_step else None
        if better is not None:
            result.samples = [list(times) for times in better.samples]
            result.methods = list(better.methods)
            result.floor_ns = better.floor_ns

    def _keep(self, timer: StepTimer, result: Measured) -> None:
        result.samples = timer.samples
        result.timeline = timer.timeline
        result.methods = [step.method for step in self.prepared]

    def _totals(
        self, amount: Amount, result: Measured, watchers: Sequence[Observer], before_last: Callable[[], None] | None
    ) -> None:
        deadline = None if amount.duration is None else time.monotonic() + amount.duration
        done = 0
        while (done < amount.iterations) if deadline is None else (done == 0 or time.monotonic() < deadline):
            done += 1
            if before_last is not None and deadline is None and done == amount.iterations:
                before_last()
            if watchers:
                self._dirty = True
                start = self.device.record()
                run_observed(self.device, self.steps, self.prepared, watchers)
                result.totals.append(self.device.elapsed_ns(start, self.device.record()))
            else:
                result.totals.append(self._one())
        self.device.synchronize()
