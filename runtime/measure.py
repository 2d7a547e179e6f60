"""Measure: warm-up, runs timed whole, and runs in which every step is timed, kept apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kgrun.runtime.devices.base import Device, PreparedStep
from kgrun.runtime.execute import Observer, StepTimer, run_observed, run_steps
from kgrun.runtime.program import Step

# Marks around every step cost time of their own, so steps are timed in runs that do not count for the total.
MAX_STEP_RUNS = 100


@dataclass(slots=True)
class Measured:
    """Raw nanoseconds: of whole runs, and of each step (one list a step)."""

    totals: list[int] = field(default_factory=list)
    samples: list[list[int]] = field(default_factory=list)
    timeline: list[tuple[int, int, int]] = field(default_factory=list)
    warmup: int = 0


def measure(
    device: Device,
    steps: Sequence[Step],
    prepared: Sequence[PreparedStep],
    *,
    iterations: int,
    warmup: int,
    duration: float | None,
    per_step: bool,
    observers: Sequence[Observer] = (),
    restore: Callable[[], None] | None = None,
    before_last: Callable[[], None] | None = None,
) -> Measured:
    """Run and measure.

    What the device holds afterwards is the work of the whole runs alone: `restore` is called after the warm-up and
    after the runs in which steps are timed, so that updated parameters see exactly `iterations` updates.
    """
    result = Measured(warmup=warmup)
    for _ in range(warmup):
        run_steps(prepared)
    device.synchronize()
    timer = StepTimer(device, len(steps))
    if device.info.kind == "cpu" and duration is None and not observers:
        # Steps run one by one on the host clock: the marks cost nothing worth a second pass.
        _restore(restore, warmup)
        _run_totals(device, steps, prepared, result, iterations, None, [timer] if per_step else [], before_last)
    else:
        if per_step or observers:
            watchers = [*observers, timer] if per_step else list(observers)
            for _ in range(min(iterations, MAX_STEP_RUNS)):
                run_observed(device, steps, prepared, watchers)
        _restore(restore, warmup + (1 if per_step or observers else 0))
        _run_totals(device, steps, prepared, result, iterations, duration, [], before_last)
    result.samples = timer.samples
    result.timeline = timer.timeline
    return result


def _restore(restore: Callable[[], None] | None, runs: int) -> None:
    if restore is not None and runs:
        restore()


def _run_totals(
    device: Device,
    steps: Sequence[Step],
    prepared: Sequence[PreparedStep],
    result: Measured,
    iterations: int,
    duration: float | None,
    watchers: Sequence[Observer],
    before_last: Callable[[], None] | None,
) -> None:
    deadline = None if duration is None else time.monotonic() + duration
    done = 0
    while (done < iterations) if deadline is None else (done == 0 or time.monotonic() < deadline):
        done += 1
        if before_last is not None and deadline is None and done == iterations:
            before_last()
        start = device.record()
        if watchers:
            run_observed(device, steps, prepared, watchers)
        else:
            run_steps(prepared)
        end = device.record()
        result.totals.append(device.elapsed_ns(start, end))
    device.synchronize()
