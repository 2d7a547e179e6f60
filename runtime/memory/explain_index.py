"""What every explanation looks up: placements by buffer, steps by node, who touches a buffer, live bytes over time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from kgrun.graphs.records import dataclass
from kgrun.runtime.memory.plan_types import MemoryPlan, Placement
from kgrun.runtime.program import Buffer, Program, Step


@dataclass(frozen=True, slots=True)
class StepRef:
    """A step by position and name."""

    index: int
    name: str
    op: str
    stream: str


@dataclass(frozen=True, slots=True)
class BufferRef:
    """A buffer where an explanation names it. `offset` is from the start of its region, None where it has no bytes."""

    name: str
    memory_class: str
    space: str | None
    offset: int | None
    nbytes: int
    aligned: int
    tensors: tuple[str, ...]


class PlanIndex:
    """Tables over a program and its plan, built once in time linear in their size."""

    def __init__(self, program: Program, plan: MemoryPlan) -> None:
        self.program, self.plan = program, plan
        self.placements: dict[int, Placement] = {p.buffer: p for p in plan.placements}
        self.node_steps: dict[int, list[Step]] = {}
        self.touches: list[list[int]] = [[] for _ in program.buffers]
        for step in program.steps:
            self.node_steps.setdefault(step.node, []).append(step)
            for index in dict.fromkeys((*step.reads, *step.writes)):
                self.touches[index].append(step.index)
        self.live = live_bytes(program, plan)

    @property
    def dynamic(self) -> list[Placement]:
        """Placements in the reused region, in buffer order."""
        return [p for p in self.plan.placements if p.space == "dynamic"]

    @property
    def peak(self) -> int | None:
        """The step with the most live dynamic bytes; the plan's own choice where several have as many."""
        if not self.live or not any(p.space == "dynamic" for p in self.plan.placements):
            return None
        most = max(self.live)
        chosen = self.plan.peak_step
        if chosen is not None and chosen < len(self.live) and self.live[chosen] == most:
            return chosen
        return self.live.index(most)

    def span(self, place: Placement) -> tuple[int, int]:
        """First and last step (inclusive) in which the bytes are taken."""
        return taken_span(self.program, place)

    def step_ref(self, index: int) -> StepRef:
        """The step at a position."""
        step = self.program.steps[index]
        return StepRef(step.index, step.name, step.op, step.stream)

    def buffer_ref(self, index: int) -> BufferRef:
        """A buffer with its place."""
        buffer = self.program.buffers[index]
        place = self.placements.get(index)
        return BufferRef(
            name=buffer.name,
            memory_class=str(buffer.memory_class),
            space=None if place is None else place.space,
            offset=None if place is None else place.offset,
            nbytes=buffer.nbytes,
            aligned=0 if place is None else place.aligned,
            tensors=members(buffer),
        )


def members(buffer: Buffer) -> tuple[str, ...]:
    """Names that live in a buffer; a workspace is its own."""
    return buffer.tensors or (buffer.name,)


def taken_span(program: Program, place: Placement) -> tuple[int, int]:
    """Steps in which a placement's bytes are taken: its life, or the whole run where it shares with nobody (S46)."""
    if program.buffers[place.buffer].no_reuse:
        return 0, max(len(program.steps) - 1, 0)
    return place.first_step, place.last_step


def live_bytes(program: Program, plan: MemoryPlan) -> list[int]:
    """Aligned dynamic bytes taken in each step; its maximum is the bound that no plan can beat (S61)."""
    steps = len(program.steps)
    change = [0] * (steps + 1)
    for place in plan.placements:
        for first, last in place.lives or (taken_span(program, place),):
            if place.space == "dynamic" and first < steps:
                change[first] += place.aligned
                change[min(last, steps - 1) + 1] -= place.aligned
    return list(accumulate(change[:steps]))


def named(refs: Sequence[StepRef], at_most: int = 3) -> str:
    """`a, b, c and 4 more`: steps for a sentence."""
    names = ", ".join(ref.name for ref in refs[:at_most])
    more = len(refs) - at_most
    return f"{names} and {more:,} more" if more > 0 else names
