"""From a program to the offload problem: who may move, when it is used, how much room there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from kgrun.runtime.memory.alignment import held_bytes
from kgrun.runtime.memory.offload.marks import marked_tensors
from kgrun.runtime.memory.offload.records import Problem, Rates, Tensor
from kgrun.runtime.memory.offload.stays import gaps_of
from kgrun.runtime.program import (
    ArrayRef,
    Buffer,
    Clear,
    Copy,
    HostCall,
    Launch,
    LibraryCall,
    MemoryClass,
    Pointer,
    Program,
    Transfer,
    Work,
)

PERSISTENT = (MemoryClass.INPUT, MemoryClass.PARAMETER, MemoryClass.CONSTANT)


def offload_problem(program: Program, ns: Sequence[float], capacity: int, rates: Rates, forced: bool = True) -> Problem:
    """The problem of `program` whose steps take `ns` nanoseconds each.

    Args:
        capacity: bytes that the run may take.
        forced: whether what the file wants on the host must go there.
    """
    touches: dict[int, set[int]] = {}
    writes: dict[int, set[int]] = {}
    strays: set[int] = set()  # buffers that a step addresses without saying so
    for step in program.steps:
        named = {*step.reads, *step.writes}
        for index in named:
            touches.setdefault(index, set()).add(step.index)
        for index in step.writes:
            writes.setdefault(index, set()).add(step.index)
        strays |= {pointer.buffer for pointer in pointers(step.work)} - named
    grouped = {index for group in program.groups for index in group}
    marked = marked_tensors(program) if forced else frozenset()
    kept = _kept(program)
    tensors = []
    fixed = 0
    for buffer in program.buffers:
        if buffer.nbytes == 0:
            continue
        held = held_bytes(buffer.nbytes)
        used = touches.get(buffer.index, set())
        always = buffer.no_reuse or buffer.lifelong or buffer.index in grouped | strays or not used
        if always:
            fixed += held if used or buffer.static else 0
            continue
        movable = buffer.memory_class not in (MemoryClass.COMMUNICATION, MemoryClass.WORKSPACE)
        movable = movable and kept.isdisjoint(_names(buffer))
        tensors.append(
            Tensor(
                buffer.index,
                buffer.name,
                buffer.nbytes,
                held,
                tuple(sorted(used)),
                frozenset(writes.get(buffer.index, ())),
                persistent=buffer.memory_class in PERSISTENT,
                wanted=buffer.memory_class is MemoryClass.OUTPUT,
                movable=movable,
                forced=movable and not marked.isdisjoint(_names(buffer)),
            )
        )
    elapsed = [0.0, *accumulate(ns)]
    gaps = [
        gap
        for i, tensor in enumerate(tensors)
        if tensor.movable
        for gap in gaps_of(i, tensor, len(ns), elapsed)
        if gap.steps or tensor.forced  # what must wait on the host is there between runs, even if that frees nothing
    ]
    return Problem(ns, tensors, gaps, fixed, capacity, rates)


def _names(buffer: Buffer) -> set[str]:
    return {buffer.name, *buffer.tensors}


def _kept(program: Program) -> frozenset[str]:
    """Tensors that stay on the device throughout: the file wants it, or something else fills them there."""
    graph = program.graph
    wanted = (name for name, t in graph.tensors.items() if t.spec is not None and t.spec.offload == "never")
    return frozenset(wanted) | graph.cached | {cache.ids for cache in graph.caches}


def pointers(work: Work) -> Iterator[Pointer]:
    """Every address that a step's work holds."""
    match work:
        case Launch(args=args) | LibraryCall(args=args):
            yield from (arg for arg in args if isinstance(arg, Pointer))
        case HostCall(inputs=inputs, outputs=outputs):
            yield from (ref.pointer for ref in (*inputs, *outputs) if isinstance(ref, ArrayRef))
        case Clear(target=target):
            yield target
        case Copy(target=target, source=source):
            yield from (target, source)
        case Transfer(pointer=pointer):
            yield pointer
