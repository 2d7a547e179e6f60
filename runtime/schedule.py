"""Put independent branches on streams of their own, so that they can run side by side."""

from __future__ import annotations

from dataclasses import replace

from kgrun.runtime.program import Program, Step

MAX_STREAMS = 8


def parallel_streams(program: Program, most: int = MAX_STREAMS) -> Program:
    """`program` with its steps spread over at most `most` streams; unchanged where the file names streams itself.

    List scheduling in issue order: a step goes on in the stream of an operand's last writer if nothing came after it
    there, else it opens a stream, else it takes the one that was used longest ago.
    """
    if len({step.stream for step in program.steps}) != 1:
        return program
    streams: list[int] = []  # the last step of each stream
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    placed: list[Step] = []
    names: dict[int, str] = {}
    for step in program.steps:
        before = {writer[b] for b in (*step.reads, *step.writes) if b in writer}
        before.update(r for b in step.writes for r in readers.get(b, ()))
        before.update(step.after)
        number = _choose(streams, before, most)
        if number == len(streams):
            names[number] = step.stream if number == 0 else f"branch {number}"
            streams.append(step.index)
        else:
            streams[number] = step.index
        placed.append(replace(step, stream=names[number]))
        for buffer in step.reads:
            readers.setdefault(buffer, []).append(step.index)
        for buffer in step.writes:
            writer[buffer] = step.index
            readers.pop(buffer, None)
    return replace(program, steps=tuple(placed))


def _choose(streams: list[int], before: set[int], most: int) -> int:
    going_on = [i for i, last in enumerate(streams) if last in before]
    if going_on:
        return max(going_on, key=lambda i: streams[i])
    if len(streams) < most:
        return len(streams)
    return min(range(len(streams)), key=lambda i: streams[i])
