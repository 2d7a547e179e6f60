"""The kernels' signatures in Triton's own IR (`.ttir`): names and types of arguments, as far as the text says."""

from __future__ import annotations

import re

from kgrun.graphs.records import dataclass

_FUNCTION = re.compile(r"tt\.func\s+(?:public\s+)?@([\w$.]+)\s*\(")
_ARGUMENT = re.compile(r"%([\w$.]+)\s*:\s*(!?[\w.]+(?:<[^<>]*(?:<[^<>]*>[^<>]*)*>)?)")
_LOCATION = re.compile(r'loc\("([A-Za-z_]\w*)"')
_POINTER = re.compile(r"!tt\.ptr<\s*([\w.]+)")
DTYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
    "i16": "int16", "i8": "int8", "i1": "bool", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class IrArgument:
    """An argument: its name (empty where the text has none), element type of a pointer or type of a scalar."""

    name: str
    pointer: bool
    dtype: str | None  # None: one that a graph file has not


def ir_arguments(text: str, kernel: str) -> tuple[IrArgument, ...] | None:
    """The arguments of `kernel`; None where the text does not hold it."""
    for match in _FUNCTION.finditer(text):
        if match[1] == kernel:
            return tuple(_argument(part) for part in _parts(text, match.end()) if part.strip())
    return None


def _parts(text: str, start: int) -> list[str]:
    """The text of a bracketed list cut at its outer commas."""
    depth, begin, quoted = 0, start, False
    parts: list[str] = []
    for at in range(start, len(text)):
        char = text[at]
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in "(<[{":
            depth += 1
        elif char in ")>]}":
            if char == ")" and depth == 0:
                return [*parts, text[begin:at]]
            depth -= char != ">" or text[at - 1] != "-"
        elif char == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


def _argument(part: str) -> IrArgument:
    match = _ARGUMENT.search(part)
    if match is None:
        return IrArgument("", pointer=False, dtype=None)
    name, kind = match.groups()
    if location := _LOCATION.search(part):
        name = location[1]
    elif re.fullmatch(r"arg\d+|\d+", name):
        name = ""
    pointer = _POINTER.match(kind)
    return IrArgument(name, pointer is not None, DTYPES.get(pointer[1] if pointer else kind))
