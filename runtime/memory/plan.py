"""Plan memory: static buffers side by side, dynamic ones packed by lifetime, the whole verified before it is used.

The order is that of the planned mode of the runtimes kgrun follows: inputs, constants and outputs get static memory
(S21, S26, S32), everything else dynamic memory that is reused once its last reader has run (S44–S64).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from kgrun.graphs.errors import UsageError
from kgrun.runtime.memory.alignment import ALIGNMENT, COMM_GUARD, Padding, held_bytes
from kgrun.runtime.memory.lifetimes import Lifetimes, lifetimes
from kgrun.runtime.memory.plan_types import DEFAULT_MIN_KERNELS, MemoryMode, MemoryPlan, Packed, Placement
from kgrun.runtime.program import Buffer, MemoryClass, Program

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
        max_chunk: let no dynamic buffer cross a multiple of so many bytes, themselves a multiple of the alignment.
        pool_unit: bytes that a pool grows by.
        padding: bytes held for a buffer, see `held_bytes`.
        comm_guard: keep free bytes before and after communication memory (S67).
        guard: free bytes before and after every buffer or contiguous group, a multiple of the alignment.
        cache_dir: keep plans of programs of `cache_minimum` steps or more there, and take them from there (S62).

    Raises:
        UsageError: an unknown planner, a chunk that cannot be.
        DoesNotFit: the plan exceeds `memory_limit`.
    """
    started = time.perf_counter_ns()
    if planner not in PLANNERS:
        raise UsageError(f"unknown planner {planner!r}", code="KG201", help=f"planners: {', '.join(PLANNERS)}")
    if max_chunk is not None and (max_chunk < 1 or max_chunk % ALIGNMENT):
        raise UsageError(f"a chunk of {max_chunk:,} bytes is no multiple of {ALIGNMENT}", code="KG251")
    if mode == "pool" or pool_unit is not None:
        from kgrun.runtime.memory.pool.plan import check_pool_options

        check_pool_options(mode, planner, max_chunk, pool_unit)
    lives = lifetimes(program)
    static, dynamic, static_groups, dynamic_groups = _split(program, lives)
    placements, static_bytes = _place_static(static, static_groups, len(program.steps), padding, guard)
    packed = Packed("none" if mode == "none" else planner)
    if dynamic or mode == "pool" or (memory_limit is not None and static_bytes > memory_limit):
        from kgrun.runtime.memory.dynamic import Request, pack_dynamic

        apart = guard or (COMM_GUARD if comm_guard else 0)
        most = memory_limit if enough is None or mode == "pool" else enough
        request = Request(
            mode, planner, most, time_limit, max_chunk, pool_unit, padding, apart, guard > 0, cache_dir, cache_minimum
        )
        packed = pack_dynamic(program, lives, dynamic, dynamic_groups, static_bytes, request)
    placements += packed.placements
    placements.sort(key=lambda p: p.buffer)
    plan = MemoryPlan(
        placements=tuple(placements),
        static_bytes=static_bytes,
        dynamic_bytes=packed.nbytes,
        lower_bound_bytes=packed.lower_bound,
        no_reuse_bytes=sum(held_bytes(b.nbytes, padding) for b in dynamic),
        optimal=packed.optimal,
        planner=packed.planner,
        plan_ns=time.perf_counter_ns() - started,
        peak_step=packed.peak_step,
        note=packed.note,
        pool=packed.pool,
    )
    if memory_limit is not None and plan.peak_bytes > memory_limit:
        from kgrun.runtime.memory.limit import check_limit

        assert packed.problem is not None
        check_limit(program, plan, packed.problem, memory_limit, time_limit)
    return plan


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
