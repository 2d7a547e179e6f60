"""What a run reports: outputs, times with the method they were taken by, memory planned and measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kgrun.graphs.bound import Dim3, Warning
from kgrun.runtime.devices.base import DeviceInfo
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.program import Program

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class TimeStats:
    """Statistics of samples, in whole nanoseconds; `cv` is standard deviation ÷ mean, `count` the number of samples."""

    min: int
    median: int
    mean: int
    p95: int
    p99: int
    max: int
    cv: float
    count: int


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step's cost.

    Attributes:
        grid, block, shared: of a launch, else None.
        times: None when the step was not timed.
        method: how: "host clock", "stream events", …
        flops, nbytes: of one run of the step, None where unknown.
        samples: raw times in nanoseconds, in order of iterations.
    """

    name: str
    op: str
    stream: str
    grid: Dim3 | None
    block: Dim3 | None
    shared: int | None
    times: TimeStats | None
    method: str
    flops: int | None
    nbytes: int | None
    samples: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes copied between host and device, and how long it took."""

    nbytes: int
    ns: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output against its expected value.

    Attributes:
        mismatched: elements outside `atol + rtol·|expected|`; NaN equals NaN only where asked for.
        max_abs, max_rel: largest finite differences; None when there is none to state.
    """

    name: str
    ok: bool
    mismatched: int
    size: int
    max_abs: float | None
    max_rel: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class StreamChoice:
    """What `streams="auto"` found: medians of whole runs in nanoseconds, on one stream and spread over several."""

    chosen: int
    tried: int
    one_ns: int
    many_ns: int


@dataclass(frozen=True, slots=True)
class RunReport:
    """The result of `Session.run`.

    Attributes:
        outputs: host arrays by name.
        steps: one a step, in issue order.
        total: one whole run, measured without per-step instrumentation; `total_samples` its raw times in nanoseconds.
        timeline: (step index, start, duration) in nanoseconds of the last instrumented iteration, for the trace.
        measured_peak_bytes: most bytes held on the device at once, as the device counted them.
        floor_ns: what the steps' method says of a step that does nothing; 0 where that was not measured.
        not_replayed: why steps were issued one by one; None where they ran as one CUDA graph.
        streams: what trying several streams brought; None where that was not asked for.
    """

    program: Program
    plan: MemoryPlan
    device: DeviceInfo
    outputs: dict[str, np.ndarray[Any, Any]]
    steps: tuple[StepReport, ...]
    total: TimeStats | None
    iterations: int
    warmup: int
    upload: Transfer
    download: Transfer
    measured_peak_bytes: int
    timeline: tuple[tuple[int, int, int], ...] = ()
    warnings: tuple[Warning, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    phases_ns: dict[str, int] = field(default_factory=dict)
    total_samples: tuple[int, ...] = ()
    floor_ns: int = 0
    not_replayed: str | None = None
    streams: StreamChoice | None = None
