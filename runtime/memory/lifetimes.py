"""When each buffer of a program holds data: the first and the last step that touch it."""

from __future__ import annotations

from kgrun.graphs.records import dataclass
from kgrun.runtime.program import Program


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """First and last step of each buffer, both inclusive, by buffer index. Untouched buffers have first > last."""

    first: tuple[int, ...]
    last: tuple[int, ...]


def lifetimes(program: Program) -> Lifetimes:
    """Lifetimes under the issue order of steps.

    Static and lifelong buffers, and those that share bytes with none, hold data throughout. A buffer that a graph
    output lives in is static, so nothing read after the run can be overwritten. A buffer with `lives` of its own has
    the first and the last step of them.
    """
    end = max(len(program.steps) - 1, 0)
    first = [end + 1] * len(program.buffers)
    last = [-1] * len(program.buffers)
    for step in program.steps:
        for index in (*step.reads, *step.writes):
            first[index] = min(first[index], step.index)
            last[index] = step.index
    for buffer in program.buffers:
        if buffer.lives:
            first[buffer.index], last[buffer.index] = buffer.lives[0][0], buffer.lives[-1][1]
        elif buffer.memory_class.static or (buffer.lifelong and last[buffer.index] >= 0):
            first[buffer.index], last[buffer.index] = 0, end
    return Lifetimes(tuple(first), tuple(last))
