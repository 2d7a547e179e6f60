"""The checks' part of a report: what was checked, what was found, what was not run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kgrun.cli.render.table import Table
from kgrun.cli.render.text import count_text

if TYPE_CHECKING:
    from kgrun.runtime.report import RunReport


def check_sections(report: RunReport) -> Iterator[Table | str]:
    """A line for the checks; a table of what they found; a table of skipped kernels."""
    if report.checked:
        found = count_text(len(report.findings), "finding") if report.findings else "nothing found"
        yield f"  checks       {', '.join(report.checked)}: {found}"
    if report.findings:
        rows = [
            (each.check, each.node, each.tensor or "-", str(each.where or "-"), f"{each.count:,}")
            for each in report.findings
        ]
        yield Table("Findings", ("check", "kernel", "tensor", "where", ">times"), rows, rest="findings")
    if report.skipped:
        left = [(each.name, each.op, each.reason, str(each.where or "-")) for each in report.skipped]
        yield Table("Not run", ("kernel", "op", "reason", "where"), left, rest="kernels")
    if report.uncomputed:
        yield f"  no result in {', '.join(report.uncomputed)}"


def check_members(report: RunReport) -> dict[str, Any]:
    """The members `checked`, `checks`, `skipped` and `uncomputed` of a run's document."""
    skipped = [
        {"name": s.name, "op": s.op, "reason": s.reason, "where": str(s.where) if s.where else None}
        for s in report.skipped
    ]
    return {
        "checked": list(report.checked),
        "checks": [finding.to_json() for finding in report.findings],
        "skipped": skipped,
        "uncomputed": list(report.uncomputed),
    }
