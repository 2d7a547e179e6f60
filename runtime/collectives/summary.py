"""What the ranks' reports say together: each collective's bandwidth, the times of all ranks, and who holds them up."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import Any

from kgrun.graphs.records import dataclass
from kgrun.runtime.collectives.lowering import ENGINES
from kgrun.runtime.program import LibraryCall, Program, Step
from kgrun.runtime.report import RunReport

STRAGGLES = 1.2  # times what the median rank spends outside of collectives,
_MATTERS = 0.05  # where the difference is so much of a run


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """One collective of a run.

    Attributes:
        nbytes: what the algorithm works on, as NCCL's tests count it: all ranks' parts together where each has one.
        ranks: how many take part.
        time_ns: median; None where it was not timed.
        algorithm_bytes_per_s: nbytes ÷ time. `bus_bytes_per_s`: the same times what each byte must cross the slowest
            link, so that it compares with the link's speed whatever the number of ranks; None of one rank.
        hidden_ns, exposed_ns: of the traced iteration, time in which other streams worked, and the rest. Of a CUDA
            graph, inside of which nothing is traced: what its runs take beyond the other steps is exposed, shared out
            over the collectives by their times.
    """

    name: str
    op: str
    nbytes: int
    ranks: int
    time_ns: int | None
    algorithm_bytes_per_s: int | None
    bus_bytes_per_s: int | None
    exposed_ns: int | None
    hidden_ns: int | None


@dataclass(frozen=True, slots=True)
class Spread:
    """Medians of one step, or of whole runs, over the ranks; `slowest` is a rank. Nanoseconds."""

    name: str
    min: int
    median: int
    max: int
    slowest: int


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank: where it ran, its median run, the part of that outside of collectives, and its peak memory."""

    rank: int
    host: str
    device: str
    total_ns: int | None
    own_ns: int | None
    measured_peak_bytes: int


@dataclass(frozen=True, slots=True)
class RankSummary:
    """All ranks of a job.

    Attributes:
        straggler: the rank whose own work takes much longer than the others', None where they are alike.
        spans: of each rank, (step, start, duration) of its traced iteration.
    """

    ranks: tuple[RankRow, ...]
    total: Spread | None
    kernels: tuple[Spread, ...]
    straggler: int | None
    spans: tuple[tuple[tuple[int, int, int], ...], ...] = ()


def bus_factor(routine: str, ranks: int) -> float:
    """How often a byte crosses the slowest link, for the best algorithm (NCCL's tests, PERFORMANCE.md)."""
    if routine == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if routine in ("all_gather", "reduce_scatter", "all_to_all") else 1.0


def moved_bytes(call: LibraryCall) -> int:
    """Bytes that a collective works on: the larger of what goes in and what comes out."""
    config = call.config
    return int(config["itemsize"] * max(sum(config["counts"]), sum(config["result_counts"])))


def is_collective(step: Step) -> bool:
    """Whether the step is a call of an engine between ranks."""
    return isinstance(step.work, LibraryCall) and step.work.library in ENGINES


def collective_rows(report: RunReport) -> list[CollectiveRow]:
    """A row each collective, in issue order."""
    in_graph = report.not_replayed is None
    hidden = _hidden_in_graph(report) if in_graph else _hidden(report.program, report.timeline)
    rows = []
    for step, info in zip(report.program.steps, report.steps, strict=True):
        if not is_collective(step):
            continue
        assert isinstance(step.work, LibraryCall)
        nbytes, pair = moved_bytes(step.work), step.work.routine in ("send", "receive")
        ranks = 2 if pair else len(step.work.config["members"])
        took = info.times.median if info.times is not None else None
        algorithm = nbytes * 1_000_000_000 // took if took else None
        bus = None if algorithm is None or ranks < 2 else int(algorithm * bus_factor(step.work.routine, ranks))
        spent = hidden.get(step.index)
        rows.append(
            CollectiveRow(
                step.name, step.op, nbytes, ranks, took, algorithm, bus,
                None if spent is None else spent[0] - spent[1], None if spent is None else spent[1],
            )
        )  # fmt: skip
    return rows


def _hidden(program: Program, timeline: Sequence[tuple[int, int, int]]) -> dict[int, tuple[int, int]]:
    """By collective step, its duration and how much of it steps of other streams cover."""
    found = {}
    for index, start, duration in timeline:
        step, end = program.steps[index], start + duration
        if not is_collective(step):
            continue
        others = sorted(
            (max(s, start), min(s + d, end))
            for i, s, d in timeline
            if program.steps[i].stream != step.stream and s < end and s + d > start
        )
        covered, reached = 0, start
        for s, e in others:
            covered += max(0, e - max(s, reached))
            reached = max(reached, e)
        found[index] = (duration, covered)
    return found


def _hidden_in_graph(report: RunReport) -> dict[int, tuple[int, int]]:
    """As `_hidden`, from the times of steps alone and of whole runs; nothing where some are not known."""
    if report.total is None or any(info.times is None for info in report.steps):
        return {}
    alone = [max(0, info.times.median - info.floor_ns) for info in report.steps if info.times is not None]
    steps = list(zip(report.program.steps, alone, strict=True))
    together = sum(took for step, took in steps if is_collective(step))
    others = sum(took for step, took in steps if not is_collective(step))
    exposed = min(max(0, report.total.median - others), together)
    return {
        step.index: (took, took - (exposed * took // together if together else 0))
        for step, took in steps
        if is_collective(step)
    }


def told(report: RunReport) -> dict[str, Any]:
    """What this rank tells rank 0 of its run: plain values."""
    medians = [None if step.times is None else step.times.median for step in report.steps]
    total = report.total.median if report.total is not None else None
    waited = sum(m or 0 for m, step in zip(medians, report.program.steps, strict=True) if is_collective(step))
    device = report.device
    return {
        "host": socket.gethostname(),
        "device": device.name if device.kind == "cpu" else f"{device.kind}:{device.index} {device.name}",
        "total": total,
        "own": None if total is None else max(0, total - waited),
        "peak": report.measured_peak_bytes,
        "names": [step.name for step in report.program.steps],
        "medians": medians,
        "spans": [list(span) for span in report.timeline],
    }


def merged(said: Sequence[Mapping[str, Any]]) -> RankSummary:
    """The ranks' words as one summary."""
    rows = tuple(
        RankRow(rank, each["host"], each["device"], each["total"], each["own"], each["peak"])
        for rank, each in enumerate(said)
    )
    kernels = []
    for i, name in enumerate(said[0]["names"]):
        medians = [each["medians"][i] if each["names"][i : i + 1] == [name] else None for each in said]
        found = _spread(name, medians)
        if found is not None:
            kernels.append(found)
    own = [each["own"] for each in said]
    straggler = None
    if None not in own and len(own) > 1:
        longest, usual = max(own), median_low(own)
        if longest > STRAGGLES * usual and longest - usual > _MATTERS * said[0]["total"]:
            straggler = own.index(longest)
    spans = tuple(tuple((s[0], s[1], s[2]) for s in each["spans"]) for each in said)
    return RankSummary(rows, _spread("total", [each["total"] for each in said]), tuple(kernels), straggler, spans)


def _spread(name: str, medians: Sequence[int | None]) -> Spread | None:
    if not medians or any(m is None for m in medians):
        return None
    known = [m for m in medians if m is not None]
    return Spread(name, min(known), median_low(known), max(known), known.index(max(known)))
