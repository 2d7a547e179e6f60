"""What a memory plan says: where every byte lives, for how long, and how good the plan is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kgrun.graphs.records import dataclass
from kgrun.runtime.memory.alignment import ALIGNMENT
from kgrun.runtime.program import MemoryClass

if TYPE_CHECKING:
    from kgrun.runtime.memory.packing import Problem

Space = Literal["static", "dynamic"]
MemoryMode = Literal["planned", "pool", "none"]

DEFAULT_MIN_KERNELS = 2000  # below this planning is faster than it is worth keeping

UNPLANNED = "single"  # stands for the planner where there was none


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
class PoolAttempt:
    """One dry run of a pool (S108).

    Attributes:
        way: how the pool grew.
        unit: bytes it could grow by at once.
        step, name: step and buffer that found no room; None where the blocks together were too large, or all fit.
    """

    way: str
    unit: int
    step: str | None
    name: str | None
    fits: bool = False


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What is known of a plan made by a pool (S71).

    Attributes:
        unit: bytes that the pool was asked to grow by.
        blocks: bytes of each block, up to the end of its highest buffer; they add up to the plan's dynamic bytes.
        reserved_bytes: of the blocks before they were cut to that.
        peak_used_bytes: most that was used at once, first reached at `peak_step`.
        peak_idle: sizes of the idle pieces inside the blocks then, largest first.
        kept: buffers in use after the last step.
        attempts: dry runs; the last one fits.
    """

    unit: int
    blocks: tuple[int, ...]
    reserved_bytes: int
    peak_used_bytes: int
    peak_idle: tuple[int, ...]
    peak_step: int | None
    kept: tuple[str, ...]
    attempts: tuple[PoolAttempt, ...]


@dataclass(frozen=True, slots=True)
class Packed:
    """Dynamic memory as it was packed; by default none, which every planner packs.

    Attributes:
        nbytes, lower_bound: of the region.
        problem: what was packed; None for nothing.
    """

    planner: str
    placements: tuple[Placement, ...] = ()
    nbytes: int = 0
    lower_bound: int = 0
    optimal: bool = True
    peak_step: int | None = None
    note: str | None = None
    pool: PoolPlan | None = None
    problem: Problem | None = None


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
        pool: what the pool says, where one made the plan.
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
    pool: PoolPlan | None = None

    @property
    def planned(self) -> bool:
        """Whether it was made before the run; False for what a run node by node took."""
        return self.planner != UNPLANNED

    @property
    def peak_bytes(self) -> int:
        """Static and dynamic bytes together: what a run allocates."""
        return self.static_bytes + self.dynamic_bytes

    @property
    def blocks(self) -> tuple[int, ...]:
        """Bytes of the pieces of device memory that the dynamic region is made of; no buffer crosses a border."""
        if self.pool is not None:
            return self.pool.blocks
        return (self.dynamic_bytes,) if self.dynamic_bytes else ()
