"""A comparison of two reports as text, as a JSON document, as CSV rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kgrun.cli.render.documents import warning_rows
from kgrun.cli.render.table import Table
from kgrun.cli.render.text import bytes_text, time_text
from kgrun.graphs.records import dataclass
from kgrun.graphs.version import __version__
from kgrun.runtime.diff import Difference, Report, Row, Verdict

if TYPE_CHECKING:
    Fields = dict[str, Any]

# What a reader looks for first.
_ORDER = {
    verdict: place
    for place, verdict in enumerate(
        (
            Verdict.regressed,
            Verdict.improved,
            Verdict.added,
            Verdict.removed,
            Verdict.incomparable,
            Verdict.unchanged,
        )
    )
}


@dataclass(frozen=True, slots=True)
class Sides:
    """The two reports and the files they came from."""

    file_a: str
    file_b: str
    a: Report
    b: Report


def ranked(rows: Sequence[Row]) -> list[Row]:
    """Rows in the order of interest: the whole run, then by verdict, what is judged first, the largest change first."""

    def key(row: Row) -> tuple[bool, int, bool, float]:
        change = row.change
        return (
            row.kind != "run",
            _ORDER[row.verdict],
            not row.judged,
            -abs(change) if change is not None else float("-inf"),
        )

    return sorted(rows, key=key)


def diff_document(sides: Sides, found: Difference) -> Fields:
    """`diff --json`."""
    return {
        "kgrun": __version__,
        "a": _side(sides.file_a, sides.a),
        "b": _side(sides.file_b, sides.b),
        "max_regress": found.limits.bound,
        "metrics": list(found.limits.metrics),
        "floor_ns": found.limits.floor_ns,
        "alpha": found.limits.alpha,
        "counts": found.counts,
        "rows": [row_fields(row) for row in found.rows],
        "outputs": [{"name": each.name, "what": each.what} for each in found.outputs],
        "warnings": warning_rows(found.warnings),
    }


def _side(file: str, report: Report) -> Fields:
    return {
        "file": file,
        "kgrun": report.kgrun,
        "graph": report.graph.name,
        "device": report.device.name if report.device else None,
        "samples": has_samples(report),
    }


def has_samples(report: Report) -> bool:
    """Whether the report holds the times themselves."""
    return bool(report.total_samples_ns) or any(kernel.samples_ns for kernel in report.kernels)


def row_fields(row: Row) -> Fields:
    """One row as plain values."""
    return {
        "kind": row.kind,
        "name": row.name,
        "old_name": row.old_name,
        "op": row.op,
        "metric": row.metric,
        "unit": row.unit,
        "a": row.a,
        "b": row.b,
        "change": row.change,
        "verdict": row.verdict.value,
        "judged": row.judged,
        "p": row.p,
        "note": row.note,
    }


def change_text(row: Row) -> str:
    """`+12.3 %`; `new` where A is 0; `-` where a side is missing."""
    if row.a is None or row.b is None:
        return "-"
    change = row.change
    if change is None:
        return "new" if row.b else "±0.0 %"
    return f"{100 * change:+.1f} %" if abs(change) >= 0.0005 else "±0.0 %"


def value_text(row: Row, value: int | None) -> str:
    """A time or a number of bytes."""
    if value is None:
        return "-"
    return time_text(value) if row.unit == "ns" else bytes_text(value)


def name_text(row: Row) -> str:
    """The name, and what it was called before."""
    return f"{row.name} (was {row.old_name})" if row.old_name is not None else row.name


def verdict_text(row: Row) -> str:
    """The verdict; regressions that are not judged say so."""
    if row.verdict is Verdict.regressed and not row.judged:
        return "larger, not judged"
    return row.verdict.value


def count_line(found: Difference) -> str:
    """`2 regressed, 63 unchanged`, and by which bound."""
    texts = Counter(verdict_text(row) for row in ranked(found.rows))
    counts = ", ".join(f"{count:,} {text}" for text, count in texts.items())
    return f"{counts or 'nothing to compare'} (bound {100 * found.limits.bound:g} %)"


def head_text(sides: Sides) -> str:
    """What is compared."""
    device = f" on {sides.b.device.name}" if sides.b.device and sides.b.device.name else ""
    return f"{sides.b.graph.name}{device}: {sides.file_a} → {sides.file_b}"


def hint_lines(sides: Sides, found: Difference) -> Iterator[str]:
    """What would make the comparison say more."""
    if any(row.note and row.note.startswith("too few") for row in found.rows):
        yield "Some rows have too few samples to be told from noise: `--iterations 30` or more helps."
    elif sides.a.kernels and not (has_samples(sides.a) and has_samples(sides.b)):
        yield "Compared by summaries; `execute --json --samples` tells smaller changes from noise."


def diff_sections(sides: Sides, found: Difference, verbose: bool) -> Iterator[Table | str]:
    """The text report."""
    from kgrun.cli.render.memory import warning_sections

    yield head_text(sides)
    cells = [
        (
            verdict_text(row), name_text(row), row.metric, value_text(row, row.a), value_text(row, row.b),
            change_text(row), row.note or "",
        )
        for row in ranked(found.rows)
    ]  # fmt: skip
    columns = ("verdict", "name", "metric", ">A", ">B", ">change", "note")
    yield Table("Comparison", columns, cells, rest="rows", optional=("note",))
    if found.outputs:
        yield Table("Outputs", ("output", "what"), [(each.name, each.what) for each in found.outputs], rest="outputs")
    yield ""
    yield count_line(found)
    yield from hint_lines(sides, found)
    yield from warning_sections(found.warnings, verbose)
