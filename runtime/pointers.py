"""Work with its addresses elsewhere: the one place that knows where each kind of work keeps its pointers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kgrun.runtime.program import ArrayRef, Clear, Copy, HostCall, Launch, LibraryCall, Pointer, Transfer, Work


def moved(work: Work, to: Callable[[Pointer], Pointer]) -> Work:
    """The same work with every pointer replaced."""

    def view(ref: ArrayRef) -> ArrayRef:
        return replace(ref, pointer=to(ref.pointer))

    def launch(found: Launch) -> Launch:
        return replace(found, args=tuple(to(a) if isinstance(a, Pointer) else a for a in found.args))

    match work:
        case Launch():
            return launch(work)
        case LibraryCall(args=args, otherwise=other):
            places = tuple(None if a is None else to(a) for a in args)
            return replace(work, args=places, otherwise=None if other is None else launch(other))
        case HostCall(inputs=inputs, outputs=outputs):
            found = tuple(None if ref is None else view(ref) for ref in inputs)
            return replace(work, inputs=found, outputs=tuple(view(ref) for ref in outputs))
        case Clear(target=target):
            return replace(work, target=to(target))
        case Copy(target=target, source=source):
            return replace(work, target=to(target), source=to(source))
        case Transfer(pointer=pointer):
            return replace(work, pointer=to(pointer))
