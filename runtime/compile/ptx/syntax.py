"""PTX as values: module, variable, function, parameter, instruction, and the small grammars of operands."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field
from functools import lru_cache

from kgrun.graphs.records import dataclass

SIZES: dict[str, int] = {
    "pred": 1,
    **dict.fromkeys(("b8", "u8", "s8", "e4m3", "e5m2"), 1),
    **dict.fromkeys(("b16", "u16", "s16", "f16", "bf16", "e4m3x2", "e5m2x2"), 2),
    **dict.fromkeys(("b32", "u32", "s32", "f32", "f16x2", "bf16x2", "tf32"), 4),
    **dict.fromkeys(("b64", "u64", "s64", "f64", "f32x2"), 8),
    "b128": 16,
}


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's source; line 0 where the PTX carries no line information."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


NOWHERE = Location("", 0)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One PTX instruction: `parts` is the opcode split at its dots; `guard` a predicate register, or empty."""

    parts: tuple[str, ...]
    operands: tuple[str, ...]
    guard: str
    negated: bool
    location: Location

    @property
    def opcode(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter: `offset` is its place in the packed argument buffer, in bytes."""

    name: str
    size: int
    align: int
    offset: int
    is_pointer_guess: bool
    is_array: bool
    type: str


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable in a state space: size in bytes (0: dynamic shared memory), initial bytes, addresses to patch in."""

    name: str
    space: str
    size: int
    align: int
    initial: bytes = b""
    relocations: tuple[tuple[int, str, int], ...] = ()  # (offset, symbol, addend), 8 bytes each


@dataclass
class Function:
    """A `.entry` or `.func`: instructions and labels in order, its registers and its own variables."""

    name: str
    is_entry: bool
    params: list[Param]
    results: list[Param]
    body: list[Instruction | str] = field(default_factory=list)  # a str is a label
    registers: dict[str, str] = field(default_factory=dict)  # name to PTX type
    variables: dict[str, Variable] = field(default_factory=dict)  # .local, .shared and .param of its own
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    prototypes: dict[str, tuple[list[Param], list[Param]]] = field(default_factory=dict)
    max_threads: int | None = None


def args_size(params: Iterable[Param]) -> int:
    """Bytes of the packed argument buffer."""
    return max((param.offset + param.size for param in params), default=0)


def align_up(value: int, alignment: int) -> int:
    return (value + alignment - 1) // alignment * alignment


@lru_cache(maxsize=1 << 14)
def split_operands(text: str) -> tuple[str, ...]:
    """`%f1, [%rd1+4], {%r1, %r2}` split at the commas outside brackets."""
    if not any(bracket in text for bracket in "{[("):
        return tuple(part.strip() for part in text.split(",")) if text.strip() else ()
    parts, depth, start = [], 0, 0
    for place, char in enumerate(text):
        if char in "{[(":
            depth += 1
        elif char in "}])":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    parts.append(text[start:].strip())
    return tuple(parts)


_ADDRESS = re.compile(r"^\[\s*([^\s+\-\]]+)?\s*(?:\+?\s*(-?\s*(?:0[xX][0-9a-fA-F]+|\d+)))?\s*\]$")


@lru_cache(maxsize=1 << 14)
def parse_address(text: str) -> tuple[str, int]:
    """`[%rd1+-4]` as ("%rd1", -4); the base is empty for an absolute address."""
    match = _ADDRESS.match(text)
    if match is None:
        raise ValueError(f"not an address: {text}")
    base, offset = match.group(1) or "", int((match.group(2) or "0").replace(" ", ""), 0)
    if base[:1].isdigit():
        return "", int(base, 0) + offset
    return base, offset


@lru_cache(maxsize=1 << 14)
def listed_names(text: str) -> list[str]:
    """The names in `(a, b, c)`."""
    return [name for name in re.split(r"[\s,()]+", text) if name]


def vector_elements(text: str) -> tuple[str, ...]:
    """The elements of `{a, b}`; a plain operand is its own single element."""
    return tuple(part.strip() for part in text[1:-1].split(",")) if text.startswith("{") else (text,)


_IDENTIFIER = re.compile(r"[A-Za-z_$%][\w$]*(?:\.[xyzw]\b)?")


@lru_cache(maxsize=1 << 14)
def identifiers(text: str) -> tuple[str, ...]:
    """Every name in an operand: registers, symbols, special registers."""
    return tuple(_IDENTIFIER.findall(text))
