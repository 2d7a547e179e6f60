"""The memory part of the text report: bytes by class, the plan against its bounds, the peak, in-place decisions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kgrun.cli.render.lifetimes import bytes_by_class, live_at
from kgrun.cli.render.pool import pool_lines
from kgrun.cli.render.table import Table
from kgrun.cli.render.text import bytes_text, count_text, percent, time_text
from kgrun.graphs.bound import Warning
from kgrun.graphs.errors import format_path
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.program import Decision, Program

CONTRIBUTORS = 5  # largest tensors named at the peak


def memory_sections(program: Program, plan: MemoryPlan, measured: int | None = None) -> Iterator[Table | str]:
    """Table of classes, then the sums: planned, bound, reuse, peak; `measured` bytes where there was a run."""
    rows = [
        (
            str(row.memory_class),
            ", ".join(row.regions),
            bytes_text(row.nbytes),
            str(row.count),
        )
        for row in bytes_by_class(plan.placements)
    ]
    yield Table("Memory by class", ("class", "region", ">bytes", ">buffers"), rows)
    yield ""
    yield from memory_lines(program, plan, measured)


def memory_lines(program: Program, plan: MemoryPlan, measured: int | None = None) -> Iterator[str]:
    """The sums as lines."""
    yield f"  static       {bytes_text(plan.static_bytes)}"
    if not plan.planned:
        turn = bytes_text(plan.no_reuse_bytes)
        yield f"  dynamic      {bytes_text(plan.dynamic_bytes)} at once, of {turn} taken in turn"
        yield f"  in all       {bytes_text(plan.peak_bytes)}, node by node: nothing was planned"
        if measured is not None:
            yield f"  measured     {bytes_text(measured)}"
        return
    quality = bound_text(plan.dynamic_bytes, plan.lower_bound_bytes, plan.optimal)
    yield f"  dynamic      {bytes_text(plan.dynamic_bytes)}, {quality}"
    saved = plan.no_reuse_bytes - plan.dynamic_bytes
    yield (
        f"  reuse saves  {bytes_text(saved)} of {bytes_text(plan.no_reuse_bytes)}"
        f" ({percent(saved, plan.no_reuse_bytes)} %)"
    )
    yield from _peak_lines(program, plan)
    yield from pool_lines(program, plan)
    yield f"  planned      {bytes_text(plan.peak_bytes)}, by {plan.planner} in {time_text(plan.plan_ns)}, verified"
    if measured is not None:
        more = measured - plan.peak_bytes
        note = "" if not more else f" ({bytes_text(abs(more))} {'more' if more > 0 else 'less'} than planned)"
        yield f"  measured     {bytes_text(measured)}{note}"


def bound_text(height: int, bound: int, optimal: bool) -> str:
    """How good a plan is: proven best, or its distance from the lower bound."""
    if optimal:
        return f"the least possible (lower bound {bytes_text(bound)})"
    over = f"{100 * (height - bound) / bound:.2f} % above" if bound else "above"
    return f"{over} the lower bound {bytes_text(bound)}, not proven to be the least"


def _peak_lines(program: Program, plan: MemoryPlan) -> Iterator[str]:
    if plan.peak_step is None:
        return
    live = live_at(plan, plan.peak_step)
    total = sum(place.aligned for place in live)
    yield f"  peak         step {plan.peak_step}, {program.steps[plan.peak_step].name}: {bytes_text(total)} live"
    named = ", ".join(f"{place.name} {bytes_text(place.aligned)}" for place in live[:CONTRIBUTORS])
    rest = len(live) - CONTRIBUTORS
    if named:
        yield f"               {named}{f', {rest:,} more' if rest > 0 else ''}"


def placement_table(plan: MemoryPlan) -> Table:
    """A row each buffer: class, region, offset, bytes, lifetime."""
    rows = [
        (p.name, str(p.memory_class), p.space, f"{p.offset:,}", f"{p.nbytes:,}", f"{p.first_step}-{p.last_step}")
        for p in plan.placements
    ]
    columns = ("tensor", "class", "region", ">offset", ">bytes", ">steps")
    return Table("Placement", columns, rows, rest="tensors")


def decision_sections(decisions: Iterable[Decision]) -> Iterator[Table | str]:
    """In-place requests, granted or refused, with the reason."""
    rows = [(d.node, d.output, d.input, "granted" if d.granted else "refused", d.reason) for d in decisions]
    if rows:
        yield Table("In place", ("node", "output", "input", "decision", "reason"), rows, rest="requests")


def warning_sections(warnings: Iterable[Warning], verbose: bool) -> Iterator[str]:
    """Warnings, a line each; a long list is cut unless `verbose`."""
    found = list(warnings)
    shown = found if verbose else found[:20]
    if found:
        yield ""
    for warning in shown:
        place = format_path(warning.path)
        yield f"warning[{warning.code}]: {warning.message}" + (f" (at {place})" if place else "")
    if len(found) > len(shown):
        yield f"… and {count_text(len(found) - len(shown), 'more warning')}; -v and --json have all of them"
