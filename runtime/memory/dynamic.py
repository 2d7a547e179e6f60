"""Dynamic memory of a program: its packing problem, solved or run through a pool, verified, as placements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kgrun.graphs.errors import InternalError
from kgrun.graphs.records import dataclass
from kgrun.runtime.memory.alignment import ALIGNMENT, Padding, held_bytes
from kgrun.runtime.memory.lifetimes import Lifetimes
from kgrun.runtime.memory.packing import Group, Packing, PackOptions, Problem, peak_section, verify
from kgrun.runtime.memory.plan_cache import pack_cached
from kgrun.runtime.memory.plan_types import MemoryMode, Packed, Placement, PoolPlan
from kgrun.runtime.memory.solve import solve
from kgrun.runtime.program import Buffer, MemoryClass, Program
from kgrun.runtime.streams import conflicts, plan_streams


@dataclass(frozen=True, slots=True)
class Request:
    """How dynamic memory is to be packed; see `plan_memory`.

    Attributes:
        enough: bytes, static ones too, at which the search stops, and that a pool must not exceed.
        guard: free bytes around contiguous groups and communication buffers, with `guard_all` around every buffer.
    """

    mode: MemoryMode
    planner: str
    enough: int | None
    time_limit: float
    max_chunk: int | None
    pool_unit: int | None
    padding: Padding
    guard: int
    guard_all: bool
    cache_dir: Path | None
    cache_minimum: int


def pack_dynamic(
    program: Program,
    lives: Lifetimes,
    buffers: Sequence[Buffer],
    groups: Sequence[Sequence[int]],
    static_bytes: int,
    request: Request,
) -> Packed:
    """Where the dynamic buffers go, verified.

    Raises:
        UsageError: a planner that cannot take so many buffers. DoesNotFit: a pool beyond its limit.
    """
    problem = packing_problem(
        buffers,
        lives,
        groups,
        max_chunk=request.max_chunk,
        padding=request.padding,
        guard=request.guard,
        guard_all=request.guard_all,
        conflicting=_conflicts(program, buffers, lives),
    )
    pool: PoolPlan | None = None
    note: str | None = None
    if request.mode == "pool":
        from kgrun.runtime.memory.pool.plan import plan_pool, workload

        work = workload(program, buffers, groups, request.padding, request.guard, guard_all=request.guard_all)
        packing, pool = plan_pool(
            work, problem, static_bytes=static_bytes, limit=request.enough, unit=request.pool_unit
        )
    else:
        capacity = None if request.enough is None else max(request.enough - static_bytes, 0)
        method = "none" if request.mode == "none" else request.planner
        options = PackOptions(method=method, time_limit=request.time_limit, capacity=capacity)
        outcome = pack_cached(
            problem, options, solve, request.cache_dir, kernels=len(program.steps), minimum=request.cache_minimum
        )
        packing, note = outcome.packing, outcome.note
    _verify(problem, packing)
    return Packed(
        packing.method,
        _dynamic_placements(buffers, lives, packing, request.padding),
        packing.height,
        packing.lower_bound,
        packing.optimal,
        peak_section(problem).time if buffers else None,
        note,
        pool,
        problem,
    )


def packing_problem(
    buffers: Sequence[Buffer],
    lives: Lifetimes,
    groups: Sequence[Sequence[int]] = (),
    *,
    max_chunk: int | None = None,
    padding: Padding = "plain",
    guard: int = 0,
    guard_all: bool = False,
    conflicting: Sequence[tuple[int, int]] = (),
) -> Problem:
    """The packing problem of dynamic buffers: times are steps, lives half-open, offsets multiples of the alignment.

    `guard` bytes stay free before and after each contiguous group and each communication buffer, with `guard_all` each
    buffer. `conflicting` pairs
    must not share bytes although their lives are apart: several streams run side by side.
    """
    position = {b.index: i for i, b in enumerate(buffers)}
    grouped = {i for members in groups for i in members}
    guarded = [b for b in buffers if guard_all or b.memory_class is MemoryClass.COMMUNICATION]
    alone = [(b.index,) for b in guarded if b.index not in grouped]
    return Problem(
        lower=[lives.first[b.index] for b in buffers],
        upper=[(b.lives[0][1] if b.lives else lives.last[b.index]) + 1 for b in buffers],
        extra_intervals={
            position[b.index]: [(first, last + 1) for first, last in b.lives[1:]] for b in buffers if len(b.lives) > 1
        },
        size=[held_bytes(b.nbytes, padding) for b in buffers],
        ids=[b.name for b in buffers],
        alignment=ALIGNMENT,
        groups=[
            Group(tuple(position[i] for i in members), before=guard, after=guard)
            for members in (*groups, *(alone if guard else ()))
        ],
        persistent=[position[b.index] for b in buffers if b.no_reuse],
        max_chunk=max_chunk,
        extra_conflicts=conflicting,
    )


def _conflicts(program: Program, buffers: Sequence[Buffer], lives: Lifetimes) -> list[tuple[int, int]]:
    """Pairs that conflict although list order keeps their lives apart: with more than one stream (S53, S58).

    Happens-before never orders what overlaps in list order, so these come on top of the overlapping lives.
    """
    if len({step.stream for step in program.steps}) < 2:
        return []
    indices = [b.index for b in buffers]
    return [
        (i, j)
        for i, j in conflicts(program, plan_streams(program), indices)
        if lives.last[indices[i]] < lives.first[indices[j]] or lives.last[indices[j]] < lives.first[indices[i]]
    ]


def _dynamic_placements(
    buffers: Sequence[Buffer], lives: Lifetimes, packing: Packing, padding: Padding
) -> tuple[Placement, ...]:
    return tuple(
        Placement(
            b.index,
            b.name,
            b.memory_class,
            "dynamic",
            offset,
            b.nbytes,
            held_bytes(b.nbytes, padding),
            lives.first[b.index],
            lives.last[b.index],
            b.lives if len(b.lives) > 1 else (),
        )
        for b, offset in zip(buffers, packing.offsets, strict=True)
    )


def _verify(problem: Problem, packing: Packing) -> None:
    violations = verify(problem, packing.offsets)
    if violations:
        raise InternalError(
            f"the memory plan is wrong: {violations[0]}",
            code="KG101",
            help="please report this graph; --planner greedy-size or --memory none may run it meanwhile",
        )
