"""Several planners side by side: the table of `plan-memory --compare`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kgrun.cli.render.table import Table

if TYPE_CHECKING:
    from kgrun.runtime.memory.compare_planners import PlannerRow


def planner_sections(rows: Sequence[PlannerRow]) -> Iterator[Table]:
    """The table, where there is anything to compare."""
    if rows:
        yield planner_table(rows)


def planner_table(rows: Sequence[PlannerRow]) -> Table:
    """A row each planner: the arena's height, its distance from the bound, the CPU time it took."""
    cells = [
        (
            row.planner,
            f"{row.height:,}",
            f"{row.ratio:.4f}" if row.ratio is not None else "-",
            f"{1000 * row.cpu_seconds:.1f} ms",
            "yes" if row.optimal else "no",
        )
        for row in rows
    ]
    return Table("Planners", ("planner", ">bytes", ">÷ lower bound", ">CPU time", "the least possible"), cells)
