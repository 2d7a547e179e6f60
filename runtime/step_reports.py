"""The report of runs: one row a step, from the program and the samples taken; and what the rows say together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kgrun.graphs.bound import Warning
from kgrun.runtime.advice import doubts
from kgrun.runtime.balance import balance
from kgrun.runtime.devices.base import Device
from kgrun.runtime.measure import Measured
from kgrun.runtime.program import Launch, Program
from kgrun.runtime.report import RunReport, StepReport, Transfer
from kgrun.runtime.statistics import time_stats
from kgrun.runtime.streams import dependencies, plan_streams

if TYPE_CHECKING:
    import numpy as np

    from kgrun.runtime.memory.plan_types import MemoryPlan
    from kgrun.runtime.phases import Phases


def step_reports(program: Program, measured: Measured) -> tuple[StepReport, ...]:
    """Rows in issue order."""
    rows = []
    untimed: tuple[list[list[int]], list[str]] = [[] for _ in program.steps], [""] * len(program.steps)
    samples, methods = (measured.samples, measured.methods) if measured.samples else untimed
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
                floor_ns=measured.floors.get(method, 0),
            )
        )
    return tuple(rows)


def run_warnings(
    found: Sequence[Warning], device: Device, fallback: str | None = None, pageable: str | None = None
) -> list[Warning]:
    """Those of the graph, and what the device says after a run.

    Args:
        fallback: why it runs on the CPU, though a GPU was as welcome.
        pageable: why transfers use memory that is not page-locked.
    """
    warnings = [*found, *device.warnings()]
    if fallback:
        warnings.append(Warning("W-CPU", f"running on the CPU: {fallback}"))
    if pageable:
        warnings.append(Warning("W-PAGEABLE", f"transfers are slow: no page-locked memory: {pageable}"))
    return warnings


def run_report(
    program: Program, plan: MemoryPlan, device: Device, outputs: dict[str, np.ndarray[Any, Any]], measured: Measured,
    phases: Phases, upload: Transfer, warnings: Sequence[Warning], **more: Any,
) -> RunReport:  # fmt: skip
    """The report of measured runs, with the balance of its times and a warning for whatever makes them doubtful.

    `more` are members of it that not every kind of session has. The outputs are there: downloading them was a phase.
    """
    report = RunReport(
        program=program,
        plan=plan,
        device=device.info,
        outputs=outputs,
        steps=step_reports(program, measured),
        total=time_stats(measured.totals),
        iterations=len(measured.totals),
        warmup=measured.warmup,
        upload=upload,
        download=Transfer(sum(array.nbytes for array in outputs.values()), phases.spent["download"]),
        measured_peak_bytes=device.peak_memory(),
        timeline=tuple(measured.timeline),
        warnings=tuple(warnings),
        phases_ns=dict(phases.spent),
        total_samples=tuple(measured.totals),
        floors_ns=dict(measured.floors),
        cache="cold" if measured.cold else "hot",
        issue_ns=measured.issue_ns,
        wall_ns=measured.wall_ns,
        gpu_states=tuple(measured.states),
        **more,
    )
    report = _balanced(report, measured)
    notes = (Warning("W-TIMING", note) for note in measured.notes)
    return replace(report, warnings=(*report.warnings, *notes, *doubts(report)))


def _balanced(report: RunReport, measured: Measured) -> RunReport:
    if report.total is None:
        return report
    if report.not_replayed is None:
        after = dependencies(plan_streams(report.program))
        costs = {name: getattr(measured, name) for name in ("start_ns", "ramp_ns", "run_ns")}
    else:
        after = [[i - 1] if i else [] for i in range(len(report.steps))]
        costs = {}
    found = balance(report.steps, report.total.median, after, **costs)
    return replace(report, balance=found)
