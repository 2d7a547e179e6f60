"""Functions with a barrier or a warp-wide operation inside become part of the kernel that calls them.

Only a kernel's own code can stop half-way and go on later; NVRTC inlines most functions itself, so this is for those
marked `__noinline__` and for what inline PTX or another compiler leaves.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from kgrun.runtime.compile.ptx.context import Unsupported
from kgrun.runtime.compile.ptx.flow import is_suspend
from kgrun.runtime.compile.ptx.parse import Module
from kgrun.runtime.compile.ptx.syntax import Function, Instruction, listed_names

_NAME = re.compile(r"[A-Za-z_$%][\w$]*")
_MOST_ROUNDS = 200


def inline_waiting(module: Module, entry: str) -> Function:
    """The kernel `entry` with every call to a waiting function replaced by that function's body."""
    function = module.function(entry)
    waits = cache(lambda name: _waits(module, name, frozenset()))
    for round_number in range(_MOST_ROUNDS):
        place = next((n for n, item in enumerate(function.body) if _callee(module, item, waits)), None)
        if place is None:
            return function
        call = function.body[place]
        assert isinstance(call, Instruction)
        function = _with_body(function, place, call, module.function(_target(call)), f"$i{round_number}")
    raise Unsupported("a recursive function with a barrier or warp operation inside")


def _target(call: Instruction) -> str:
    return call.operands[1] if call.operands[0].startswith("(") else call.operands[0]


def _callee(module: Module, item: Instruction | str, waits: object) -> bool:
    if not isinstance(item, Instruction) or item.parts[0] != "call":
        return False
    name = _target(item)
    return module.has_body(name) and bool(waits(name))  # type: ignore[operator]


def _waits(module: Module, name: str, above: frozenset[str]) -> bool:
    if name in above or not module.has_body(name):
        return False
    for item in module.function(name).body:
        if isinstance(item, str):
            continue
        if is_suspend(item) or item.parts[0] == "exit":
            return True
        if item.parts[0] == "call" and _waits(module, _target(item), above | {name}):
            return True
    return False


def _with_body(caller: Function, place: int, call: Instruction, callee: Function, suffix: str) -> Function:
    if call.guard:
        raise Unsupported("a guarded call of a function with a barrier inside", call.location)
    operands = list(call.operands)
    results = listed_names(operands.pop(0)) if operands[0].startswith("(") else []
    arguments = listed_names(operands[1]) if len(operands) > 1 else []
    names = {param.name: given for param, given in zip(callee.params, arguments, strict=True)}
    names |= {result.name: given for result, given in zip(callee.results, results, strict=True)}
    own = {*callee.registers, *(item for item in callee.body if isinstance(item, str))}
    own |= {name for name, variable in callee.variables.items() if variable.space != "shared"}
    own |= set(callee.branch_targets) | set(callee.prototypes)
    names |= {name: name + suffix for name in own}
    end = f"$end{suffix}"

    def renamed(text: str) -> str:
        return _NAME.sub(lambda match: names.get(match.group(), match.group()), text)

    body: list[Instruction | str] = []
    for item in callee.body:
        if isinstance(item, str):
            body.append(names[item])
        elif item.parts[0] == "ret":
            body.append(Instruction(("bra",), (end,), renamed(item.guard), item.negated, item.location))
        else:
            operands_renamed = tuple(renamed(operand) for operand in item.operands)
            body.append(replace(item, operands=operands_renamed, guard=renamed(item.guard)))
    merged = replace(
        caller,
        body=[*caller.body[:place], *body, end, *caller.body[place + 1 :]],
        registers=caller.registers | {names[name]: kind for name, kind in callee.registers.items()},
        variables=dict(caller.variables),
        branch_targets=caller.branch_targets
        | {names[name]: tuple(names[label] for label in labels) for name, labels in callee.branch_targets.items()},
        prototypes=caller.prototypes | {names[name]: kinds for name, kinds in callee.prototypes.items()},
    )
    for name, variable in callee.variables.items():
        merged.variables[names.get(name, name)] = replace(variable, name=names.get(name, name))
    return merged
