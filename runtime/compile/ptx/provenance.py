"""Where addresses come from: the argument or variable that a register was computed from; accesses in groups."""

from __future__ import annotations

from collections.abc import Callable

from kgrun.graphs.records import dataclass
from kgrun.runtime.compile.ptx.flow import Flow, definitions, is_suspend
from kgrun.runtime.compile.ptx.syntax import SIZES, Function, Instruction, parse_address, vector_elements

_UNCLEAR = "?"  # of several origins
_SAME = frozenset(("mov", "cvt", "cvta"))
_SUMS = frozenset(("add", "or"))
_ACCESSES = frozenset(("ld", "ldu", "st"))

Symbol = Callable[[str], str]


def origins(function: Function, symbol: Symbol) -> dict[str, str]:
    """Register to `param:OFFSET` or what `symbol` says of a variable, for registers with one clear origin.

    Only a guess at what an address points into: what uses it must be right where it is wrong. An argument's own value
    added to an address may pass for its origin, no more.
    """
    offsets = {param.name: param.offset for param in function.params} if function.is_entry else {}
    found: dict[str, str] = {}
    changed = True
    while changed:
        changed = False
        for item in function.body:
            if isinstance(item, str):
                continue
            for name, origin in _made(item, found, offsets, symbol):
                merged = origin if found.get(name, origin) == origin else _UNCLEAR
                if origin and found.get(name) != merged:
                    found[name] = merged
                    changed = True
    return {name: origin for name, origin in found.items() if origin != _UNCLEAR}


def _made(i: Instruction, found: dict[str, str], offsets: dict[str, int], symbol: Symbol) -> list[tuple[str, str]]:
    head = i.parts[0]
    if head == "ld" and len(i.parts) > 1 and i.parts[1].startswith("param"):
        base, displacement = parse_address(i.operands[1])
        if base not in offsets or SIZES.get(i.parts[-1]) != 8:
            return []
        names = vector_elements(i.operands[0])
        return [(name, f"param:{offsets[base] + displacement + 8 * place}") for place, name in enumerate(names)]
    if head in _SAME:
        if head == "cvta" and "to" not in i.parts and "shared" in i.parts:
            return []  # a generic address of shared memory
        return [(i.operands[0], _origin(i.operands[1], found, symbol))]
    if head in _SUMS:
        both = {_origin(operand, found, symbol) for operand in i.operands[1:3]} - {""}
        return [(i.operands[0], both.pop() if len(both) == 1 else _UNCLEAR)] if both else []
    if head in ("sub", "and"):
        return [(i.operands[0], _origin(i.operands[1], found, symbol))]
    if head == "mad" and len(i.operands) == 4:
        return [(i.operands[0], _origin(i.operands[3], found, symbol))]
    if head == "selp":
        both = {_origin(operand, found, symbol) for operand in i.operands[1:3]}
        return [(i.operands[0], both.pop() if len(both) == 1 else _UNCLEAR)]
    return [(name, _UNCLEAR) for name in definitions(i) if name in found]


def _origin(operand: str, found: dict[str, str], symbol: Symbol) -> str:
    return found.get(operand) or symbol(operand.partition("+")[0].strip())


@dataclass(frozen=True, slots=True)
class Group:
    """Accesses through one address, so that one test of bounds does for all: displacements [lowest, end) in bytes."""

    lowest: int
    end: int


def groups(flow: Flow) -> dict[int, Group | None]:
    """Index of an access to the group that it is the first of, or None where an earlier one stands for it.

    Where control reaches the first of a group it reaches the others, with the same base register.
    """
    found: dict[int, Group | None] = {}
    for block in flow.blocks:
        open_groups: dict[tuple[object, ...], list[tuple[int, int]]] = {}
        versions: dict[str, int] = {}
        for index in range(block.start, block.end):
            i = flow.instructions[index]
            if is_suspend(i) or i.parts[0] == "call":
                _close(open_groups, found)
            elif i.parts[0] in _ACCESSES and not i.guard and i.parts[1] not in ("param", "const", "local"):
                store = i.parts[0] == "st"
                base, displacement = parse_address(i.operands[0 if store else 1])
                elements = i.operands[1 if store else 0]
                size = SIZES[next(part for part in reversed(i.parts) if part in SIZES)] * len(vector_elements(elements))
                space = next((part for part in i.parts[1:] if part in ("global", "shared")), "")
                key = (base, versions.get(base, 0), store, space, size, displacement % size)
                open_groups.setdefault(key, []).append((index, displacement))
            for name in definitions(i):
                versions[name] = versions.get(name, 0) + 1
        _close(open_groups, found)
    return found


def _close(open_groups: dict[tuple[object, ...], list[tuple[int, int]]], found: dict[int, Group | None]) -> None:
    for key, members in open_groups.items():
        size = key[4]
        assert isinstance(size, int)
        places = [place for _, place in members]
        found |= {index: None for index, _ in members}
        found[members[0][0]] = Group(min(places), max(places) + size)
    open_groups.clear()
