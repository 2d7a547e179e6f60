"""What every opcode family shares: the type of a rule, an instruction's type, and its class."""

from __future__ import annotations

from collections.abc import Callable

from kgrun.runtime.compile.ptx.emit import Emitter
from kgrun.runtime.compile.ptx.syntax import SIZES, Instruction

Rule = Callable[[Emitter, Instruction], None]

_FLOATS = frozenset(("f32", "f64"))
_HALVES = frozenset(("f16", "bf16", "f16x2", "bf16x2"))


def value_type(i: Instruction) -> str:
    """The last part of the opcode that names a type: the type of an instruction's values."""
    for part in reversed(i.parts):
        if part in SIZES:
            return part
    return "b32"


def class_of(ptx: str) -> str:
    if ptx in _FLOATS:
        return "float"
    return "half" if ptx in _HALVES else "int"
