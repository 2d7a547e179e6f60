"""Run a program's allocations, and nothing else, through a pool: every buffer counted, placed, and given back.

What a run does is the same each time, so one dry run tells all addresses before a kernel runs. A run that would fail
half way fails here instead, where it costs nothing and no kernel runs twice (B10).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kgrun.graphs.records import dataclass
from kgrun.runtime.memory.alignment import Padding, held_bytes
from kgrun.runtime.memory.pool.best_fit import BestFitPool, Clock
from kgrun.runtime.memory.pool.blocks import DryBlocks
from kgrun.runtime.memory.pool.statistics import Holder, PoolExhausted, PoolStatistics
from kgrun.runtime.program import Buffer, MemoryClass, Program, Step
from kgrun.runtime.streams import StreamPlan, spans


@dataclass(frozen=True, slots=True)
class Workload:
    """What a dry run allocates.

    Attributes:
        buffers: dynamic buffers that need bytes.
        groups: contiguous groups among them, as buffer indices in order.
        guard: free bytes before and after each group and each buffer in `guarded`.
        streams: the order between streams; None where list order is the order.
    """

    program: Program
    buffers: Sequence[Buffer]
    groups: Sequence[Sequence[int]] = ()
    padding: Padding = "plain"
    guard: int = 0
    guarded: frozenset[int] = frozenset()
    streams: StreamPlan | None = None


@dataclass(frozen=True, slots=True)
class DryRun:
    """Where everything went.

    Attributes:
        addresses: of each buffer, by its index.
        blocks: size of each block by its address, and in `ends` the end of its highest buffer.
        peak_used: most bytes in use at once, first reached at step `peak_step`.
        left: what is in use after the last step: lifelong buffers and those that share with none.
        final: the pool then.
    """

    addresses: Mapping[int, int]
    blocks: Mapping[int, int]
    ends: Mapping[int, int]
    peak_used: int
    peak_step: int | None
    left: Sequence[Holder]
    final: PoolStatistics


class StepFailed(Exception):
    """A step's buffer found no room; `cause` says which and why."""

    def __init__(self, step: str | None, cause: PoolExhausted) -> None:
        super().__init__(str(cause))
        self.step, self.cause = step, cause


def use_counts(program: Program) -> Counter[int]:
    """How many steps touch each buffer (S109).

    A step that reads a buffer through several of its inputs, or both reads and writes it, counts once and gives up its
    use once, so a count can neither run out early nor stay (B13). A buffer is an alias class: a graph output pins the
    bytes it lives in through all views, because that class is static and never counted down (B14).
    """
    return Counter(index for step in program.steps for index in {*step.reads, *step.writes})


def held_at(work: Workload, room: int, unit: int, step: int) -> list[tuple[int, int]]:
    """Address and size of each piece in use while `step` runs, in order of addresses."""
    return _DryRun(work, room, unit).held_at(step)


def dry_run(work: Workload, room: int, unit: int) -> DryRun:
    """Allocate and free in the order of the steps (S111): outputs, workspaces, the step, then what has no use left.

    Args:
        room: most bytes of all blocks together.
        unit: bytes to grow by.

    Raises:
        StepFailed: a buffer found no room.
    """
    return _DryRun(work, room, unit).run()


class _DryRun:
    def __init__(self, work: Workload, room: int, unit: int) -> None:
        self._work = work
        self._pool = BestFitPool(DryBlocks(room), unit)
        self._buffers = {buffer.index: buffer for buffer in work.buffers}
        self._group_of = {index: tuple(group) for group in work.groups for index in group}
        self._counts = use_counts(work.program)
        self._starts: dict[int, int] = {}  # address of the piece that holds each live buffer, guard included
        self._addresses: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        first, last = spans(work.program, work.streams, self._buffers) if work.streams is not None else ({}, {})
        self._first: Mapping[int, Clock] = first
        self._last: Mapping[int, Clock] = last

    def run(self) -> DryRun:
        used, peak_step = 0, None
        for step in self._steps():
            if (now := self._pool.used) > used:
                used, peak_step = now, step.index
        left = self._pool.holders(None)
        return DryRun(self._addresses, self._pool.blocks(), self._ends, used, peak_step, left, self._pool.statistics())

    def held_at(self, index: int) -> list[tuple[int, int]]:
        next(step for step in self._steps() if step.index == index)
        return sorted((start, self._pool.size_of(start)) for start in self._starts.values())

    def _steps(self) -> Iterator[Step]:
        """Each step while it holds its bytes."""
        pinned = sorted(b.index for b in self._work.buffers if b.lifelong or b.no_reuse)
        for index in pinned:
            self._counts[index] += 1  # a use that nobody gives up
        self._hold(pinned, None)
        for step in self._work.program.steps:
            self._hold(self._wanted(step.writes, step.reads), step.name)
            yield step
            for index in dict.fromkeys((*step.reads, *step.writes)):
                if index in self._buffers:
                    self._release(index)

    def _wanted(self, writes: Sequence[int], reads: Sequence[int]) -> Iterator[int]:
        """Buffers of a step that hold no bytes yet: results before workspaces (S113, S114)."""
        fresh = [i for i in dict.fromkeys((*writes, *reads)) if i in self._buffers and i not in self._addresses]
        yield from (i for i in fresh if self._buffers[i].memory_class is not MemoryClass.WORKSPACE)
        yield from (i for i in fresh if self._buffers[i].memory_class is MemoryClass.WORKSPACE)

    def _hold(self, indices: Iterable[int], step: str | None) -> None:
        for index in indices:
            if index in self._addresses:
                continue  # came with its group
            members = self._group_of.get(index, (index,))
            try:
                self._place(members)
            except PoolExhausted as error:
                raise StepFailed(step, error) from None

    def _place(self, members: Sequence[int]) -> None:
        """One buffer, or a group side by side (S116); free bytes around it where the plan wants them."""
        work = self._work
        guard = work.guard if len(members) > 1 or members[0] in work.guarded else 0
        sizes = [held_bytes(self._buffers[i].nbytes, work.padding) for i in members]
        sizes[0] += guard
        sizes[-1] += guard
        now = _earliest([self._first[i] for i in members]) if self._first else ()
        starts = self._pool.allocate_contiguous(sizes, [self._buffers[i].name for i in members], now)
        for position, (index, start, size) in enumerate(zip(members, starts, sizes, strict=True)):
            self._starts[index] = start
            self._addresses[index] = start + (guard if position == 0 else 0)
            block = self._pool.block_of(start)
            self._ends[block] = max(self._ends.get(block, 0), start + size)

    def _release(self, index: int) -> None:
        """Give up one use; without uses the bytes go back (S115)."""
        self._counts[index] -= 1
        if self._counts[index] == 0:
            self._pool.free(self._starts.pop(index), self._last[index] if self._last else ())


def _earliest(clocks: Sequence[Clock]) -> Clock:
    return tuple(min(each) for each in zip(*clocks, strict=True))
