"""What the peak is made of and what would lower it: contributors, holes, the live curve and single changes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from kgrun.graphs.records import dataclass
from kgrun.runtime.memory.explain_index import PlanIndex, StepRef
from kgrun.runtime.memory.plan_types import MemoryPlan, Placement
from kgrun.runtime.program import Program

CHANGES = 10  # suggestions given


@dataclass(frozen=True, slots=True)
class Contributor:
    """A dynamic buffer whose bytes are taken at the peak.

    Attributes:
        touched: whether the peak's step reads or writes it; otherwise it only waits for a later reader.
        first, last: its life.
    """

    name: str
    memory_class: str
    aligned: int
    offset: int
    first: StepRef
    last: StepRef
    touched: bool


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes inside the arena that nothing uses at the peak's step."""

    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Change:
    """One change to the graph and what it would do to the lower bound.

    Attributes:
        kind: "inplace": grant a refused request; "idle": move a buffer out between two uses, or compute it later or
            again; "remove": do without the buffer, for example by fusing its producer into its readers.
        saved_bytes: how much lower the bound would be; the arena follows where the planner meets the bound.
        text: the change in words.
    """

    kind: str
    name: str
    saved_bytes: int
    bound_after: int
    text: str


@dataclass(frozen=True, slots=True)
class PeakExplanation:
    """The step that decides the arena's height.

    Attributes:
        step: None where the program has no dynamic buffers.
        live_bytes: aligned dynamic bytes taken there.
        plateau: steps at which as many bytes are taken.
        lower_bound, height: of the arena; `static_bytes` comes on top of it.
        contributors: by bytes, largest first.
        class_bytes: bytes at the peak by class, largest first.
        curve: live dynamic bytes of each step.
        holes: by offset; the arena is full at the peak where there are none.
        changes: the single changes that would lower the bound most, at most `CHANGES`.
        note: why there is none.
    """

    step: StepRef | None
    live_bytes: int
    plateau: int
    lower_bound: int
    height: int
    static_bytes: int
    contributors: tuple[Contributor, ...]
    class_bytes: tuple[tuple[str, int], ...]
    curve: tuple[int, ...]
    holes: tuple[Hole, ...]
    changes: tuple[Change, ...]
    note: str | None = None

    @property
    def hole_bytes(self) -> int:
        """Bytes free inside the arena at the peak."""
        return sum(hole.nbytes for hole in self.holes)


def explain_peak(program: Program, plan: MemoryPlan, *, index: PlanIndex | None = None) -> PeakExplanation:
    """Explain the peak of the dynamic region, in time linear in the program but for sorting."""
    found = index or PlanIndex(program, plan)
    peak = found.peak
    if peak is None:
        return PeakExplanation(
            None, 0, 0, plan.lower_bound_bytes, plan.dynamic_bytes, plan.static_bytes,
            (), (), tuple(found.live), (), (), "the graph has no dynamic memory",
        )  # fmt: skip
    live = [p for p in found.dynamic if found.span(p)[0] <= peak <= found.span(p)[1]]
    live.sort(key=lambda p: (-p.aligned, p.buffer))
    by_class: dict[str, int] = {}
    for p in live:
        by_class[str(p.memory_class)] = by_class.get(str(p.memory_class), 0) + p.aligned
    touched = {*program.steps[peak].reads, *program.steps[peak].writes}
    plateau = found.live.count(found.live[peak])
    changes = _changes(found, peak, live)
    return PeakExplanation(
        step=found.step_ref(peak),
        live_bytes=found.live[peak],
        plateau=plateau,
        lower_bound=plan.lower_bound_bytes,
        height=plan.dynamic_bytes,
        static_bytes=plan.static_bytes,
        contributors=tuple(_contributor(found, p, p.buffer in touched) for p in live),
        class_bytes=tuple(sorted(by_class.items(), key=lambda pair: (-pair[1], pair[0]))),
        curve=tuple(found.live),
        holes=tuple(_holes(live, plan.dynamic_bytes)),
        changes=changes,
        note=None if changes else f"no single change lowers the bound: {plateau:,} steps take as many bytes",
    )


def _contributor(index: PlanIndex, p: Placement, touched: bool) -> Contributor:
    first, last = index.step_ref(p.first_step), index.step_ref(p.last_step)
    return Contributor(p.name, str(p.memory_class), p.aligned, p.offset, first, last, touched)


