"""One report row a step, from the program and the samples taken."""

from __future__ import annotations

from collections.abc import Sequence

from kgrun.runtime.program import Launch, Program
from kgrun.runtime.report import StepReport
from kgrun.runtime.statistics import time_stats


def step_reports(program: Program, samples: Sequence[Sequence[int]], methods: Sequence[str]) -> tuple[StepReport, ...]:
    """Rows in issue order."""
    rows = []
    for step, method, times in zip(program.steps, methods, samples, strict=True):
        launch = step.work if isinstance(step.work, Launch) else None
        rows.append(
            StepReport(
                name=step.name,
                op=step.op,
                stream=step.stream,
                grid=launch.grid if launch else None,
                block=launch.block if launch else None,
                shared=launch.shared if launch else None,
                times=time_stats(times),
                method=method if times else "not timed",
                flops=step.flops,
                nbytes=step.nbytes,
                samples=tuple(times),
            )
        )
    return tuple(rows)
