"""Operands of lowered operators as pointers: kernel and library calls, clears and copies at their places."""

from __future__ import annotations

from collections.abc import Callable

from kgrun.runtime.kernels.base import ClearOperand, CopyOperand, KernelCall, LibraryRoutine, Operand
from kgrun.runtime.program import Clear, Copy, Launch, LibraryCall, Pointer, Work


def placed(
    item: KernelCall | LibraryRoutine | ClearOperand | CopyOperand, pointer: Callable[[Operand], Pointer | None]
) -> Work:
    """One item of a lowered operator with its operands where `pointer` says; None for absent ones."""

    def present(operand: Operand) -> Pointer:
        found = pointer(operand)
        assert found is not None, f"an absent {operand.role} {operand.index} is cleared or copied"
        return found

    match item:
        case KernelCall():
            return _placed_launch(item, pointer)
        case LibraryRoutine(library, routine, config, operands, other):
            places = tuple(None if o is None else pointer(o) for o in operands)
            instead = None if other is None else _placed_launch(other, pointer)
            return LibraryCall(library, routine, config, places, instead)
        case ClearOperand(operand, nbytes):
            return Clear(present(operand), nbytes)
        case CopyOperand(to, source, nbytes):
            return Copy(present(to), present(source), nbytes)


def _placed_launch(call: KernelCall, pointer: Callable[[Operand], Pointer | None]) -> Launch:
    args = tuple(pointer(a) if isinstance(a, Operand) else a for a in call.args)
    return Launch(call.code, args, call.grid, call.block, call.shared)
