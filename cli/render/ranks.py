"""What collectives moved and how the ranks of a job compare: tables, members of the JSON document, trace events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kgrun.cli.render.table import Table
from kgrun.cli.render.text import bytes_text, rate_text, time_text
from kgrun.runtime.program import LibraryCall

if TYPE_CHECKING:
    from kgrun.runtime.collectives.summary import CollectiveRow, RankSummary, Spread
    from kgrun.runtime.report import RunReport

Row = dict[str, Any]


def rank_sections(report: RunReport) -> Iterator[Table | str]:
    """Collectives, then the ranks; nothing where there are none."""
    rows = _collectives(report)
    if rows:
        yield _collective_table(rows)
    if report.ranks is not None:
        yield _rank_table(report.ranks)
        yield from _spread_lines(report.ranks)


def _collectives(report: RunReport) -> list[CollectiveRow]:
    if not any(isinstance(step.work, LibraryCall) for step in report.program.steps):
        return []
    from kgrun.runtime.collectives.summary import collective_rows

    return collective_rows(report)


def _collective_table(rows: list[CollectiveRow]) -> Table:
    return Table(
        "Collectives",
        ("collective", "op", ">ranks", ">bytes", ">median", ">algorithm", ">bus", ">exposed", ">hidden"),
        [
            (
                row.name, row.op, str(row.ranks), bytes_text(row.nbytes), time_text(row.time_ns),
                rate_text(row.algorithm_bytes_per_s, "B/s"), rate_text(row.bus_bytes_per_s, "B/s"),
                time_text(row.exposed_ns), time_text(row.hidden_ns),
            )
            for row in rows
        ],
        rest="collectives",
    )  # fmt: skip


def _rank_table(found: RankSummary) -> Table:
    rows = [
        (str(r.rank), r.host, r.device, time_text(r.total_ns), time_text(r.own_ns), bytes_text(r.measured_peak_bytes))
        for r in found.ranks
    ]
    return Table("Ranks", ("rank", "host", "device", ">run", ">own work", ">peak"), rows, rest="ranks")


def _spread_lines(found: RankSummary) -> Iterator[str]:
    if found.total is not None:
        yield f"  run          {_spread_text(found.total)}"
    if found.straggler is not None:
        own = time_text(found.ranks[found.straggler].own_ns)
        yield f"  straggler    rank {found.straggler}: {own} outside of collectives; the others wait for it there"


def _spread_text(spread: Spread) -> str:
    low, middle, high = (time_text(value) for value in (spread.min, spread.median, spread.max))
    return f"min {low}, median {middle}, max {high} (rank {spread.slowest})"


def rank_members(report: RunReport) -> Row:
    """The members `collectives` and `ranks`."""
    from kgrun.cli.render.documents import members

    found = report.ranks
    return {
        "collectives": [members(row) for row in _collectives(report)],
        "ranks": None
        if found is None
        else {
            "ranks": [members(row) for row in found.ranks],
            "total_ns": None if found.total is None else members(found.total),
            "kernels": [members(row) for row in found.kernels],
            "straggler": found.straggler,
        },
    }


def rank_events(report: RunReport, process: int) -> Iterator[Row]:
    """Trace events of the other ranks, a process a rank; rank 0 is `process`. Each clock starts with its run."""
    if report.ranks is None:
        return
    tracks = {name: n for n, name in enumerate(dict.fromkeys(s.stream for s in report.program.steps), start=1)}
    for row, spans in zip(report.ranks.ranks[1:], report.ranks.spans[1:], strict=True):
        common = {"pid": process + row.rank}
        name = f"rank {row.rank} on {row.device}, {row.host}"
        yield {"ph": "M", **common, "name": "process_name", "args": {"name": name}}
        for stream, track in tracks.items():
            yield {"ph": "M", **common, "tid": track, "name": "thread_name", "args": {"name": f"stream {stream}"}}
        free_from = dict.fromkeys(tracks.values(), 0)
        for index, start, duration in spans:
            step = report.program.steps[index]
            track = tracks[step.stream]
            begin, end = max(start, free_from[track]), max(start + duration, free_from[track])
            free_from[track] = end
            spot = {"tid": track, "ts": begin / 1000, "dur": (end - begin) / 1000}
            yield {"ph": "X", **common, **spot, "name": step.name, "cat": step.op, "args": {"op": step.op}}
