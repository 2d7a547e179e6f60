"""Plans made by a few lines of first-fit, so that explanations and pictures are tested without the packing library."""

from __future__ import annotations

from kgrun.runtime.memory.lifetimes import lifetimes
from kgrun.runtime.memory.plan_types import ALIGNMENT, MemoryPlan, Placement
from kgrun.runtime.program import Program


def plan_by_hand(program: Program, offsets: dict[str, int] | None = None, *, planner: str = "by hand") -> MemoryPlan:
    """Static buffers side by side; dynamic ones first-fit in buffer order, or at `offsets` (by buffer name)."""
    lives = lifetimes(program)
    placements: list[Placement] = []
    static = 0
    for b in program.buffers:
        aligned = b.nbytes + -b.nbytes % ALIGNMENT
        first, last = lives.first[b.index], lives.last[b.index]
        if b.nbytes == 0 or last < first:
            continue
        space = "static" if b.memory_class.static else "dynamic"
        if space == "static":
            offset, static = static, static + aligned
        else:
            offset = (offsets or {}).get(b.name, -1)
            if offset < 0:
                offset = _first_fit(placements, first, last, aligned, apart=b.no_reuse)
        placements.append(Placement(b.index, b.name, b.memory_class, space, offset, b.nbytes, aligned, first, last))  # type: ignore[arg-type]
    dynamic = [p for p in placements if p.space == "dynamic"]
    steps = range(len(program.steps))
    live = [sum(p.aligned for p in dynamic if p.first_step <= t <= p.last_step) for t in steps]
    bound = max(live, default=0)
    height = max((p.offset + p.aligned for p in dynamic), default=0)
    return MemoryPlan(
        placements=tuple(placements), static_bytes=static, dynamic_bytes=height, lower_bound_bytes=bound,
        no_reuse_bytes=sum(p.aligned for p in dynamic), optimal=height == bound, planner=planner, plan_ns=1,
        peak_step=live.index(bound) if dynamic else None,
    )  # fmt: skip


def _first_fit(placed: list[Placement], first: int, last: int, size: int, *, apart: bool) -> int:
    near = sorted(
        (p.offset, p.offset + p.aligned)
        for p in placed
        if p.space == "dynamic" and (apart or (p.first_step <= last and first <= p.last_step))
    )
    at = 0
    for low, high in near:
        if low - at >= size:
            break
        at = max(at, high)
    return at
