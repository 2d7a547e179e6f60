"""What the pictures of memory draw: items with offsets and lives, live bytes over time, the peak."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from kgrun.graphs.records import dataclass
from kgrun.runtime.program import MemoryClass

if TYPE_CHECKING:
    from kgrun.runtime.memory.packing.problem import Problem
    from kgrun.runtime.memory.plan_types import MemoryPlan
    from kgrun.runtime.program import Program

CLASSES = (*(str(c) for c in MemoryClass), "buffer")  # "buffer": of a packing problem, which has no classes


@dataclass(frozen=True, slots=True)
class Item:
    """One buffer.

    Attributes:
        group: a name of `CLASSES`.
        nbytes, held: bytes needed, and bytes taken in the picture.
        spans: half-open intervals of time in which it holds data.
        members: tensors that live in it, with the reason why they share.
        notes: further lines for whoever asks about it.
    """

    name: str
    group: str
    static: bool
    offset: int
    nbytes: int
    held: int
    spans: tuple[tuple[int, int], ...]
    members: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """A picture's content.

    Attributes:
        title: the graph's or the file's name.
        unit: what a unit of time is: "step" or "time".
        steps: names of steps, empty where time has none.
        start, end: the half-open range of time.
        height, static_bytes: bytes of the dynamic arena and of the static region.
        lower_bound: bytes that no arena can go below, None where it is not known.
        live: (time, bytes) where the live dynamic bytes change, ascending, from `start` on.
        peak: a time at which most bytes are live, None without dynamic items.
        timeline: markup of steps and transfers over predicted time; empty where nothing moves.
    """

    title: str
    unit: str
    items: tuple[Item, ...]
    steps: tuple[str, ...]
    start: int
    end: int
    height: int
    static_bytes: int
    lower_bound: int | None
    optimal: bool
    planner: str
    live: tuple[tuple[int, int], ...]
    peak: int | None
    facts: Mapping[str, str] = field(default_factory=dict)
    timeline: str = ""

    @property
    def dynamic(self) -> tuple[Item, ...]:
        """The items of the arena."""
        return tuple(item for item in self.items if not item.static)

    @property
    def peak_live(self) -> int:
        """Most live dynamic bytes."""
        return max((nbytes for _, nbytes in self.live), default=0)


def plan_map(program: Program | None, plan: MemoryPlan, title: str | None = None) -> MemoryMap:
    """The picture of a plan; without its program, steps have numbers and buffers no members."""
    from kgrun.cli.render.memory_map.timeline import timeline
    from kgrun.runtime.memory.explain_index import taken_span

    steps = tuple(step.name for step in program.steps) if program is not None else ()
    notes = _decision_notes(program)
    items = []
    for p in plan.placements:
        spans = p.spans if p.lives or program is None else (taken_span(program, p),)
        members: tuple[str, ...] = ()
        why = notes.get(p.buffer, ())
        if program is not None:
            buffer = program.buffers[p.buffer]
            shares = buffer.shares or {}
            members = tuple(f"{m}: {shares[m]}" if m in shares else m for m in buffer.tensors)
            why = (*_kept_notes(buffer.no_reuse, buffer.lifelong), *why)
        items.append(
            Item(
                p.name, str(p.memory_class), p.space == "static", p.offset, p.nbytes, p.aligned,
                tuple((first, last + 1) for first, last in spans), members if members != (p.name,) else (), why,
            )
        )  # fmt: skip
    end = len(steps) or max((item.spans[0][1] for item in items), default=0)
    live = live_curve((item for item in items if not item.static), 0)
    return MemoryMap(
        title=title or (program.graph.source.name if program is not None else "memory plan"),
        unit="step", items=tuple(items), steps=steps, start=0, end=max(end, 1),
        height=plan.dynamic_bytes, static_bytes=plan.static_bytes, lower_bound=plan.lower_bound_bytes,
        optimal=plan.optimal, planner=plan.planner, live=live, peak=_peak(live, plan.peak_step),
        facts={"target": program.target} if program is not None else {},
        timeline=timeline(program) if program is not None else "",
    )  # fmt: skip


def _kept_notes(no_reuse: bool, lifelong: bool) -> tuple[str, ...]:
    texts = {"no_reuse: shares its bytes with no other buffer": no_reuse, "lifelong: keeps its bytes": lifelong}
    return tuple(text for text, holds in texts.items() if holds)


def _decision_notes(program: Program | None) -> dict[int, tuple[str, ...]]:
    """Refused in-place requests by the buffer of the output that asked."""
    notes: dict[int, tuple[str, ...]] = {}
    for d in program.decisions if program is not None else ():
        slot = program.slots.get(d.output) if program is not None else None
        if slot is not None and not d.granted:
            text = f"{d.output} is not in place of {d.input}: {d.reason}"
            notes[slot.buffer] = (*notes.get(slot.buffer, ()), text)
    return notes


def packing_map(
    problem: Problem,
    offsets: Sequence[int],
    title: str,
    *,
    lower_bound: int | None = None,
    optimal: bool = False,
    planner: str = "given offsets",
) -> MemoryMap:
    """The picture of a packing problem with its offsets; memory spaces are not told apart."""
    items = tuple(
        Item(
            problem.name(i), "buffer", False, offset, problem.sizes[i],
            problem.sizes[i] if i in problem.aliases else problem.occupied(i),
            ((problem.lowers[i], problem.uppers[i]), *(problem.extra_intervals.get(i, ()))),
            notes=(f"inside {problem.name(problem.aliases[i][0])}",) if i in problem.aliases else (),
        )
        for i, offset in enumerate(offsets)
    )  # fmt: skip
    inside = {problem.name(i) for i in problem.aliases}
    return _map_of(items, title, lower_bound, optimal, planner, inside)


def columns_map(
    ids: Sequence[str],
    lower: Sequence[int],
    upper: Sequence[int],
    size: Sequence[int],
    offset: Sequence[int],
    title: str,
) -> MemoryMap:
    """The picture of plain columns: half-open lives, bytes and offsets of buffers."""
    items = tuple(
        Item(str(name), "buffer", False, at, nbytes, nbytes, ((low, high),))
        for name, low, high, nbytes, at in zip(ids, lower, upper, size, offset, strict=True)
    )
    return _map_of(items, title, None, False, "given offsets", set())


def _map_of(
    items: tuple[Item, ...], title: str, bound: int | None, optimal: bool, planner: str, inside: set[str]
) -> MemoryMap:
    times = [time for item in items for span in item.spans for time in span]
    start, end = min(times, default=0), max(times, default=1)
    height = max((item.offset + item.held for item in items), default=0)
    live = live_curve((item for item in items if item.name not in inside), start)
    most = max((nbytes for _, nbytes in live), default=0)
    bound = most if bound is None else bound
    return MemoryMap(
        title=title, unit="time", items=items, steps=(), start=start, end=max(end, start + 1), height=height,
        static_bytes=0, lower_bound=bound, optimal=optimal or (bound == height and bool(items)), planner=planner,
        live=live, peak=_peak(live, None),
    )  # fmt: skip


def live_curve(items: Iterable[Item], start: int) -> tuple[tuple[int, int], ...]:
    """(time, live bytes) where they change, the first entry at `start`. Overlapping spans of an item count once."""
    change: dict[int, int] = {}
    for item in items:
        for low, high in _united(item.spans):
            if high > low and item.held:
                change[low] = change.get(low, 0) + item.held
                change[high] = change.get(high, 0) - item.held
    curve = [(start, 0)]
    live = 0
    for time in sorted(change):
        live += change[time]
        if time == curve[-1][0]:
            curve[-1] = (time, live)
        elif live != curve[-1][1]:
            curve.append((time, live))
    return tuple(curve)


def _united(spans: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
    if len(spans) == 1:
        return spans
    out: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    return out


def _peak(live: Sequence[tuple[int, int]], chosen: int | None) -> int | None:
    """The chosen time where most bytes are live there, else the first such time."""
    most = max((nbytes for _, nbytes in live), default=0)
    if most == 0:
        return None
    if chosen is not None and live_at(live, chosen) == most:
        return chosen
    return next(time for time, nbytes in live if nbytes == most)


def live_at(live: Sequence[tuple[int, int]], time: int) -> int:
    """Live bytes at a time, of a curve made by `live_curve`."""
    from bisect import bisect_right

    position = bisect_right(live, time, key=lambda point: point[0])
    return live[position - 1][1] if position else 0
