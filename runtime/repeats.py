"""Which steps may be repeated to be timed, and what must come before each repeat."""

from __future__ import annotations

from kgrun.graphs.dtypes import DTYPES
from kgrun.runtime.program import Clear, Program

Repeats = tuple[dict[int, tuple[int, ...]], frozenset[int]]


def repeats(program: Program) -> Repeats:
    """For steps that add to what was cleared for them: those clears; and the steps that must not run twice in a row.

    A step that counts an integer up where it stands would leave another number for each repeat, and a later step may
    use it as an index. Floating-point values may grow: they are no addresses.
    """
    cleared: dict[int, int] = {}
    again: dict[int, tuple[int, ...]] = {}
    once = set()
    for step in program.steps:
        if isinstance(step.work, Clear):
            cleared[step.work.target.buffer] = step.index
            continue
        leads = sorted({cleared.pop(b) for b in step.writes if b in cleared})
        if leads:
            again[step.index] = tuple(leads)
        elif any(_counts(program, b) for b in set(step.reads) & set(step.writes)):
            once.add(step.index)
    return again, frozenset(once)


def _counts(program: Program, buffer: int) -> bool:
    """Whether a buffer holds integers."""
    tensors = program.graph.tensors
    held = [tensors[name].type.dtype for name in program.buffers[buffer].tensors if name in tensors]
    return any(DTYPES[dtype].kind in ("int", "uint") for dtype in held)
