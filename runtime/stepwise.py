"""Runs that wait after each step (S139), and the one uncounted run before all others that finds what never ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kgrun.runtime.culprit import Tell, TellStep
from kgrun.runtime.devices.base import PreparedStep
from kgrun.runtime.execute import Observer, StepTimer, SyncEach, run_observed
from kgrun.runtime.measure import Amount, Measured
from kgrun.runtime.program import Program, Step

if TYPE_CHECKING:
    from kgrun.runtime.loaded import LoadedProgram


def run_stepwise(
    loaded: LoadedProgram, amount: Amount, tell: Tell | None, before_last: Callable[[], None] | None = None
) -> Measured:
    """Run and time with a wait after every step, so that a fault names its kernel.

    Raises:
        DeviceFault: with the one step that failed as its suspect.
    """
    device, steps, prepared = loaded.device, loaded.program.steps, loaded.prepared
    timer = StepTimer(device, len(steps))
    watchers: list[Observer] = [TellStep(loaded.program, tell)] if tell else []
    result = Measured(warmup=amount.warmup or 0)
    if result.warmup:
        restore = loaded.snapshot() if loaded.updated else None
        for _ in range(result.warmup):
            run_observed(device, steps, prepared, [*watchers, SyncEach(device)])
        if restore is not None:
            restore()
    deadline = None if amount.duration is None else time.monotonic() + amount.duration
    while (len(result.totals) < amount.iterations) if deadline is None else not _over(deadline, result):
        if before_last is not None and deadline is None and len(result.totals) == amount.iterations - 1:
            before_last()
        if result.totals and (amount.to_end or deadline is not None) and not loaded.feed.more():
            break
        loaded.feed.next()
        start = device.record()
        run_observed(device, steps, prepared, [*watchers, timer, SyncEach(device)])
        result.totals.append(device.elapsed_ns(start, device.record()))
    result.samples, result.timeline = timer.samples, timer.timeline
    result.methods = [step.method for step in prepared]
    result.floors = dict.fromkeys(result.methods, device.marks_floor())
    return result


def _over(deadline: float, result: Measured) -> bool:
    return bool(result.totals) and time.monotonic() >= deadline


def first_run(loaded: LoadedProgram, tell: Tell | None) -> None:
    """One run that does not count; with `tell` it waits after each step, having told it first."""
    restore = loaded.snapshot() if loaded.updated else None
    if tell is not None:
        observers: list[Observer] = [TellStep(loaded.program, tell), SyncEach(loaded.device)]
        run_observed(loaded.device, loaded.program.steps, loaded.prepared, observers)
    else:
        loaded.runner.issue()
        loaded.device.synchronize()
    if restore is not None:
        restore()


class ToldStep:
    """A step that is told whenever it is issued; for devices on which issuing it is running it."""

    def __init__(self, step: Step, prepared: PreparedStep, teller: TellStep) -> None:
        self._step, self._prepared, self._teller = step, prepared, teller
        self.method = prepared.method

    def launch(self) -> None:
        """Tell it, then issue it."""
        self._teller.before(self._step)
        self._prepared.launch()


def told_steps(program: Program, prepared: list[PreparedStep], tell: Tell) -> list[PreparedStep]:
    """The steps, each told before it runs."""
    teller = TellStep(program, tell)
    return [ToldStep(step, ready, teller) for step, ready in zip(program.steps, prepared, strict=True)]
