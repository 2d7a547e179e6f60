"""Why a program does not fit even with offload, said so that the user can act."""

from __future__ import annotations

from collections.abc import Callable

from kgrun.graphs.errors import DoesNotFit
from kgrun.runtime.memory.offload.apply import apply
from kgrun.runtime.memory.offload.choose import any_schedules, forced_gaps
from kgrun.runtime.memory.offload.records import OffloadMode, Problem, Tensor
from kgrun.runtime.memory.offload.simulate import full_load, simulate
from kgrun.runtime.memory.offload.stays import parts_of
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.program import Program

_NAMED = 5


def floor(problem: Problem) -> tuple[int, int]:
    """Bytes that no offload can go below, and the step that needs them: its operands and what must stay (S97)."""
    load = full_load(problem)
    for gap in problem.gaps:
        for low, high in gap.spans:
            load[low:high] -= problem.tensors[gap.tensor].held
    if not len(load):
        return problem.fixed, 0
    return int(load.max()), int(load.argmax())


def does_not_fit(
    program: Program,
    problem: Problem,
    mode: OffloadMode,
    limit: int,
    plan: Callable[[Program, int | None], MemoryPlan],
) -> DoesNotFit:
    """KG405 with what is needed, what there is, who is to blame, and which limits would do."""

    def kind(tensor: Tensor) -> str:
        return str(program.buffers[tensor.buffer].memory_class)

    least, at = floor(problem)
    step = program.steps[at]
    operands = sorted((t for t in problem.tensors if at in t.touches), key=lambda t: -t.held)
    without = plan(program, None).peak_bytes
    with_offload = min(_smallest(program, problem, mode, least, plan), without)
    details: dict[str, object] = {
        "limit_bytes": limit,
        "needed_bytes": with_offload,
        "floor_bytes": least,
        "fixed_bytes": problem.fixed,
        "step": step.name,
        "culprits": [{"name": t.name, "nbytes": t.nbytes, "class": kind(t)} for t in operands],
        "smallest_feasible_limit_bytes": with_offload,
        "smallest_without_offload_bytes": without,
        "offload": mode,
    }
    names = ", ".join(f"{t.name} ({kind(t)}, {t.nbytes:,})" for t in operands[:_NAMED])
    more = f" and {len(operands) - _NAMED} more" if len(operands) > _NAMED else ""
    if least > limit:
        message = (
            f"step {step.name} needs {least:,} bytes at once, the limit is {limit:,}: its operands are {names}{more}"
            + (f"; {problem.fixed:,} bytes cannot leave the device" if problem.fixed else "")
        )
    elif mode == "manual":
        message = f"what the file marks for offload does not bring the graph under {limit:,} bytes"
    else:
        message = f"no plan found within {limit:,} bytes, with offload; step {step.name} alone needs {least:,}"
    way = "--offload auto" if mode == "seeds" else "offload"  # the older rule may need more
    help = f"the smallest limit that fits is {with_offload:,} bytes with {way}, {without:,} without"
    return DoesNotFit(message, code="KG405", help=help, details=details)


def _smallest(
    program: Program,
    problem: Problem,
    mode: OffloadMode,
    least: int,
    plan: Callable[[Program, int | None], MemoryPlan],
) -> int:
    """The lowest limit for which a plan is known: what the schedules of the floor pack into.

    With "manual" only marked tensors move: what they leave is the floor.
    """
    heights = []
    forced = forced_gaps(problem)
    if mode == "manual":
        if not forced:
            return plan(program, None).peak_bytes
        load = full_load(problem)
        for gap in (problem.gaps[index] for index in forced):
            for low, high in gap.spans:
                load[low:high] -= problem.tensors[gap.tensor].held
        least = int(load.max())
        found = simulate(problem, parts_of(problem, forced), least, prefetch=True)
        schedules = iter(() if found is None else (found,))
    else:
        schedules = any_schedules(problem, least, forced)
    for schedule in schedules:
        heights.append(plan(apply(program, problem, schedule).program, least).peak_bytes)
        if heights[-1] <= least:
            break
    return min(heights, default=plan(program, None).peak_bytes)
