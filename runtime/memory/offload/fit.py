"""Fit a program into a memory limit: as it is where that is possible, else with transfers, planned and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from kgrun.graphs.bound import Warning
from kgrun.graphs.records import dataclass
from kgrun.runtime.memory.offload.apply import Applied, apply
from kgrun.runtime.memory.offload.choose import any_schedules, best_schedule, forced_gaps, seeds_choice
from kgrun.runtime.memory.offload.infeasible import does_not_fit, floor
from kgrun.runtime.memory.offload.marks import marked_tensors
from kgrun.runtime.memory.offload.order import check_order, on_streams, ordered
from kgrun.runtime.memory.offload.problem import offload_problem
from kgrun.runtime.memory.offload.records import Offload, OffloadMode, Problem, Schedule
from kgrun.runtime.memory.offload.residency import check_residency
from kgrun.runtime.memory.offload.simulate import full_load, simulate
from kgrun.runtime.memory.offload.stays import parts_of
from kgrun.runtime.memory.offload.times import PROFILES, DeviceProfile, step_times
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.program import Program

_TRIES = 4
_LEAST_SHARE = 0.5  # of the limit that a schedule may be planned for, so that it packs (S100)
_UNLIMITED = 1 << 58


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be fitted.

    Attributes:
        plan: plans a program, searching until it takes no more than the given bytes, or as far as it can.
        limit: bytes; None for as many as it takes.
    """

    plan: Callable[[Program, int | None], MemoryPlan]
    limit: int | None
    mode: OffloadMode
    profile: DeviceProfile


class Pack(Protocol):
    """`plan_memory` with its other options given."""

    def __call__(
        self, program: Program, *, memory_limit: int | None = None, enough: int | None = None
    ) -> MemoryPlan: ...


def plan_within(
    program: Program, pack: Pack, limit: int | None, mode: OffloadMode, profile: DeviceProfile | None = None
) -> tuple[Program, MemoryPlan]:
    """The program that runs, with transfers where it takes them to stay within the limit, and its verified plan.

    Args:
        profile: times that transfers are planned by; by default those of the program's kind of device.

    Raises:
        UsageError: an unknown planner. DoesNotFit: nothing fits the limit.
    """
    marked = bool(marked_tensors(program))
    if mode == "off" and marked:
        text = "tensors that the file wants on the host stay on the device: offload is off"
        program = replace(program, warnings=(*program.warnings, Warning("W-NO-OFFLOAD", text)))
    if mode == "off" or not program.steps or (limit is None and not marked):
        return program, pack(program, memory_limit=limit)
    known = profile or default_profile(program)
    return fit(program, Request(lambda made, enough: pack(made, enough=enough), limit, mode, known))


def default_profile(program: Program) -> DeviceProfile:
    """The profile of the kind of device that a program is for."""
    return PROFILES["cpu" if program.target == "cpu" else "h200"]


def problem_of(program: Program, limit: int | None, profile: DeviceProfile | None = None) -> Problem:
    """The offload problem of a program under a limit; without one there is room for everything."""
    known = profile or default_profile(program)
    capacity = _UNLIMITED if limit is None else limit
    return offload_problem(program, step_times(program, known), capacity, known.rates)


def fit(program: Program, request: Request) -> tuple[Program, MemoryPlan]:
    """The program that runs within the limit, and its plan; `Program.offload` says what comes and goes.

    Without marks in the file, a program that fits as it is stays as it is.

    Raises:
        DoesNotFit: KG405 with the floor, the step that needs it, and the smallest limits with and without offload.
    """
    limit = request.limit
    problem = problem_of(program, limit, request.profile)
    if not marked_tensors(program) and _live(problem) <= problem.capacity:
        plan = request.plan(program, limit)
        if plan.peak_bytes <= problem.capacity:
            return program, plan
    found = _search(program, problem, request)
    if found is None:
        # What must stay counts as long as any of its contiguous group is needed: without offload it may take less.
        if limit is not None and not marked_tensors(program):
            plan = request.plan(program, limit)
            if plan.peak_bytes <= limit:
                return program, plan
        raise does_not_fit(program, problem, request.mode, limit or 0, request.plan)
    return found


def _live(problem: Problem) -> int:
    """Bytes that a plan without offload takes at least."""
    load = full_load(problem, outputs_throughout=True)
    return int(load.max()) if len(load) else problem.fixed


def _search(program: Program, problem: Problem, request: Request) -> tuple[Program, MemoryPlan] | None:
    """The program with the transfers of the first schedule that packs into the limit; None where none does."""
    for schedule in _schedules(problem, request):
        applied = apply(program, problem, schedule, late=request.mode == "seeds")
        plan = request.plan(applied.program, request.limit)
        if request.limit is None or plan.peak_bytes <= request.limit:
            return _finished(applied, schedule, plan, request, problem.ns), plan
    return None


def _schedules(problem: Problem, request: Request) -> Iterator[Schedule]:
    """Schedules to try, the best first: for the limit, for less of it, then whatever fits, down to the floor (S100)."""
    capacity = problem.capacity
    for _ in range(_TRIES):
        found = schedule_for(problem, capacity, request.mode)
        if found is None:
            break
        yield found
        capacity -= max(problem.capacity // 50, 1)
        if capacity < _LEAST_SHARE * problem.capacity:
            break
    if request.mode == "auto":
        forced = forced_gaps(problem)
        yield from any_schedules(problem, problem.capacity, forced)
        yield from any_schedules(problem, floor(problem)[0], forced)


def schedule_for(problem: Problem, capacity: int, mode: OffloadMode) -> Schedule | None:
    """The schedule of a mode within `capacity` bytes; None where there is none."""
    forced = forced_gaps(problem)
    if mode == "manual" or (mode == "seeds" and forced):  # only what is marked moves (S96)
        return simulate(problem, parts_of(problem, forced), capacity, prefetch=mode == "manual")
    if mode == "seeds":
        chosen = seeds_choice(problem, capacity)
        return None if chosen is None else simulate(problem, parts_of(problem, chosen), capacity, prefetch=False)
    found = best_schedule(problem, capacity, forced=forced)
    return None if found is None else found[0]


def _finished(
    applied: Applied, schedule: Schedule, plan: MemoryPlan, request: Request, times: Sequence[float]
) -> Program:
    """Transfers on their streams, ordered by the addresses they use, and checked."""
    program = ordered(on_streams(applied.program), plan)
    check_order(program, plan)
    check_residency(program, applied.homes)
    rows = applied.rows
    offload = Offload(
        mode=request.mode,
        limit=request.limit,
        host_bytes=applied.host_bytes,
        homes=applied.homes,
        transfers=rows,
        in_bytes=sum(r.nbytes for r in rows if r.direction == "in"),
        out_bytes=sum(r.nbytes for r in rows if r.direction == "out"),
        dropped_bytes=applied.dropped,
        predicted_ns=round(schedule.total_ns),
        compute_ns=round(schedule.compute_ns),
        profile=request.profile.name,
        rates=request.profile.rates,
        starts_ns=tuple(round(t) for t in schedule.starts),
        steps_ns=tuple(round(t) for t in times),
    )
    return replace(program, offload=offload)
