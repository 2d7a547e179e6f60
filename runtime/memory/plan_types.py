"""What a memory plan says: where every byte lives, for how long, and how good the plan is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kgrun.runtime.memory.alignment import ALIGNMENT
from kgrun.runtime.program import MemoryClass

Space = Literal["static", "dynamic"]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one buffer lives.

    Attributes:
        buffer: index in `Program.buffers`.
        name: the buffer's name.
        memory_class: its class.
        space: which of the two regions; both start at offset 0.
        offset: bytes from the region's start, a multiple of the alignment.
        nbytes, aligned: bytes needed, and bytes held.
        first_step, last_step: inclusive steps in which it holds data; static buffers span the whole run.
        lives: inclusive spans of steps, where it holds data more than once; its bytes are free in between.
    """

    buffer: int
    name: str
    memory_class: MemoryClass
    space: Space
    offset: int
    nbytes: int
    aligned: int
    first_step: int
    last_step: int
    lives: tuple[tuple[int, int], ...] = ()

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Inclusive spans of steps in which it holds data, ascending."""
        return self.lives or ((self.first_step, self.last_step),)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Offsets for all buffers of a program, verified.

    Attributes:
        placements: one a buffer that needs memory, in buffer order.
        static_bytes: inputs, parameters, constants and outputs.
        dynamic_bytes: height of the packed arena.
        lower_bound_bytes: largest sum of live aligned dynamic bytes over the steps.
        no_reuse_bytes: dynamic bytes if every buffer had its own.
        optimal: whether no plan can be lower, proven.
        planner: the method that made it.
        plan_ns: nanoseconds spent planning, verification included.
        note: where the plan came from, if not from the planner just now.
        peak_step: a step at which the lower bound is reached; None without dynamic buffers.
    """

    placements: tuple[Placement, ...]
    static_bytes: int
    dynamic_bytes: int
    lower_bound_bytes: int
    no_reuse_bytes: int
    optimal: bool
    planner: str
    plan_ns: int
    peak_step: int | None
    alignment: int = ALIGNMENT
    note: str | None = None

    @property
    def peak_bytes(self) -> int:
        """Static and dynamic bytes together: what a run allocates."""
        return self.static_bytes + self.dynamic_bytes
