"""Several planners on the same problem, side by side: what `plan-memory --compare` prints."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kgrun.graphs.errors import InternalError, UsageError
from kgrun.graphs.records import dataclass
from kgrun.runtime.memory.packing.problem import Problem
from kgrun.runtime.memory.solve import TooLarge, solve
from kgrun.runtime.program import Program


@dataclass(frozen=True, slots=True)
class PlannerRow:
    """What one planner made of the problem.

    Attributes:
        height: bytes of the packed arena.
        lower_bound: bytes no plan can go below, the same in every row.
        ratio: height ÷ lower bound; 1.0 where both are 0, None where only the bound is.
        seconds, cpu_seconds: wall and CPU time of the whole call, the verifier included.
        optimal: proven to be the least.
    """

    planner: str
    height: int
    lower_bound: int
    ratio: float | None
    seconds: float
    cpu_seconds: float
    optimal: bool


def compare_planners(
    subject: Program | Problem, planners: Sequence[str] | None = None, time_limit: float = 2.0
) -> tuple[PlannerRow, ...]:
    """A row for each planner that can take the problem, in the order given; every plan is verified.

    Args:
        subject: a program, of which the dynamic memory is planned, or a packing problem.
        planners: names of `plan.PLANNERS`, and for a program "pool", what an allocator makes of it step by step; all of
            them by default.
        time_limit: seconds each may search.

    Raises:
        UsageError: KG201, an unknown planner.
        InternalError: KG101, a planner made a wrong plan.
    """
    from kgrun.runtime.memory.plan import PLANNERS

    known = (*PLANNERS, "pool") if isinstance(subject, Program) else PLANNERS
    chosen = known if planners is None else tuple(planners)
    for name in chosen:
        if name not in known:
            raise UsageError(f"unknown planner {name!r}", code="KG201", help=f"planners: {', '.join(known)}")
    measured: list[tuple[str, int, int, bool, float, float]] = []
    for name in chosen:
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            height, bound, optimal = _plan(subject, name, time_limit)
        except TooLarge:
            continue
        measured.append((name, height, bound, optimal, time.perf_counter() - wall, time.process_time() - cpu))
    # What one planner proves holds for the others.
    bound = max((row[2] for row in measured), default=0)
    least = {bound} | {height for _, height, _, optimal, _, _ in measured if optimal}
    return tuple(
        PlannerRow(name, height, bound, _ratio(height, bound), wall, cpu, height in least)
        for name, height, _, _, wall, cpu in measured
    )


def _ratio(height: int, bound: int) -> float | None:
    if bound:
        return height / bound
    return 1.0 if height == 0 else None


def _plan(subject: Program | Problem, planner: str, time_limit: float) -> tuple[int, int, bool]:
    """Height, lower bound and whether the height is proven to be the least."""
    if isinstance(subject, Program):
        from kgrun.runtime.memory.plan import plan_memory

        if planner == "pool":
            plan = plan_memory(subject, mode="pool")
        else:
            plan = plan_memory(subject, planner=planner, time_limit=time_limit)
        return plan.dynamic_bytes, plan.lower_bound_bytes, plan.optimal
    from kgrun.runtime.memory.packing import PackOptions, verify

    packing = solve(subject, PackOptions(method=planner, time_limit=time_limit))
    violations = verify(subject, packing.offsets)
    if violations:
        raise InternalError(f"planner {planner} made a wrong plan: {violations[0].message}", code="KG101")
    return packing.height, packing.lower_bound, packing.optimal
