"""Why a plan exceeds its memory limit, said so that the user can act."""

from __future__ import annotations

from typing import NoReturn

from kgrun.graphs.errors import DoesNotFit
from kgrun.runtime.memory.packing import Problem
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.program import Program

_NAMED = 5  # culprits in a message; `details` have all


def check_limit(program: Program, plan: MemoryPlan, problem: Problem, limit: int, seconds: float = 2.0) -> NoReturn:
    """Raise DoesNotFit (KG401) with what is needed, what there is, who is to blame and what would help.

    The smallest limit that fits is searched for at most so many `seconds`.
    """
    if plan.static_bytes > limit:
        raise _static_alone(plan, limit)
    from kgrun.runtime.memory.packing import PackOptions, explain_infeasible

    why = explain_infeasible(problem, limit - plan.static_bytes, PackOptions(time_limit=seconds))
    smallest = plan.static_bytes + min(why.smallest_limit, plan.dynamic_bytes)
    sums = f"{plan.peak_bytes:,} bytes ({plan.static_bytes:,} static, {plan.dynamic_bytes:,} dynamic)"
    if plan.planner == "none":  # and in-place operators may let a plan take still less
        message = f"with bytes of its own for every tensor the graph needs {sums}, the limit is {limit:,}"
        help = f"--memory planned lets tensors share bytes: it needs {smallest:,} bytes or less"
        raise DoesNotFit(message, code="KG401", help=help, details=_details(plan, limit))
    details = _details(plan, limit) | {"smallest_feasible_limit_bytes": smallest}
    if why.feasible:
        message = f"planner {plan.planner} found no plan within {limit:,} bytes, only one of {plan.peak_bytes:,}"
        help = f"--planner auto finds one of {smallest:,} bytes"
        raise DoesNotFit(message, code="KG401", help=help, details=details)
    culprits = [
        {"name": problem.name(i), "nbytes": problem.sizes[i], "class": _class_of(program, problem.name(i))}
        for i in why.culprits
    ]
    step = program.steps[why.time].name if why.time is not None and why.time < len(program.steps) else None
    least = plan.static_bytes + plan.lower_bound_bytes
    proven = smallest == least
    details |= {"culprits": culprits, "step": step, "proven": proven}
    names = ", ".join(f"{c['name']} ({c['class']}, {c['nbytes']:,})" for c in culprits[:_NAMED])
    names += f" and {len(culprits) - _NAMED} more" if len(culprits) > _NAMED else ""
    if least > limit:
        message = f"the graph needs {sums}, the limit is {limit:,}: at step {step} these must live together: {names}"
    else:
        message = (
            f"no plan found within {limit:,} bytes: the best takes {smallest:,}, the live bytes would allow "
            f"{least:,}; most in the way at step {step}: {names}"
        )
    proof = "no plan can be smaller" if proven else "a smaller one may exist (not proven)"
    help = f"the smallest limit that fits is {smallest:,} bytes, {proof}" + (f"; {why.advice}" if why.advice else "")
    raise DoesNotFit(message, code="KG401", help=help, details=details)


def _details(plan: MemoryPlan, limit: int) -> dict[str, object]:
    return {
        "limit_bytes": limit,
        "needed_bytes": plan.peak_bytes,
        "static_bytes": plan.static_bytes,
        "dynamic_bytes": plan.dynamic_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "smallest_feasible_limit_bytes": plan.peak_bytes,
        "proven": plan.optimal,
    }


def _static_alone(plan: MemoryPlan, limit: int) -> DoesNotFit:
    """The error where what keeps its bytes throughout exceeds the limit by itself."""
    by_class: dict[str, int] = {}
    for p in plan.placements:
        if p.space == "static":
            by_class[p.memory_class] = by_class.get(p.memory_class, 0) + p.aligned
    between = plan.static_bytes - sum(by_class.values())  # red zones of --check
    classes = ", ".join(f"{name} {size:,}" for name, size in (by_class | {"red zones": between}).items() if size)
    return DoesNotFit(
        f"static memory alone takes {plan.static_bytes:,} bytes ({classes}), the limit is {limit:,}",
        code="KG401",
        help=f"the smallest limit that fits is {plan.peak_bytes:,} bytes",
        details=_details(plan, limit) | {"static_by_class": by_class},
    )


def _class_of(program: Program, name: str) -> str:
    return next((str(b.memory_class) for b in program.buffers if b.name == name), "intermediate")
