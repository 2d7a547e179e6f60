"""`plan-memory` on packing problems: a minimalloc CSV read, packed and shown; plans written as such a CSV."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kgrun.cli import timeout
from kgrun.cli.output import Output, write_text
from kgrun.cli.pictures import Pictures, sketch_lines
from kgrun.cli.progress import phase
from kgrun.cli.render.documents import planner_rows
from kgrun.cli.render.planners import planner_sections
from kgrun.graphs.errors import DoesNotFit, GraphError, InternalError, Place, UsageError
from kgrun.graphs.records import dataclass
from kgrun.graphs.version import __version__

if TYPE_CHECKING:
    from kgrun.cli.render.memory_map import MemoryMap
    from kgrun.cli.render.table import Table
    from kgrun.runtime.memory.compare_planners import PlannerRow
    from kgrun.runtime.memory.packing import Change, Packing, Problem
    from kgrun.runtime.memory.plan_types import MemoryPlan
    from kgrun.runtime.program import Program

Row = dict[str, Any]
CULPRITS = 20  # named in a message, at most


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """How to plan, and what to make of the plan besides the report.

    Attributes:
        seconds: how long a planner may search.
        limit: most bytes, None for no limit.
        export: file for the dynamic buffers with their offsets.
        compare: also plan with every planner.
    """

    planner: str
    seconds: float
    limit: int | None
    export: str | None
    pictures: Pictures
    compare: bool

    def rows(self, subject: Program | Problem) -> Sequence[PlannerRow]:
        """The planners side by side; nothing where that was not asked for."""
        if not self.compare:
            return ()
        from kgrun.runtime.memory.compare_planners import compare_planners

        return compare_planners(subject, time_limit=self.seconds)


def plan_csv(file: Path, output: Output, request: PlanRequest) -> None:
    """Pack the problem of a CSV file and print the plan.

    Raises:
        UsageError: an unknown planner.
        GraphError: the file is no packing problem.
        DoesNotFit: no plan within the limit was found.
    """
    from kgrun.runtime.memory.packing import METHODS, PackOptions, verify, write_minimalloc_csv
    from kgrun.runtime.memory.solve import solve

    planner, limit = request.planner, request.limit
    if planner not in METHODS:
        raise UsageError(f"unknown planner {planner!r}", code="KG201", help=f"planners: {', '.join(METHODS)}")
    with phase(f"packing {file}", output):
        problem = read_problem(file)
        started = time.perf_counter_ns()
        packing = solve(problem, PackOptions(method=planner, time_limit=request.seconds, capacity=limit))
        faults = verify(problem, packing.offsets)
        spent = time.perf_counter_ns() - started
        planners = request.rows(problem)
    if faults:
        raise InternalError(f"the plan is wrong: {faults[0].message}")
    if limit is not None and packing.height > limit:
        _refuse(problem, packing, request, limit)
    if request.pictures.wanted:
        request.pictures.draw(_picture(file, problem, packing))
    if request.export is not None:
        timeout.commit()
        write_text(Path(request.export), write_minimalloc_csv(problem, packing.offsets))
    output.emit(
        document=lambda: packing_document(file, problem, packing, limit, spent) | planner_rows(planners),
        report=lambda: [
            *packing_report(file, problem, packing, spent),
            *sketch_lines(_picture(file, problem, packing)),
            *planner_sections(planners),
        ],
        rows=lambda: packing_rows(problem, packing),
    )


def _picture(file: Path, problem: Problem, packing: Packing) -> MemoryMap:
    from kgrun.cli.render.memory_map import packing_map

    return packing_map(
        problem, packing.offsets, file.name, lower_bound=packing.lower_bound, optimal=packing.optimal,
        planner=packing.method,
    )  # fmt: skip


def read_problem(file: Path) -> Problem:
    """The problem of a minimalloc CSV (also gzipped); GraphError with the line at fault."""
    import zlib

    from kgrun.runtime.memory.packing import PackingError, read_minimalloc_csv

    try:
        return read_minimalloc_csv(file)
    except FileNotFoundError:
        raise GraphError(f"no file {file}", code="KG301", where=str(file)) from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise GraphError(f"cannot read {file}: {reason}", code="KG301", where=str(file)) from None
    except PackingError as error:
        found = re.match(r"line (\d+): (.*)", str(error), re.DOTALL)
        line, message = (int(found[1]), found[2]) if found else (None, str(error))
        raise GraphError(message, code="KG390", where=Place(str(file), line=line)) from None


def _refuse(problem: Problem, packing: Packing, request: PlanRequest, limit: int) -> NoReturn:
    from kgrun.runtime.memory.packing import PackOptions, explain_infeasible

    why = explain_infeasible(problem, limit, PackOptions(method=request.planner, time_limit=request.seconds))
    culprits = [problem.name(index) for index in why.culprits] if why else []
    least = min(packing.height, why.smallest_limit) if why else packing.height
    proven = why.proven if why else packing.lower_bound > limit
    shown = ", ".join(culprits[:CULPRITS])
    shown += f" and {len(culprits) - CULPRITS:,} more" if len(culprits) > CULPRITS else ""
    at = f" at time {why.time}" if why else ""
    if proven:
        message = f"no plan fits {limit:,} bytes: these cannot be placed together{at}: {shown}"
    else:
        message = f"no plan within {limit:,} bytes was found, not proven that there is none; in the way{at}: {shown}"
    quality = "the least possible" if least == packing.lower_bound else "not proven to be the least"
    advice = f"; {_advice(problem, why.change)}" if why and why.change else ""
    raise DoesNotFit(
        message,
        code="KG401",
        help=f"the smallest limit found is {least:,} bytes, {quality}{advice}",
        details={
            "limit_bytes": limit,
            "lower_bound_bytes": packing.lower_bound,
            "smallest_feasible_limit_bytes": least,
            "proven": proven,
            "time": why.time if why else None,
            "culprits": culprits,
        },
    )


def _advice(problem: Problem, change: Change) -> str:
    doing = {"shorten": "a shorter life of", "offload": "moving out", "shrink": "a smaller"}[change.kind]
    return f"{doing} {problem.name(change.buffer)} would lower the bound by {change.saves:,} bytes"


def packing_document(file: Path, problem: Problem, packing: Packing, limit: int | None, spent: int) -> Row:
    """`plan-memory X.csv --json`."""
    return {
        "kgrun": __version__,
        "file": str(file),
        "memory": {
            "static_bytes": 0,
            "dynamic_bytes": packing.height,
            "peak_bytes": packing.height,
            "lower_bound_bytes": packing.lower_bound,
            "no_reuse_bytes": sum(problem.occupied_column()),
            "optimal": packing.optimal,
            "planner": packing.method,
            "plan_ns": spent,
            "limit_bytes": limit,
        },
        "tensors": packing_rows(problem, packing),
    }


def packing_rows(problem: Problem, packing: Packing) -> list[Row]:
    """A row each buffer; its life [lower, upper) as first and last step, several lives as `lives` besides."""
    return [_packing_row(problem, packing, i) for i in range(len(problem))]


def _packing_row(problem: Problem, packing: Packing, i: int) -> Row:
    spans = sorted([(problem.lowers[i], problem.uppers[i]), *problem.extra_intervals.get(i, ())])
    row = {
        "name": problem.name(i),
        "class": "buffer",
        "nbytes": problem.sizes[i],
        "aligned_bytes": problem.occupied(i),
        "space": "dynamic",
        "offset": packing.offsets[i],
        "first_step": spans[0][0],
        "last_step": spans[-1][1] - 1,
    }
    return row | ({"lives": [[low, high - 1] for low, high in spans]} if len(spans) > 1 else {})


def packing_report(file: Path, problem: Problem, packing: Packing, spent: int) -> Iterator[Table | str]:
    """The plan as text."""
    from kgrun.cli.render.memory import bound_text
    from kgrun.cli.render.table import Table
    from kgrun.cli.render.text import bytes_text, count_text, percent, time_text

    rows = [
        (row["name"], f"{row['offset']:,}", f"{row['nbytes']:,}", f"{row['first_step']}-{row['last_step']}")
        for row in packing_rows(problem, packing)
    ]
    total = sum(problem.occupied_column())
    yield f"{file}: {count_text(len(problem), 'buffer')}"
    yield Table("Placement", ("buffer", ">offset", ">bytes", ">steps"), rows, rest="buffers")
    yield ""
    yield f"  height       {packing.height:,} bytes ({bytes_text(packing.height)})"
    yield f"               {bound_text(packing.height, packing.lower_bound, packing.optimal)}"
    saved = total - packing.height
    yield f"  reuse saves  {bytes_text(saved)} of {bytes_text(total)} ({percent(saved, total)} %)"
    yield f"  planned      by {packing.method} in {time_text(spent)}, verified"


def export_plan(file: Path, plan: MemoryPlan) -> None:
    """Write a graph's dynamic memory as a minimalloc CSV: buffers with their lives, and where the plan puts them."""
    from kgrun.runtime.memory.packing import Problem, write_minimalloc_csv

    places = [p for p in plan.placements if p.space == "dynamic"]
    problem = Problem(
        [p.first_step for p in places], [p.spans[0][1] + 1 for p in places], [p.nbytes for p in places],
        [p.name for p in places], alignment=plan.alignment,
        extra_intervals={i: [(a, b + 1) for a, b in p.lives[1:]] for i, p in enumerate(places) if p.lives},
    )  # fmt: skip
    write_text(file, write_minimalloc_csv(problem, [p.offset for p in places]))
