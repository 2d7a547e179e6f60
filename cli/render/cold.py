"""The tables of `--cold-report`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kgrun.cli.render.table import Table
from kgrun.cli.render.text import percent, time_text

if TYPE_CHECKING:
    from kgrun.cli.cold import ColdReport


def cold_sections(report: ColdReport) -> Iterator[Table]:
    """Phases in order with their share, then what was compiled, slowest first."""
    total = report.total_ns
    rows = [(row.phase, time_text(row.ns), percent(row.ns, total), row.note) for row in report.rows]
    rows.append(("to the first result", time_text(total), percent(total, total), ""))
    yield Table("Cold start", ("phase", ">time", ">%", "note"), rows)
    if report.compiled:
        cells = [
            (row.name, row.kind, time_text(row.ns), "cache" if row.from_cache else "compiled")
            for row in sorted(report.compiled, key=lambda row: -row.ns)
        ]
        yield Table(
            "Compiled (side by side where there are several)", ("source", "to", ">time", "from"), cells, "sources"
        )
