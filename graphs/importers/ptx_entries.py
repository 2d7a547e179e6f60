"""What PTX text says of its kernels: parameters, and which pointers they read and write through."""

from __future__ import annotations

import re

from kgrun.graphs.records import dataclass

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([\w$.]+)\s*\(([^)]*)\)[^{]*\{")
_PARAM = re.compile(
    r"\.param\s+(?:\.align\s+(?P<align>\d+)\s+)?\.(?P<type>\w+)\s+(?P<pointer>\.ptr\b(?:\s+\.\w+)?(?:\s+\.align\s+\d+)?\s+)?"
    r"(?P<name>[\w$%.]+)\s*(?:\[(?P<count>\d+)\])?"
)
_LINE = re.compile(r"^\s*(?:\.(?:loc|file|pragma|section)\b[^\n]*|\$?[\w$.]+:(?!:))", re.MULTILINE)
_STATEMENT = re.compile(r"[{}\s]*(?:@!?[\w$%]+\s+)?([a-z_][\w.:]*)\s+(.+)", re.DOTALL)
_NAME = re.compile(r"[\w$%]+")
_BYTES = re.compile(r"\.[a-z](\d+)(?:x2)?\b")
_TARGET = re.compile(r"\.target\s+(\w+)")


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter.

    Attributes:
        type: PTX's, `u64`, `b32`, `f32`, …; `b8` of an aggregate.
        nbytes: all of it.
        pointer: whether PTX says that it is one, or addresses are made from it.
        reads, writes: whether the kernel loads, or stores, through it.
        element: bytes of the narrowest access through it; 0 where there is none.
    """

    type: str
    nbytes: int
    pointer: bool
    reads: bool
    writes: bool
    element: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel: its parameters in order."""

    name: str
    params: tuple[Param, ...]


def ptx_target(text: str) -> str:
    """`sm_90a` of `.target sm_90a`; empty where there is none."""
    match = _TARGET.search(text)
    return match[1] if match else ""


def ptx_entries(text: str) -> dict[str, Entry]:
    """The kernels of PTX text by name; empty for a text that is none."""
    text = _COMMENT.sub(" ", text)
    found = {}
    for match in _ENTRY.finditer(text):
        body = text[match.end() : _end_of_body(text, match.end())]
        found[match[1]] = Entry(match[1], _params(match[2], body))
    return found


def _end_of_body(text: str, start: int) -> int:
    depth = 1
    for match in re.finditer(r"[{}]", text[start:]):
        depth += 1 if match[0] == "{" else -1
        if depth == 0:
            return start + match.start()
    return len(text)


def _params(declared: str, body: str) -> tuple[Param, ...]:
    rows = list(_PARAM.finditer(declared))
    uses = _uses(body, [row["name"] for row in rows])
    params = []
    for row in rows:
        bits = re.search(r"\d+", row["type"])
        nbytes = int(bits[0]) // 8 * int(row["count"] or 1) if bits else 1
        reads, writes, element = uses.get(row["name"], (False, False, 0))
        pointer = bool(row["pointer"]) or ((reads or writes) and nbytes == 8)
        params.append(Param(row["type"], nbytes, pointer, reads, writes, element))
    return tuple(params)


def _uses(body: str, names: list[str]) -> dict[str, tuple[bool, bool, int]]:
    """(read, written, bytes of the narrowest access) through each parameter.

    An address belongs to the parameters that its sum is made from; registers are followed without regard to order,
    until nothing changes.
    """
    matches = [_STATEMENT.match(text) for text in _LINE.sub(" ", body).split(";")]
    statements = [(match[1].split("."), match[2]) for match in matches if match]
    made: dict[str, set[str]] = {}
    changed = True
    while changed:
        changed = False
        for parts, operands in statements:
            for target, sources in _flow(parts, operands, names, made):
                before = made.setdefault(target, set())
                if not sources <= before:
                    before |= sources
                    changed = True
    found: dict[str, tuple[bool, bool, int]] = {}
    for parts, operands in statements:
        if parts[0] not in ("ld", "st", "atom", "red", "cp") or "param" in parts or "shared" in parts[1:2]:
            continue
        places = re.findall(r"\[\s*([\w$%]+)", operands)
        place = "" if not places else places[-1] if parts[0] in ("ld", "cp") else places[0]
        size = _BYTES.search("." + ".".join(parts[1:]))
        element = int(size[1]) // 8 if size else 0
        for name in made.get(place, ()):
            reads, writes, narrowest = found.get(name, (False, False, 0))
            reads |= parts[0] not in ("st", "red") or parts[0] == "red"
            writes |= parts[0] not in ("ld", "cp")
            found[name] = reads, writes, min(element or narrowest, narrowest or element)
    return found


def _flow(parts: list[str], operands: str, names: list[str], made: dict[str, set[str]]) -> list[tuple[str, set[str]]]:
    """(register, parameters that its value may be an address from) that a statement makes."""
    words = [word.strip() for word in re.split(r",(?![^{]*\})", operands)]
    targets = _NAME.findall(words[0])
    if parts[0] == "ld" and "param" in parts[1:2]:
        inside = _NAME.findall(words[-1])
        return [(target, {inside[0]}) for target in targets] if inside and inside[0] in names else []
    if parts[0] in ("mov", "cvta", "selp", "add", "sub", "cvt", "or", "and", "mad", "shl", "min", "max"):
        sources = words[3:] if parts[0] == "mad" else words[1:3]
        return [(targets[0], set().union(*(made.get(word, set()) for word in sources)))] if targets else []
    return []
