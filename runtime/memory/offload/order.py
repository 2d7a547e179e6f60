"""Make the order that addresses need: nobody touches bytes before their last user is done with them, copies included.

The plan packs lives in list order; streams run side by side. So whoever takes over bytes waits for the last steps, one
a stream, of the buffers that had them before. The check does the same with happens-before alone and shares nothing
with what adds the waits (B11: a slot is never reused before its copy has ended).
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from kgrun.graphs.errors import InternalError
from kgrun.runtime.memory.offload.apply import IN, OUT
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.program import Program, Step, Transfer
from kgrun.runtime.streams import plan_streams


def on_streams(program: Program) -> Program:
    """The transfers on streams of their own, one a direction."""

    def moved(step: Step) -> Step:
        if not isinstance(step.work, Transfer):
            return step
        return replace(step, stream=IN if step.work.direction == "in" else OUT)

    return replace(program, steps=tuple(moved(step) for step in program.steps))


def ordered(program: Program, plan: MemoryPlan) -> Program:
    """`program` in which each step that first touches bytes waits for those who had them before."""
    touches = _touches(program)
    held: list[tuple[int, int, int, int, int]] = []  # first step, last step, buffer, low, high
    for place in plan.placements:
        if place.space != "dynamic":
            continue
        spans = program.buffers[place.buffer].lives or ((place.first_step, place.last_step),)
        for first, last in spans:
            held.append((first, last, place.buffer, place.offset, place.offset + place.aligned))
    held.sort()
    waits: dict[int, set[int]] = {}
    latest: list[tuple[int, int, tuple[int, ...]]] = []  # low, high, last steps of who had these bytes last
    for first, last, buffer, low, high in held:
        mine = [t for t in touches[buffer] if first <= t <= last]
        before: set[int] = set()
        kept = []
        for start, end, users in latest:
            if end <= low or high <= start:
                kept.append((start, end, users))
                continue
            before.update(users)
            kept += [(a, b, users) for a, b in ((start, low), (high, end)) if a < b]
        for step in _firsts(program, mine) if before else ():
            waits.setdefault(step, set()).update(b for b in before if b < step)
        lasts = tuple({program.steps[t].stream: t for t in mine}.values())
        kept.append((low, high, lasts))
        latest = kept
    steps = [
        replace(step, after=tuple(sorted({*step.after, *waits[step.index]}))) if step.index in waits else step
        for step in program.steps
    ]
    return replace(program, steps=tuple(steps))


def _touches(program: Program) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in program.buffers]
    for step in program.steps:
        for buffer in dict.fromkeys((*step.reads, *step.writes)):
            found[buffer].append(step.index)
    return found


def _firsts(program: Program, touches: list[int]) -> list[int]:
    """The first step of each stream among `touches`."""
    return list({program.steps[t].stream: t for t in reversed(touches)}.values())


def check_order(program: Program, plan: MemoryPlan) -> None:
    """InternalError KG103 where two buffers share bytes and a step of one may run beside a step of the other.

    Cuts the arena into sections at every start and end; in each, who comes next must start after who was there ended.
    """
    streams = plan_streams(program)
    touches = _touches(program)
    dynamic = [p for p in plan.placements if p.space == "dynamic"]
    cuts = sorted({edge for p in dynamic for edge in (p.offset, p.offset + p.aligned)})
    stints: list[list[tuple[int, ...]]] = [[] for _ in cuts]  # of each section: the steps of each who is there
    number = {cut: i for i, cut in enumerate(cuts)}
    for place in dynamic:
        spans = program.buffers[place.buffer].lives or ((0, len(program.steps)),)
        for first, last in spans:
            used = tuple(t for t in touches[place.buffer] if first <= t <= last)
            for section in range(number[place.offset], number[place.offset + place.aligned]) if used else ():
                stints[section].append(used)
    for before, after in {pair for found in stints for pair in pairwise(sorted(found))}:
        for a in {streams.stream_of[t]: t for t in before}.values():
            for b in {streams.stream_of[t]: t for t in reversed(after)}.values():
                if not streams.precedes(a, b):
                    names = f"{program.steps[a].name} and {program.steps[b].name}"
                    raise InternalError(
                        f"the transfer schedule is wrong: {names} may use the same bytes at once",
                        code="KG103",
                        help="please report this graph; --offload off runs it without transfers",
                    )