def _holes(live: Sequence[Placement], height: int) -> Iterator[Hole]:
    end = 0
    for p in sorted(live, key=lambda p: p.offset):
        if p.offset > end:
            yield Hole(end, p.offset - end)
        end = max(end, p.offset + p.aligned)
    if height > end:
        yield Hole(end, height - end)


class _Bound:
    """The lower bound after bytes are taken away from a range of steps around the peak.

    Within the range the bound falls by exactly those bytes, since the peak is in it; outside it stays what it was.
    """

    def __init__(self, live: Sequence[int], peak: int) -> None:
        self.most = live[peak]
        self.until = [0, *accumulate(live, max)]
        self.since = [*reversed(list(accumulate(reversed(live), max))), 0]

    def without(self, nbytes: int, first: int, last: int) -> int:
        """The bound if `nbytes` fewer were taken in the steps first … last, the peak among them."""
        return max(self.until[first], self.since[last + 1], self.most - nbytes)


def _changes(index: PlanIndex, peak: int, live: Sequence[Placement]) -> tuple[Change, ...]:
    bound = _Bound(index.live, peak)
    found = [*_grants(index, peak, bound), *_idle(index, peak, live, bound), *_removals(index, live, bound)]
    # Of equal savings the cheaper change first, and one suggestion a buffer.
    rank = {"inplace": 0, "idle": 1, "remove": 2}
    found.sort(key=lambda c: (-c.saved_bytes, rank[c.kind], c.name))
    chosen: dict[str, Change] = {}
    for change in found:
        if change.saved_bytes > 0 and change.name not in chosen:
            chosen[change.name] = change
            if len(chosen) == CHANGES:
                break
    return tuple(chosen.values())


def _removals(index: PlanIndex, live: Sequence[Placement], bound: _Bound) -> Iterator[Change]:
    for p in live:
        after = bound.without(p.aligned, *index.span(p))
        if str(p.memory_class) == "workspace":
            text = f"let {index.program.steps[p.first_step].name} work without the workspace {p.name}"
        else:
            text = f"do without {p.name}, for example by fusing its producer into its readers"
        yield Change("remove", p.name, bound.most - after, after, text)


def _idle(index: PlanIndex, peak: int, live: Sequence[Placement], bound: _Bound) -> Iterator[Change]:
    """Buffers that only wait at the peak: between the uses around it their bytes could serve others."""
    for p in live:
        touches = index.touches[p.buffer]
        buffer = index.program.buffers[p.buffer]
        position = bisect_left(touches, peak)
        at = bisect_right(touches, peak)
        if buffer.lifelong or buffer.no_reuse or at > position or not 0 < position < len(touches):
            continue
        before, after = touches[position - 1], touches[position]
        least = bound.without(p.aligned, before + 1, after - 1)
        yield Change("idle", p.name, bound.most - least, least, _idle_text(index, p, peak, before, after))


def _idle_text(index: PlanIndex, p: Placement, peak: int, before: int, after: int) -> str:
    steps = index.program.steps
    text = f"{p.name} waits from {steps[before].name} to {steps[after].name}: offload it or compute it again"
    if before == p.first_step:
        return f"{text}, or run {steps[before].name} after {steps[peak].name}"
    if after == p.last_step:
        return f"{text}, or run {steps[after].name} before {steps[peak].name}"
    return text


def _grants(index: PlanIndex, peak: int, bound: _Bound) -> Iterator[Change]:
    """Refused in-place requests whose two buffers are both there at the peak."""
    program = index.program
    for decision in program.decisions:
        slots = program.slots.get(decision.output), program.slots.get(decision.input)
        if decision.granted or slots[0] is None or slots[1] is None or slots[0].buffer == slots[1].buffer:
            continue
        output, source = (index.placements.get(slot.buffer) for slot in slots if slot is not None)
        if output is None or source is None or "static" in (output.space, source.space):
            continue
        (a, b), (c, d) = index.span(output), index.span(source)
        first, last = max(a, c), min(b, d)
        if not first <= peak <= last:
            continue
        after = bound.without(min(output.aligned, source.aligned), first, last)
        text = f"let {decision.node} write {decision.output} over {decision.input}; refused because {decision.reason}"
        yield Change("inplace", output.name, bound.most - after, after, text)
