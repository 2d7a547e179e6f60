"""Two reports to rows, notes on outputs, and warnings on what makes them hard to compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kgrun.graphs.bound import Warning
from kgrun.graphs.records import dataclass
from kgrun.runtime.diff.document import KernelRow, Report
from kgrun.runtime.diff.match import Pair, match_kernels
from kgrun.runtime.diff.rows import (
    KERNEL_BYTES,
    MEMORY_METRICS,
    SHOWN,
    TIME_METRICS,
    Limits,
    Row,
    Subject,
    Verdict,
    bytes_row,
    lone_row,
    time_row,
)

# Of a whole comparison, not of one row: with 60 kernels a 1-in-500 chance a row would be an alarm in every tenth run.
FALSE_ALARMS = 0.002
# The rank test of 10 samples against 10 gives no smaller p than 5e-6: a stricter level would never be reached.
SMALLEST_ALPHA = 1e-5


@dataclass(frozen=True, slots=True)
class OutputChange:
    """An output whose type or bytes differ."""

    name: str
    what: str


@dataclass(frozen=True, slots=True)
class Difference:
    """The result of a comparison; `rows` are the run's, then the memory's, then the kernels' in order of B."""

    rows: tuple[Row, ...]
    outputs: tuple[OutputChange, ...]
    warnings: tuple[Warning, ...]
    limits: Limits

    @property
    def counts(self) -> dict[str, int]:
        """Rows by verdict."""
        found = Counter(row.verdict for row in self.rows)
        return {verdict.value: found[verdict] for verdict in Verdict}

    @property
    def failures(self) -> list[Row]:
        """The regressions that count, largest first."""
        return sorted((row for row in self.rows if row.fails), key=lambda row: -_size(row))


def _size(row: Row) -> float:
    return row.change if row.change is not None else float("inf")


def compare_reports(
    a: Report, b: Report, *, metrics: Sequence[str], bound: float, floor_ns: int | None = None
) -> Difference:
    """Compare B with A, the older one.

    Args:
        metrics: names of rows.METRICS whose regressions count.
        bound: relative change that is still allowed.
        floor_ns: smallest change in time that counts; None: the resolution of the method that took the times.
    """
    pairs = match_kernels(a.kernels, b.kernels)
    times = [metric for metric in metrics if metric in TIME_METRICS]
    tested = len(times) * (1 + sum(old is not None and new is not None for old, new in pairs))
    alpha = max(FALSE_ALARMS / max(tested, 1), SMALLEST_ALPHA)
    limits = Limits(bound, floor_ns, alpha, tuple(metrics))
    rows = (*_run_rows(a, b, times, limits), *_memory_rows(a, b, limits), *_kernel_rows(pairs, metrics, limits))
    return Difference(rows, tuple(_output_changes(a, b)), tuple(_warnings(a, b, pairs)), limits)


def _run_rows(a: Report, b: Report, times: Sequence[str], limits: Limits) -> Iterator[Row]:
    if a.total is None and b.total is None:
        return
    # Whole runs are timed by the device's own marks: events on a GPU, the host's clock elsewhere.
    methods = tuple("events" if side.device and side.device.kind == "cuda" else "clock" for side in (a, b))
    for metric in times:
        yield time_row(Subject("run", "total"), metric, a.total, b.total, (methods[0], methods[1]), limits)


def _memory_rows(a: Report, b: Report, limits: Limits) -> Iterator[Row]:
    bytes_a, bytes_b = a.bytes, b.bytes
    for metric in MEMORY_METRICS:
        known = metric in bytes_a or metric in bytes_b
        if metric in limits.metrics or (known and metric in SHOWN):
            yield bytes_row("memory", "memory", metric, bytes_a.get(metric), bytes_b.get(metric), limits)


