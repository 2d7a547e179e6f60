"""Plan memory: static buffers side by side, dynamic ones packed by lifetime, the whole verified before it is used.

The order is that of the planned mode of the runtimes kgrun follows: inputs, constants and outputs get static memory
(S21, S26, S32), everything else dynamic memory that is reused once its last reader has run (S44–S64).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from kgrun.graphs.errors import InternalError, UsageError
from kgrun.runtime.memory.alignment import ALIGNMENT, COMM_GUARD, Padding, held_bytes
from kgrun.runtime.memory.lifetimes import Lifetimes, lifetimes
from kgrun.runtime.memory.limit import check_limit
from kgrun.runtime.memory.packing import Group, Packing, PackOptions, Problem, peak_section, verify
from kgrun.runtime.memory.plan_cache import DEFAULT_MIN_KERNELS, pack_cached
from kgrun.runtime.memory.plan_types import MemoryPlan, Placement, PoolPlan
from kgrun.runtime.memory.solve import solve
from kgrun.runtime.program import Buffer, MemoryClass, Program
from kgrun.runtime.streams import conflicts, plan_streams

MemoryMode = Literal["planned", "pool", "none"]
PLANNERS = ("auto", "skyline", "exact", "greedy-size", "best-fit", "first-fit", "somas", "none")

# Inputs and parameters in the graph's order, constants in the order of their names (S26), outputs last (S32).
_STATIC_ORDER = {MemoryClass.INPUT: 0, MemoryClass.PARAMETER: 0, MemoryClass.CONSTANT: 1, MemoryClass.OUTPUT: 2}


def plan_memory(
    program: Program,
    *,
    mode: MemoryMode = "planned",
    planner: str = "auto",
    memory_limit: int | None = None,
    enough: int | None = None,
    time_limit: float = 2.0,
    max_chunk: int | None = None,
    pool_unit: int | None = None,
    padding: Padding = "plain",
    comm_guard: bool = False,
    guard: int = 0,
    cache_dir: Path | None = None,
    cache_minimum: int = DEFAULT_MIN_KERNELS,
) -> MemoryPlan:
    """A verified plan; equal programs get equal plans.

    Args:
        mode: "planned" packs by lifetime; "pool" places in the order of the steps, as an allocator would; "none" gives
            every buffer its own bytes.
        planner: a name of `PLANNERS`.
        memory_limit: most bytes that static and dynamic memory may take together.
        enough: bytes at which a plan is low enough: the search stops there. Default: `memory_limit`.
        time_limit: seconds the planner may search; it stops at once when it meets the lower bound.
        max_chunk: let no dynamic buffer cross a multiple of so many bytes.
        pool_unit: bytes that a pool grows by.
        padding: bytes held for a buffer, see `held_bytes`.
        comm_guard: keep free bytes before and after communication memory (S67).
        guard: free bytes before and after every buffer or contiguous group, a multiple of the alignment.
        cache_dir: keep plans of programs of `cache_minimum` steps or more there, and take them from there (S62).

    Raises:
        UsageError: an unknown planner.
        DoesNotFit: the plan exceeds `memory_limit`.
    """
    started = time.perf_counter_ns()
    _check_choice(mode, planner, max_chunk, pool_unit)
    lives = lifetimes(program)
    static, dynamic, static_groups, groups = _split(program, lives)
    placements, static_bytes = _place_static(static, static_groups, len(program.steps), padding, guard)
    apart, every = guard or (COMM_GUARD if comm_guard else 0), guard > 0
    pairs = _conflicts(program, dynamic, lives)
    problem = packing_problem(
        dynamic, lives, groups, max_chunk=max_chunk, padding=padding, guard=apart, guard_all=every, conflicting=pairs
    )
    pool, note = None, None
    if mode == "pool":
        from kgrun.runtime.memory.pool.plan import plan_pool, workload

        work = workload(program, dynamic, groups, padding, apart, guard_all=every)
        packing, pool = plan_pool(work, problem, static_bytes=static_bytes, limit=memory_limit, unit=pool_unit)
    else:
        options = _search(mode, planner, time_limit, memory_limit if enough is None else enough, static_bytes)
        outcome = pack_cached(problem, options, solve, cache_dir, kernels=len(program.steps), minimum=cache_minimum)
        packing, note = outcome.packing, outcome.note
    _verify(problem, packing)
    placements += _dynamic_placements(dynamic, lives, packing, padding)
    plan = _plan(placements, static_bytes, packing, problem, pool, note, started)
    if memory_limit is not None and plan.peak_bytes > memory_limit:
        check_limit(program, plan, problem, memory_limit, time_limit)
    return plan


def _check_choice(mode: MemoryMode, planner: str, max_chunk: int | None, pool_unit: int | None) -> None:
    """Raises UsageError where a planner has no such name, or the options of a pool do not go together."""
    if planner not in PLANNERS:
        raise UsageError(f"unknown planner {planner!r}", code="KG201", help=f"planners: {', '.join(PLANNERS)}")
    if mode == "pool" or pool_unit is not None:
        from kgrun.runtime.memory.pool.plan import check_pool_options

        check_pool_options(mode, planner, max_chunk, pool_unit)


def _search(mode: MemoryMode, planner: str, time_limit: float, enough: int | None, static_bytes: int) -> PackOptions:
    """How to look for offsets: until static and dynamic memory take `enough` bytes together, or the time is up."""
    capacity = None if enough is None else max(enough - static_bytes, 0)
    return PackOptions(method="none" if mode == "none" else planner, time_limit=time_limit, capacity=capacity)


def _plan(
    placements: Sequence[Placement],
    static_bytes: int,
    packing: Packing,
    problem: Problem,
    pool: PoolPlan | None,
    note: str | None,
    started: int,
) -> MemoryPlan:
    """What was found, as a plan; `started` is when the search for it began, in nanoseconds."""
    return MemoryPlan(
        placements=tuple(sorted(placements, key=lambda p: p.buffer)),
        static_bytes=static_bytes,
        dynamic_bytes=packing.height,
        lower_bound_bytes=packing.lower_bound,
        no_reuse_bytes=sum(problem.size),
        optimal=packing.optimal,
        planner=packing.method,
        plan_ns=time.perf_counter_ns() - started,
        peak_step=peak_section(problem).time if problem.size else None,
        note=note,
        pool=pool,
    )


Groups = list[list[int]]


def _split(program: Program, lives: Lifetimes) -> tuple[list[Buffer], list[Buffer], Groups, Groups]:
    """Static and dynamic buffers that need bytes, and their contiguous groups.

    A group with a static member is static as a whole: its members must stand side by side (S34).
    """
    static_by_group = {
        index for group in program.groups if any(program.buffers[i].static for i in group) for index in group
    }
    static: list[Buffer] = []
    dynamic: list[Buffer] = []
    for buffer in program.buffers:
        if buffer.nbytes == 0 or (lives.last[buffer.index] < 0 and not buffer.static):
            continue
        is_static = buffer.static or buffer.index in static_by_group
        (static if is_static else dynamic).append(buffer)
    static.sort(key=_static_key)
    places = ({b.index for b in static}, {b.index for b in dynamic})
    groups: tuple[Groups, Groups] = ([], [])
    for group in program.groups:
        for place, found in zip(places, groups, strict=True):
            members = [i for i in group if i in place]
            if len(members) > 1:
                found.append(members)
    return static, dynamic, *groups


def _static_key(buffer: Buffer) -> tuple[int, str, int]:
    rank = _STATIC_ORDER.get(buffer.memory_class, 3)
    return rank, buffer.name if buffer.memory_class is MemoryClass.CONSTANT else "", buffer.index


def _place_static(
    buffers: Sequence[Buffer], groups: Groups, steps: int, padding: Padding, guard: int = 0
) -> tuple[list[Placement], int]:
    """Side by side from offset 0; a group stands, in its own order, where its first member would."""
    group_of = {index: members for members in groups for index in members}
    by_index = {b.index: b for b in buffers}
    placements: list[Placement] = []
    offset = 0
    placed: set[int] = set()
    for buffer in buffers:
        if buffer.index in placed:
            continue
        members = group_of.get(buffer.index, [buffer.index])
        offset += guard
        for index in members:
            member = by_index[index]
            aligned = held_bytes(member.nbytes, padding)
            placements.append(
                Placement(
                    index,
                    member.name,
                    member.memory_class,
                    "static",
                    offset,
                    member.nbytes,
                    aligned,
                    0,
                    max(steps - 1, 0),
                )
            )
            placed.add(index)
            offset += aligned
        offset += guard
    return placements, offset


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
) -> list[Placement]:
    return [
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
    ]


def _verify(problem: Problem, packing: Packing) -> None:
    violations = verify(problem, packing.offsets)
    if violations:
        raise InternalError(
            f"the memory plan is wrong: {violations[0]}",
            code="KG101",
            help="please report this graph; --planner greedy-size or --memory none may run it meanwhile",
        )
