"""What a run reports: outputs, times with the method they were taken by, memory planned and measured."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from kgrun.graphs.bound import Dim3, Warning
from kgrun.graphs.errors import Place
from kgrun.graphs.records import dataclass
from kgrun.runtime.devices.base import DeviceInfo
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.program import Program

if TYPE_CHECKING:
    import numpy as np

    from kgrun.runtime.checks.findings import Finding
    from kgrun.runtime.collectives.summary import RankSummary
    from kgrun.runtime.embedding.cache import EmbeddingReport
    from kgrun.runtime.queues.fed import QueueReport

OVERHEAD_FLOORS = 3


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
        floor_ns: what the method says of a step that does nothing; 0 where that was not measured.
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
    floor_ns: int = 0

    @property
    def overhead_bound(self) -> bool:
        """Whether the median tells more of launching than of the kernel: it is below three floors."""
        return self.times is not None and self.times.median < OVERHEAD_FLOORS * self.floor_ns


@dataclass(frozen=True, slots=True)
class Balance:
    """How the times of the steps and that of a whole run agree. Nanoseconds.

    Attributes:
        kernels_ns: sum of the steps' medians, each looked at alone.
        ramps_ns: the part of them that the step before hides in a run.
        between_ns: what different steps in a row take more than each repeated (other data and code in the caches,
            gaps); negative where less, 0 where not measured.
        start_ns: what a run takes before its first step.
        expected_ns: a run of the steps in a row: kernels − ramps + between + start.
        longest_chain_ns: the same of the longest chain of steps that wait for each other.
        total_ns: median of whole runs.
        difference_ns, difference: total − expected, and what that is: "gaps" between steps, steps "side by side",
            "instrumentation" where the way of timing made steps longer, or else "faster together".
        consistent: whether the run lies between longest chain and expected time, within 3 %.
    """

    kernels_ns: int
    ramps_ns: int
    between_ns: int
    start_ns: int
    expected_ns: int
    longest_chain_ns: int
    total_ns: int
    difference_ns: int
    difference: str
    consistent: bool


@dataclass(frozen=True, slots=True)
class GpuState:
    """What the GPU's sensors said at one moment; None where they say nothing. Power in milliwatts."""

    sm_mhz: int | None
    memory_mhz: int | None
    max_sm_mhz: int | None
    temperature_c: int | None
    power_mw: int | None
    throttle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Roofline:
    """What the device reached in a copy of memory (bytes read and written) and in float32 multiply-adds, a second."""

    bytes_per_s: int
    flops_per_s: int


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
class NodeDifference:
    """One tensor that a node made, against a reference.

    Attributes:
        mismatched: elements outside the tolerance (`runtime.divergence.difference`), of `size`.
        excess: the largest finite difference as a multiple of its tolerance; None where equality is asked for.
        max_abs, max_rel: largest finite differences; None when there is none to state.
        max_ulp: the largest in units in the last place; None for integers.
        nan, wanted_nan: elements that are NaN, here and in the reference.
    """

    node: str
    op: str
    tensor: str
    ok: bool
    mismatched: int
    size: int
    excess: float | None
    max_abs: float | None
    max_rel: float | None
    max_ulp: int | None
    nan: int
    wanted_nan: int


@dataclass(frozen=True, slots=True)
class Divergence:
    """Every node against a reference, in the order of the run."""

    reference: str
    nodes: tuple[NodeDifference, ...]

    @property
    def first(self) -> NodeDifference | None:
        """The first node that differs; None where none does."""
        return next((row for row in self.nodes if not row.ok), None)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A step that did not run on this device, and why; `where` is the source line of what it cannot do."""

    name: str
    op: str
    reason: str
    where: Place | None


@dataclass(frozen=True, slots=True)
class StreamChoice:
    """What `streams="auto"` found: medians of whole runs in nanoseconds, on one stream and spread over several."""

    chosen: int
    tried: int
    one_ns: int
    many_ns: int


@dataclass(frozen=True, slots=True)
class Dumped:
    """What a dump wrote: files in `folder`, and the bytes of their tensors."""

    folder: str
    files: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class RunReport:
    """The result of `Session.run`.

    Attributes:
        outputs: host arrays by name.
        steps: one a step, in issue order.
        total: one whole run, measured without per-step instrumentation; `total_samples` its raw times in nanoseconds.
        timeline: (step index, start, duration) in nanoseconds of the last instrumented iteration, for the trace.
        measured_peak_bytes: most bytes held on the device at once, as the device counted them.
        floors_ns: by method, what it says of a step that does nothing.
        cache: "hot", or "cold" where the cache was emptied before everything that was timed.
        issue_ns: median time that the host took to start a whole run; None where a run is the host's own work.
        wall_ns: by the host's clock, all whole runs with what lies between them, batches put in place say.
        balance: how steps and runs add up; None where steps were not timed.
        gpu_states: what the sensors said before and after the measured runs; empty without sensors.
        roofline: peak rates measured on this device; None where that was not asked for or not possible.
        not_replayed: why steps were issued one by one; None where they ran as one CUDA graph.
        checked: names of the checks that were on, and `findings`, what they found.
        skipped: steps that did not run (`allow_skip`), and `uncomputed`, the outputs that hold no result for it.
        streams: what trying several streams brought; None where that was not asked for.
        dump: what was dumped; None where nothing was to be.
        repro: the command that runs the same again from a bundle; None where none was written.
        divergence: every node against a reference; None where that was not asked for.
        queues, embeddings: what data queues and embedding caches did.
        ranks: what all ranks of the job found, in the report of rank 0.
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
    floors_ns: dict[str, int] = field(default_factory=dict)
    cache: str = "hot"
    issue_ns: int | None = None
    wall_ns: int = 0
    balance: Balance | None = None
    gpu_states: tuple[GpuState, ...] = ()
    roofline: Roofline | None = None
    not_replayed: str | None = None
    checked: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    uncomputed: tuple[str, ...] = ()
    streams: StreamChoice | None = None
    dump: Dumped | None = None
    repro: str | None = None
    divergence: Divergence | None = None
    queues: tuple[QueueReport, ...] = ()
    embeddings: tuple[EmbeddingReport, ...] = ()
    ranks: RankSummary | None = None