def _kernel_rows(pairs: Sequence[Pair], metrics: Sequence[str], limits: Limits) -> Iterator[Row]:
    chosen = [metric for metric in metrics if metric in TIME_METRICS or metric in KERNEL_BYTES]
    for old, new in pairs:
        for metric in chosen:
            if old is None or new is None:
                verdict = Verdict.added if old is None else Verdict.removed
                lone = new if old is None else old
                assert lone is not None, "a pair has a side"
                yield lone_row(lone, metric, verdict, judged=True)
            else:
                yield _pair_row(old, new, metric, limits)


def _pair_row(old: KernelRow, new: KernelRow, metric: str, limits: Limits) -> Row:
    old_name = old.name if old.name != new.name else None
    if metric in KERNEL_BYTES:
        member = KERNEL_BYTES[metric]
        sizes = getattr(old, member), getattr(new, member)
        return bytes_row("kernel", new.name, metric, *sizes, limits, op=new.op, old_name=old_name)
    subject = Subject("kernel", new.name, new.op, old_name)
    return time_row(subject, metric, old.times, new.times, (old.method, new.method), limits)


def _output_changes(a: Report, b: Report) -> Iterator[OutputChange]:
    before = {row.name: row for row in a.outputs}
    for row in b.outputs:
        old = before.pop(row.name, None)
        if old is None:
            yield OutputChange(row.name, "added")
        elif (old.dtype, old.shape) != (row.dtype, row.shape):
            yield OutputChange(row.name, f"was {old.dtype}{old.shape}, is {row.dtype}{row.shape}")
        elif old.sha256 != row.sha256:
            yield OutputChange(row.name, f"other bytes: sha256 was {old.sha256[:12]}…, is {row.sha256[:12]}…")
    if b.outputs or b.kernels:  # a plan has no outputs: none were removed
        for name in before:
            yield OutputChange(name, "removed")


def _warnings(a: Report, b: Report, pairs: Sequence[Pair]) -> Iterator[Warning]:
    """What makes the two hard to compare."""
    if a.graph.name != b.graph.name:
        yield Warning("W-DIFF-GRAPH", f"different graphs: {a.graph.name!r}, {b.graph.name!r}")
    if (bool(a.kernels), a.target) != (bool(b.kernels), b.target):
        kinds = [f"{'a run' if side.kernels else 'a plan'} for {side.target or 'unknown'}" for side in (a, b)]
        yield Warning("W-DIFF-KIND", f"different reports: {kinds[0]}, {kinds[1]}")
    for name in sorted(a.dims.keys() | b.dims.keys()):
        if a.dims.get(name) != b.dims.get(name):
            yield Warning("W-DIFF-DIMS", f"dimension {name}: {_text(a.dims.get(name))}, {_text(b.dims.get(name))}")
    yield from _device_warnings(a, b)
    lone = Counter("removed" if new is None else "added" for old, new in pairs if old is None or new is None)
    if lone:
        counts = ", ".join(f"{count} {what}" for what, count in sorted(lone.items()))
        yield Warning("W-DIFF-KERNELS", f"the graphs run different kernels: {counts}")
    for side, label in ((a, "A"), (b, "B")):
        if not side.ok:
            yield Warning("W-DIFF-FAILED", f"the run of {label} failed a check")


def _device_warnings(a: Report, b: Report) -> Iterator[Warning]:
    if a.device is None or b.device is None:
        return
    for what in ("kind", "name", "arch", "total_memory_bytes"):
        old, new = getattr(a.device, what), getattr(b.device, what)
        if old != new:
            yield Warning("W-DIFF-DEVICE", f"device {what}: {_text(old)}, {_text(new)}")
            return  # the rest follows from it
    for name in sorted(a.device.versions.keys() | b.device.versions.keys()):
        old, new = a.device.versions.get(name), b.device.versions.get(name)
        if old != new:
            yield Warning("W-DIFF-DRIVER", f"version of {name}: {_text(old)}, {_text(new)}")


def _text(value: object) -> str:
    return "none" if value is None else str(value)
