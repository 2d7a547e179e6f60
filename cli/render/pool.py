"""What a memory pool says of a plan it made: blocks, the most in use, idle pieces then, holders, attempts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kgrun.cli.render.lifetimes import live_at
from kgrun.cli.render.text import bytes_text, count_text
from kgrun.runtime.memory.plan_types import MemoryPlan, PoolPlan
from kgrun.runtime.program import Program

HOLDERS = 5


def pool_member(plan: MemoryPlan) -> dict[str, Any]:
    """The member `pool` of the `memory` object; nothing where no pool made the plan."""
    pool = plan.pool
    if pool is None:
        return {}
    row = {
        "unit_bytes": pool.unit,
        "blocks": list(pool.blocks),
        "reserved_bytes": pool.reserved_bytes,
        "peak_used_bytes": pool.peak_used_bytes,
        "peak_step": pool.peak_step,
        "idle_bytes": sum(pool.peak_idle),
        "largest_idle_bytes": max(pool.peak_idle, default=0),
        "fragments": len(pool.peak_idle),
        "fragmentation": round(fragmentation(pool), 6),
        "holders": [{"name": name, "nbytes": nbytes} for name, nbytes in _holders(plan, pool)],
        "kept": list(pool.kept),
        "attempts": [
            {"way": each.way, "unit_bytes": each.unit, "step": each.step, "tensor": each.name, "fits": each.fits}
            for each in pool.attempts
        ],
    }
    return {"pool": row}


def pool_lines(program: Program, plan: MemoryPlan) -> Iterator[str]:
    """The same as lines of the report."""
    pool = plan.pool
    if pool is None:
        return
    sizes = ", ".join(bytes_text(nbytes) for nbytes in pool.blocks[:HOLDERS]) or "none"
    more = f", {len(pool.blocks) - HOLDERS:,} more" if len(pool.blocks) > HOLDERS else ""
    yield f"  pool         {count_text(len(pool.blocks), 'block')}: {sizes}{more}; grows by {bytes_text(pool.unit)}"
    if pool.peak_step is not None:
        named = ", ".join(f"{name} {bytes_text(nbytes)}" for name, nbytes in _holders(plan, pool))
        yield (
            f"               most in use {bytes_text(pool.peak_used_bytes)} at {program.steps[pool.peak_step].name}, "
            f"idle then {bytes_text(sum(pool.peak_idle))} in {count_text(len(pool.peak_idle), 'piece')}"
        )
        yield f"               held by {named}"
    for each in pool.attempts[:-1]:
        why = f"no room for {each.name} at {each.step}" if each.name is not None else "the blocks are too large"
        yield f"               dry run by {each.way}: {why}"


def fragmentation(pool: PoolPlan) -> float:
    """The share of the idle bytes at the peak that lies outside the largest piece."""
    idle = sum(pool.peak_idle)
    return 1 - max(pool.peak_idle) / idle if idle else 0.0


def _holders(plan: MemoryPlan, pool: PoolPlan) -> list[tuple[str, int]]:
    """The largest buffers that hold data when most is in use."""
    if pool.peak_step is None:
        return []
    return [(place.name, place.aligned) for place in live_at(plan, pool.peak_step)[:HOLDERS]]
