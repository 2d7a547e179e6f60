"""Rows of a comparison: one metric of one thing in both reports, and the verdict."""

from __future__ import annotations

from enum import StrEnum
from statistics import fmean
from typing import Literal

from kgrun.graphs.records import dataclass
from kgrun.runtime.diff.document import KernelRow, Times
from kgrun.runtime.diff.noise import FEWEST, p_longer, stands_apart, unsteadiness

TIME_METRICS = ("median", "mean", "min", "p95", "p99")
MEMORY_METRICS = (
    "peak_bytes", "dynamic_bytes", "static_bytes", "lower_bound_bytes", "no_reuse_bytes", "measured_peak_bytes",
)  # fmt: skip
KERNEL_BYTES = {"kernel_bytes": "nbytes", "shared_bytes": "shared_bytes"}
METRICS = (*TIME_METRICS, *MEMORY_METRICS, *KERNEL_BYTES)
SHOWN = ("peak_bytes", "dynamic_bytes", "static_bytes")  # in every comparison, judged or not

EVENT_RESOLUTION_NS = 500  # of CUDA events (CUDA driver API, cuEventElapsedTime)
CLOCK_RESOLUTION_NS = 100


class Verdict(StrEnum):
    """What became of a row."""

    regressed = "regressed"
    improved = "improved"
    unchanged = "unchanged"
    added = "added"
    removed = "removed"
    incomparable = "not comparable"


@dataclass(frozen=True, slots=True)
class Limits:
    """What counts as a change.

    Attributes:
        bound: relative change that is still allowed: 0.05 for 5 %.
        floor_ns: smallest change in time that counts; None: the resolution of the method that took the times.
        alpha: probability of chance below which a change in time counts.
        metrics: names of METRICS whose regressions count.
    """

    bound: float
    floor_ns: int | None
    alpha: float
    metrics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one thing in both reports.

    Attributes:
        kind: what `name` names; the whole run and its memory are "run".
        a, b: nanoseconds or bytes; None where the report has none.
        judged: whether a regression here fails the comparison.
        old_name: the name in A where it is another one.
        p: probability that chance explains the change; None where it was not needed or cannot be told.
        note: why the verdict is not what the numbers suggest.
    """

    kind: Literal["run", "kernel", "memory"]
    name: str
    op: str | None
    metric: str
    unit: Literal["ns", "bytes"]
    a: int | None
    b: int | None
    verdict: Verdict
    judged: bool
    old_name: str | None = None
    p: float | None = None
    note: str | None = None

    @property
    def change(self) -> float | None:
        """b ÷ a − 1; None where either is missing or `a` is 0."""
        return self.b / self.a - 1 if self.a and self.b is not None else None

    @property
    def fails(self) -> bool:
        """Whether this row is a regression that counts."""
        return self.judged and self.verdict is Verdict.regressed


@dataclass(frozen=True, slots=True)
class Subject:
    """What a row is about, and its times in both reports."""

    kind: Literal["run", "kernel"]
    name: str
    op: str | None = None
    old_name: str | None = None


def time_row(
    subject: Subject, metric: str, a: Times | None, b: Times | None, methods: tuple[str, str], limits: Limits
) -> Row:
    """The row of one time metric; `methods` says how A and B took their times."""
    value_a, value_b = _value(a, metric), _value(b, metric)
    p: float | None = None
    note: str | None
    if a is None or b is None or value_a is None or value_b is None:
        verdict, note = Verdict.incomparable, "not timed in " + _missing(a, b)
    elif methods[0] != methods[1]:
        verdict, note = Verdict.incomparable, f"times by different methods: {methods[0]}, {methods[1]}"
    else:
        verdict, p, note = _judge_times(a, b, metric, (value_a, value_b), methods[0], limits)
    return Row(
        subject.kind, subject.name, subject.op, metric, "ns", value_a, value_b, verdict, metric in limits.metrics,
        subject.old_name, p, note,
    )  # fmt: skip


def _judge_times(
    a: Times, b: Times, metric: str, values: tuple[int, int], method: str, limits: Limits
) -> tuple[Verdict, float | None, str | None]:
    change, floor = abs(values[1] - values[0]), limits.floor_ns
    if floor is None:
        floor = EVENT_RESOLUTION_NS if "event" in method else CLOCK_RESOLUTION_NS
    longer = values[1] > values[0]
    first, second, less = (a, b, values[0]) if longer else (b, a, values[1])
    if change <= limits.bound * less:
        return Verdict.unchanged, None, None
    if change <= floor:
        return Verdict.unchanged, None, f"less than the floor of {floor} ns"
    p = p_longer(first, second, metric)
    if p is None:
        few = min(a.stats.count, b.stats.count)
        why = f"too few samples ({few}; {FEWEST} at least)" if few < FEWEST else f"{metric} needs samples"
        return Verdict.incomparable, None, why
    if p >= limits.alpha or not stands_apart(first, second, metric):
        return Verdict.unchanged, p, "within the noise"
    if change <= (limits.bound + unsteadiness(first) + unsteadiness(second)) * less:
        return Verdict.unchanged, p, "times drift within a run"
    return (Verdict.regressed if longer else Verdict.improved), p, None


def _value(times: Times | None, metric: str) -> int | None:
    if times is None:
        return None
    if metric == "mean" and times.samples:
        return round(fmean(times.samples))
    return int(getattr(times.stats, metric))


def _missing(a: object | None, b: object | None) -> str:
    return "A and B" if a is None and b is None else "A" if a is None else "B"


def bytes_row(
    kind: Literal["kernel", "memory"], name: str, metric: str, a: int | None, b: int | None, limits: Limits,
    *, op: str | None = None, old_name: str | None = None,
) -> Row:  # fmt: skip
    """The row of one metric in bytes: they have no noise."""
    note = None
    if a is None or b is None:
        verdict, note = Verdict.incomparable, f"unknown in {_missing(a, b)}"
    elif max(a, b) <= min(a, b) * (1 + limits.bound):
        verdict = Verdict.unchanged
    else:
        verdict = Verdict.regressed if b > a else Verdict.improved
    return Row(kind, name, op, metric, "bytes", a, b, verdict, metric in limits.metrics, old_name, note=note)


def lone_row(kernel: KernelRow, metric: str, verdict: Verdict, judged: bool) -> Row:
    """A kernel that only one report has."""
    value = getattr(kernel, KERNEL_BYTES[metric]) if metric in KERNEL_BYTES else _value(kernel.times, metric)
    a, b = (value, None) if verdict is Verdict.removed else (None, value)
    unit: Literal["ns", "bytes"] = "bytes" if metric in KERNEL_BYTES else "ns"
    return Row("kernel", kernel.name, kernel.op, metric, unit, a, b, verdict, judged)
