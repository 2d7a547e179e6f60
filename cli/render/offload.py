"""What waits on the host and when it moves: the part of the text reports and the `offload` member of the documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kgrun.cli.render.table import Table
from kgrun.cli.render.text import bytes_text, count_text, time_text

if TYPE_CHECKING:
    from kgrun.runtime.memory.offload.records import Bounds, Home, Offload, TransferRow
    from kgrun.runtime.program import Program
    from kgrun.runtime.report import RunReport

Row = dict[str, Any]


def offload_row(program: Program, report: RunReport | None = None) -> Row | None:
    """The member `offload`; None where nothing moves."""
    found = program.offload
    if found is None:
        return None
    return {
        "mode": found.mode,
        "limit_bytes": found.limit,
        "host_bytes": found.host_bytes,
        "in_bytes": found.in_bytes,
        "out_bytes": found.out_bytes,
        "dropped_bytes": found.dropped_bytes,
        "profile": found.profile,
        "in_bytes_per_s": round(found.rates.in_bytes_per_s),
        "out_bytes_per_s": round(found.rates.out_bytes_per_s),
        "predicted_ns": found.predicted_ns,
        "compute_ns": found.compute_ns,
        "exposed_ns": found.exposed_ns,
        "measured_exposed_ns": measured_exposed(program, report),
        "bounds": bounds_row(found.bounds),
        "transfers": [{name: getattr(row, name) for name in row.__dataclass_fields__} for row in found.transfers],
        "tensors": [home_row(program, home) for home in found.homes],
    }


def bounds_row(bounds: Bounds | None) -> Row | None:
    """What no schedule can beat."""
    return None if bounds is None else {name: getattr(bounds, name) for name in bounds.__dataclass_fields__}


def home_row(program: Program, home: Home) -> Row:
    """A tensor that comes and goes: the inclusive spans of steps in which the device has it."""
    return {
        "name": home.name,
        "class": home.memory_class,
        "nbytes": home.nbytes,
        "host_offset": home.host_offset,
        "resident": [list(span) for span in _spans(program, home)],
        "between_runs": "device" if home.last is not None else "host" if home.persistent else None,
    }


def _spans(program: Program, home: Home) -> list[tuple[int, int]]:
    return sorted({span for index in home.buffers for span in program.buffers[index].lives})


def residency_row(program: Program, name: str | None) -> Row:
    """The member `residency` of an explained tensor that comes and goes; nothing for others."""
    home = program.offload.home_of(name) if program.offload is not None and name is not None else None
    return {} if home is None else {"residency": home_row(program, home)}


def residency_lines(program: Program, name: str | None) -> Iterator[str]:
    """When the device has a tensor that comes and goes: a line each stay and each transfer."""
    found = program.offload
    home = found.home_of(name) if found is not None and name is not None else None
    if found is None or home is None:
        return
    between = "the device" if home.last is not None else "the host"
    yield f"  residency    {bytes_text(home.nbytes)} with a place on the host; between runs on {between}"
    rows = [(span[0], f"on the device in steps {span[0]} to {span[1]}") for span in _spans(program, home)]
    for row in found.transfers:
        if row.tensor == home.name:
            way = "comes back" if row.direction == "in" else "is copied out"
            rows.append((row.step, f"step {row.step}: {way} ({row.name}), {_moment(row)} as predicted"))
    for _, text in sorted(rows):
        yield f"               {text}"


def _moment(row: TransferRow) -> str:
    return f"{time_text(row.start_ns)} to {time_text(row.end_ns)}"


def measured_exposed(program: Program, report: RunReport | None) -> int | None:
    """Time of a run beyond the sum of its steps without the transfers; None where steps were not timed."""
    if report is None or report.total is None:
        return None
    moves = {row.step for row in program.offload.transfers} if program.offload is not None else set()
    times = [step.times for i, step in enumerate(report.steps) if i not in moves]
    if any(each is None for each in times):
        return None
    return max(report.total.median - sum(each.median for each in times if each is not None), 0)


def offload_sections(program: Program, report: RunReport | None = None) -> Iterator[Table | str]:
    """The schedule as a table, then what it costs; nothing where nothing moves."""
    found = program.offload
    if found is None:
        return
    rows = [
        (
            row.name,
            row.direction,
            bytes_text(row.nbytes),
            row.after or "the start",
            row.before or "the end",
            time_text(row.start_ns),
            time_text(row.end_ns),
        )
        for row in found.transfers
    ]
    columns = ("transfer", "way", ">bytes", "after", "before", ">starts", ">ends")
    yield Table("Transfers", columns, rows, rest="transfers", optional=("after",))
    yield ""
    yield from _sums(found)
    exposed = measured_exposed(program, report)
    if report is not None and report.total is not None:
        more = f", {time_text(exposed)} of it exposed" if exposed is not None else ""
        off = 100 * (found.predicted_ns - report.total.median) / max(report.total.median, 1)
        yield f"  measured     {time_text(report.total.median)} a run{more}; predicted {off:+.1f} %"


def _sums(found: Offload) -> Iterator[str]:
    copied = f"copies {bytes_text(found.in_bytes)} in and {bytes_text(found.out_bytes)} out"
    dropped = f"drops {bytes_text(found.dropped_bytes)}"
    held = f"{count_text(len(found.homes), 'tensor')}, {bytes_text(found.host_bytes)}"
    yield f"  on the host  {held}; a run {copied}, {dropped}"
    link = f"{found.rates.in_bytes_per_s / 1e9:.3g} GB/s in, {found.rates.out_bytes_per_s / 1e9:.3g} out"
    yield (
        f"  predicted    {time_text(found.predicted_ns)} a run: steps {time_text(found.compute_ns)}, exposed transfers "
        f"{time_text(found.exposed_ns)} (times: {found.profile}, {link})"
    )
    bounds = found.bounds
    if bounds is not None:
        lp = time_text(bounds.lp_ns) if bounds.lp_ns is not None else f"not computed ({bounds.lp_note})"
        yield (
            f"  bounds       steps {time_text(bounds.compute_ns)}, in {time_text(bounds.in_ns)}, out "
            f"{time_text(bounds.out_ns)}, fractional offload {lp}"
        )
