"""Why a plan exceeds its memory limit, said so that the user can act."""

from __future__ import annotations

from typing import NoReturn

from kgrun.graphs.errors import DoesNotFit
from kgrun.runtime.memory.packing import Problem
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.program import Program


def check_limit(program: Program, plan: MemoryPlan, problem: Problem, limit: int, seconds: float = 2.0) -> NoReturn:
    """Raise DoesNotFit (KG401) with what is needed, what there is, who is to blame and what would help.

    The smallest limit that fits is searched for at most so many `seconds`.
    """
    least = plan.static_bytes + plan.lower_bound_bytes
    details: dict[str, object] = {
        "limit_bytes": limit,
        "needed_bytes": plan.peak_bytes,
        "static_bytes": plan.static_bytes,
        "dynamic_bytes": plan.dynamic_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "smallest_feasible_limit_bytes": plan.peak_bytes,
        "proven": plan.optimal,
    }
    if plan.static_bytes > limit:
        by_class: dict[str, int] = {}
        for p in plan.placements:
            if p.space == "static":
                by_class[p.memory_class] = by_class.get(p.memory_class, 0) + p.aligned
        details["static_by_class"] = by_class
        between = plan.static_bytes - sum(by_class.values())  # red zones of --check
        classes = ", ".join(f"{name} {size:,}" for name, size in (by_class | {"red zones": between}).items() if size)
        raise DoesNotFit(
            f"static memory alone takes {plan.static_bytes:,} bytes ({classes}), the limit is {limit:,}",
            code="KG401",
            help=f"the smallest limit that fits is {plan.peak_bytes:,} bytes",
            details=details,
        )
    from kgrun.runtime.memory.packing import PackOptions, explain_infeasible

    why = explain_infeasible(problem, limit - plan.static_bytes, PackOptions(time_limit=seconds))
    smallest = plan.static_bytes + min(why.smallest_limit, plan.dynamic_bytes)
    if plan.planner == "none":  # and in-place operators may let a plan take still less
        raise DoesNotFit(
            f"with bytes of its own for every tensor the graph needs {plan.peak_bytes:,} bytes "
            f"({plan.static_bytes:,} static, {plan.dynamic_bytes:,} dynamic), the limit is {limit:,}",
            code="KG401",
            help=f"--memory planned lets tensors share bytes: it needs {smallest:,} bytes or less",
            details=details,
        )
    details["smallest_feasible_limit_bytes"] = smallest
    if why.feasible:
        raise DoesNotFit(
            f"planner {plan.planner} found no plan within {limit:,} bytes, only one of {plan.peak_bytes:,}",
            code="KG401",
            help=f"--planner auto finds one of {smallest:,} bytes",
            details=details,
        )
    culprits = [
        {"name": problem.name(i), "nbytes": problem.sizes[i], "class": _class_of(program, problem.name(i))}
        for i in why.culprits
    ]
    step = program.steps[why.time].name if why.time is not None and why.time < len(program.steps) else None
    details |= {"culprits": culprits, "step": step}
    names = ", ".join(f"{c['name']} ({c['class']}, {c['nbytes']:,})" for c in culprits[:5])
    more = f" and {len(culprits) - 5} more" if len(culprits) > 5 else ""
    proven = smallest == least
    details["proven"] = proven
    proof = "no plan can be smaller" if proven else "a smaller one may exist (not proven)"
    if least > limit:
        message = (
            f"the graph needs {plan.peak_bytes:,} bytes ({plan.static_bytes:,} static, {plan.dynamic_bytes:,} "
            f"dynamic), the limit is {limit:,}: at step {step} these must live together: {names}{more}"
        )
    else:
        message = (
            f"no plan found within {limit:,} bytes: the best takes {smallest:,}, the live bytes would allow "
            f"{least:,}; most in the way at step {step}: {names}{more}"
        )
    advice = f"; {why.advice}" if why.advice else ""
    raise DoesNotFit(
        message,
        code="KG401",
        help=f"the smallest limit that fits is {smallest:,} bytes, {proof}{advice}",
        details=details,
    )


def _class_of(program: Program, name: str) -> str:
    return next((str(b.memory_class) for b in program.buffers if b.name == name), "intermediate")
