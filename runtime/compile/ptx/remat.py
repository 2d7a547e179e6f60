"""Values that a thread can compute again after a wait: they need no place in its frame.

An address made of thread index and arguments, saved and loaded back, is an unknown number to LLVM; computed again it
is seen to advance by one element from thread to thread, so that a loop over threads loads vectors, not single words.
"""

from __future__ import annotations

from kgrun.runtime.compile.ptx.flow import Flow, definitions, uses
from kgrun.runtime.compile.ptx.syntax import Function, Instruction, parse_address

_PURE = frozenset(
    (
        *(
            "mov",
            "add",
            "sub",
            "mul",
            "mad",
            "shl",
            "shr",
            "and",
            "or",
            "xor",
            "not",
            "neg",
            "cvt",
            "cvta",
            "min",
            "max",
        ),
        *("setp", "selp", "bfe", "shf", "mul24", "mad24"),
    )
)
_FIXED_SPECIALS = ("%tid", "%ntid", "%ctaid", "%nctaid", "%laneid", "%warpid")
_MOST_INSTRUCTIONS = 16  # in the chain behind one value


def recomputable(function: Function, flow: Flow) -> dict[str, tuple[int, ...]]:
    """Register to the indices of the instructions that make it, in an order in which they can run."""
    made_by: dict[str, list[int]] = {}
    for index, instruction in enumerate(flow.instructions):
        for name in definitions(instruction):
            made_by.setdefault(name, []).append(index)
    single = {name: places[0] for name, places in made_by.items() if len(places) == 1}
    chains: dict[str, tuple[int, ...] | None] = {}
    for name, index in sorted(single.items(), key=lambda item: item[1]):
        chains[name] = _chain(function, flow.instructions[index], index, chains)
    return {name: chain for name, chain in chains.items() if chain is not None}


def _chain(
    function: Function, instruction: Instruction, index: int, chains: dict[str, tuple[int, ...] | None]
) -> tuple[int, ...] | None:
    if instruction.guard or not _is_pure(instruction, function):
        return None
    found: dict[int, None] = {}
    for name in uses(instruction):
        if name in function.registers:
            behind = chains.get(name)
            if behind is None:  # made later, in a loop, or by something impure
                return None
            found |= dict.fromkeys(behind)
        elif name.startswith("%") and not name.startswith(_FIXED_SPECIALS):
            return None
    if len(found) >= _MOST_INSTRUCTIONS:
        return None
    return (*found, index)


def _is_pure(instruction: Instruction, function: Function) -> bool:
    parts = instruction.parts
    if parts[0] == "ld":
        is_argument = parse_address(instruction.operands[1])[0] not in function.variables
        return "param" in parts[1] and is_argument and not instruction.operands[0].startswith("{")
    return parts[0] in _PURE and "cc" not in parts and not instruction.operands[0].startswith("{")
