"""Happens-before between streams, and the events that make it so.

Steps of one stream run in issue order. A step that needs a result of another stream waits for an event recorded after
the step that makes it; a wait that an earlier one already implies is left out, so of several readers only the nearest
waits (S88). Order is kept in vector clocks, one entry a stream (Fidge 1988, Mattern 1989).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kgrun.graphs.records import dataclass
from kgrun.runtime.program import Program, Step


@dataclass(frozen=True, slots=True)
class Event:
    """Recorded on `source` right after step `record_after`; `target` waits for it right before step `wait_before`."""

    record_after: int
    source: str
    wait_before: int
    target: str


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """Streams of a program and their order.

    Attributes:
        names: streams in the order in which they are first used; the first one starts and ends the run.
        events: in order of the waiting step.
        stream_of: stream number of each step.
        position: position of each step in its stream.
        clocks: for each step and stream, how many of that stream's steps have ended before the step starts.
    """

    names: tuple[str, ...]
    events: tuple[Event, ...]
    stream_of: tuple[int, ...]
    position: tuple[int, ...]
    clocks: tuple[tuple[int, ...], ...]

    def precedes(self, before: int, after: int) -> bool:
        """Whether step `before` has ended when step `after` starts."""
        return self.clocks[after][self.stream_of[before]] > self.position[before]


def plan_streams(program: Program) -> StreamPlan:
    """Streams, clocks and the fewest events that order every pair of steps that must be ordered.

    Ordered are: a step after those named in its `after`; a reader of a buffer after its writers; a writer after the
    readers and writers of the same buffer, so that an in-place update waits for every earlier reader (B19).
    """
    names = tuple(dict.fromkeys(step.stream for step in program.steps)) or ("compute",)
    number = {name: i for i, name in enumerate(names)}
    issued = [0] * len(names)
    known = [[0] * len(names) for _ in names]  # what each stream knows at its end
    writers: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    ends: list[list[int]] = []  # the clock when each step has ended
    events: list[Event] = []
    stream_of: list[int] = []
    position: list[int] = []
    clocks: list[tuple[int, ...]] = []
    for step in program.steps:
        mine = number[step.stream]
        clock = known[mine]
        for before in _needed(step, writers, readers):
            theirs = stream_of[before]
            if theirs != mine and clock[theirs] <= position[before]:
                events.append(Event(before, names[theirs], step.index, step.stream))
                clock = [max(a, b) for a, b in zip(clock, ends[before], strict=True)]
        stream_of.append(mine)
        position.append(issued[mine])
        clocks.append(tuple(clock))
        issued[mine] += 1
        ended = list(clock)
        ended[mine] = issued[mine]
        ends.append(ended)
        known[mine] = ended
        _note(step, writers, readers)
    return StreamPlan(names, tuple(events), tuple(stream_of), tuple(position), tuple(clocks))


def _needed(step: Step, writers: dict[int, int], readers: dict[int, list[int]]) -> list[int]:
    """Earlier steps that must have ended, latest first: a late one usually implies the early ones."""
    needed = set(step.after)
    for buffer in (*step.reads, *step.writes):
        if buffer in writers:
            needed.add(writers[buffer])
    for buffer in step.writes:
        needed.update(readers.get(buffer, ()))
    return sorted(needed, reverse=True)


def _note(step: Step, writers: dict[int, int], readers: dict[int, list[int]]) -> None:
    for buffer in step.reads:
        readers.setdefault(buffer, []).append(step.index)
    for buffer in step.writes:
        writers[buffer] = step.index
        readers.pop(buffer, None)


def dependencies(streams: StreamPlan) -> list[list[int]]:
    """For each step the earlier steps it waits for directly: its stream's previous one, and those behind its events."""
    last: dict[int, int] = {}
    waits: dict[int, list[int]] = {}
    for event in streams.events:
        waits.setdefault(event.wait_before, []).append(event.record_after)
    found = []
    for step, stream in enumerate(streams.stream_of):
        before = [last[stream]] if stream in last else []
        found.append(before + waits.get(step, []))
        last[stream] = step
    return found


def conflicts(program: Program, streams: StreamPlan, buffers: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of positions in `buffers` that must not share bytes: neither is dead when the other is first touched (S58).

    Buffer X may give its bytes to Y when every last step of X, one a stream, has ended before any step of Y starts.
    """
    import numpy as np

    first, last = spans(program, streams, buffers)
    if not buffers:
        return []
    never = (len(program.steps),) * len(streams.names)  # of what no step touches: whatever was there is dead by then
    starts = np.array([first.get(buffer, never) for buffer in buffers]).T.copy()  # a row a stream
    ends = np.array([last[buffer] for buffer in buffers]).T.copy()
    found: list[tuple[int, int]] = []
    for i in range(len(buffers)):
        after = before = np.True_
        for start, end in zip(starts, ends, strict=True):
            after = after & (start[:i] >= end[i])
            before = before & (end[:i] <= start[i])
        found += [(j, i) for j in np.flatnonzero(~(after | before)).tolist()]
    return found


def spans(
    program: Program, streams: StreamPlan, buffers: Collection[int]
) -> tuple[dict[int, tuple[int, ...]], dict[int, tuple[int, ...]]]:
    """Two clocks of each of `buffers`: what has ended before any of its steps starts, and what must have ended before
    its bytes are free. One that no step touches has no first clock.
    """
    last = {buffer: [0] * len(streams.names) for buffer in buffers}
    first: dict[int, tuple[int, ...]] = {}
    for step in program.steps:
        stream, clock = streams.stream_of[step.index], streams.clocks[step.index]
        for buffer in (*step.reads, *step.writes):
            if buffer not in last:
                continue
            last[buffer][stream] = streams.position[step.index] + 1
            seen = first.get(buffer)
            first[buffer] = clock if seen is None else tuple(min(pair) for pair in zip(seen, clock, strict=True))
    return first, {buffer: tuple(ended) for buffer, ended in last.items()}
