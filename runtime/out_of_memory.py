"""An out-of-memory error of a device, with the plan's bytes beside what is free and who holds the rest."""

from __future__ import annotations

from kgrun.graphs.errors import DoesNotFit
from kgrun.runtime.memory.plan_types import MemoryPlan


def add_rows(error: DoesNotFit, plan: MemoryPlan) -> None:
    """Append a row each for planned, free and held bytes to the message, where the device told them."""
    told = error.details
    free, total, held, other = (told.get(name) for name in ("free_bytes", "total_bytes", "held_bytes", "context_bytes"))
    if not (isinstance(free, int) and isinstance(total, int) and isinstance(held, int) and isinstance(other, int)):
        return
    told["planned_bytes"] = plan.peak_bytes
    told["static_bytes"], told["dynamic_bytes"] = plan.static_bytes, plan.dynamic_bytes
    rows = (
        ("planned", plan.peak_bytes, f"static {plan.static_bytes:,} + dynamic {plan.dynamic_bytes:,}"),
        ("free", free, "as the driver says"),
        ("held by this run", held, "allocated before this failed"),
        ("held by contexts", other, "code and stacks of contexts, and other programs"),
        ("total", total, ""),
    )
    width = max(len(f"{nbytes:,}") for _, nbytes, _ in rows)
    lines = [f"  {name:<16}  {nbytes:>{width},} bytes  {note}".rstrip() for name, nbytes, note in rows]
    error.message = "\n".join([error.message.partition(":")[0], *lines])
    error.args = (error.message,)
    error.help = "`kgrun plan-memory` shows what takes the bytes; use smaller dimensions, or set --memory-limit"
