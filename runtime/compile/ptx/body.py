"""A function's body: statements, scopes with their own names, labels, source lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kgrun.runtime.compile.ptx.syntax import (
    NOWHERE,
    Function,
    Instruction,
    Location,
    split_operands,
)

_NEXT = re.compile(
    r"\s*(?:(?P<loc>\.loc\s[^\n]*)|(?P<file>\.file\s[^\n]*)|(?P<brace>[{}])|(?P<label>[\w$.]+)\s*:(?!:)|(?P<text>[^;]+);|$)"
)
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+))?")
_REG = re.compile(r"\.reg\s*(?:\.v([24])\s+)?\.(\w+)\s+(.*)", re.DOTALL)
_INSTRUCTION = re.compile(r"(?:@(!?)\s*([\w$%]+)\s+)?([a-z_][\w.:]*)\s*(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_$%][\w$]*")
_TOOLKIT_FILE = re.compile(
    r"/(?:cccl|crt|cooperative_groups)\b|/nvidia/\w+/include/|/cuComplex\.h$"
    r"|/(?:cuda_(?:fp\d+|bf16|pipeline\w*|awbarrier\w*)|sm_\d+_\w+|device_\w+)\.h(?:pp)?$"
)


class _Scopes:
    """Names declared in inner braces are renamed, so that one function has one flat name space."""

    def __init__(self) -> None:
        self.stack: list[dict[str, str]] = [{}]
        self.opened = 0

    def open(self) -> None:
        self.opened += 1
        self.stack.append({})

    def close(self) -> None:
        if len(self.stack) > 1:
            self.stack.pop()

    def declare(self, name: str) -> str:
        if len(self.stack) == 1:
            return name
        self.stack[-1][name] = renamed = f"{name}$s{self.opened}"
        return renamed

    def apply(self, text: str) -> str:
        if not any(self.stack[1:]):
            return text
        return _NAME.sub(self._lookup, text)

    def _lookup(self, match: re.Match[str]) -> str:
        name = match.group()
        for scope in reversed(self.stack):
            if name in scope:
                return scope[name]
        return name


def parse_body(function: Function, text: str, files: dict[int, str]) -> None:
    """Fill `function` from its body's text; `files` maps `.file` numbers to paths."""
    scopes = _Scopes()
    location = NOWHERE
    inlined: dict[tuple[int, int], Location] = {}
    for kind, words in _statements(text):
        if kind == "loc":
            location = _location(words, files, inlined)
        elif kind == "brace":
            if words == "{":
                scopes.open()
            else:
                scopes.close()
        elif kind == "label":
            function.body.append(scopes.declare(words) if len(scopes.stack) > 1 else words)
        elif words.startswith("."):
            _directive(function, words, scopes)
        else:
            function.body.append(_instruction(words, location, scopes))
    _rename_late_labels(function)


def _statements(text: str) -> Iterator[tuple[str, str]]:
    place = 0
    while match := _NEXT.match(text, place):
        kind = match.lastgroup
        place = match.end()
        if kind is None:
            return
        if kind != "file":
            yield kind, match.group(kind).strip()


def _location(words: str, files: dict[int, str], inlined: dict[tuple[int, int], Location]) -> Location:
    """The user's own line: a place inside one of CUDA's headers counts as the line that called into it.

    `inlined` remembers what each place so far stood for, because a chain of calls is told link by link.
    """
    match = _LOC.match(words)
    if match is None:
        return NOWHERE
    file, line, _, outer_file, outer_line = match.groups()
    location = Location(files.get(int(file), ""), int(line))
    if outer_file and _TOOLKIT_FILE.search(location.file):
        outer = int(outer_file), int(outer_line)
        location = inlined.get(outer) or Location(files.get(outer[0], ""), outer[1])
    inlined[int(file), int(line)] = location
    return location


def _directive(function: Function, words: str, scopes: _Scopes) -> None:
    from kgrun.runtime.compile.ptx.parse import parse_params, parse_variable

    if match := _REG.match(words):
        _, kind, names = match.groups()
        for name in names.split(","):
            name = name.strip()
            if counted := re.match(r"([\w$%]+)<(\d+)>", name):
                for index in range(int(counted.group(2))):
                    function.registers[scopes.declare(f"{counted.group(1)}{index}")] = kind
            else:
                function.registers[scopes.declare(name)] = kind
    elif words.startswith(".branchtargets"):
        label = function.body.pop()
        targets = words.removeprefix(".branchtargets").split(",")
        function.branch_targets[str(label)] = tuple(target.strip() for target in targets)
    elif words.startswith(".callprototype"):
        label = function.body.pop()
        lists = re.findall(r"\([^)]*\)", words)
        has_result = bool(re.match(r"\.callprototype\s*\(", words))
        results, params = (
            (lists[0], lists[1] if len(lists) > 1 else "") if has_result else ("", lists[0] if lists else "")
        )
        function.prototypes[str(label)] = (parse_params(results), parse_params(params))
    elif words.startswith((".maxntid", ".reqntid", ".minnctapersm", ".pragma", ".maxnreg")):
        return
    elif variable := parse_variable(words):
        name = scopes.declare(variable.name)
        function.variables[name] = type(variable)(
            name, variable.space, variable.size, variable.align, variable.initial, variable.relocations
        )


def _instruction(words: str, location: Location, scopes: _Scopes) -> Instruction:
    match = _INSTRUCTION.match(words)
    if match is None:
        raise ValueError(f"not an instruction: {words}")
    negated, guard, opcode, operands = match.groups()
    return Instruction(
        tuple(opcode.replace("::", "__").split(".")),
        split_operands(scopes.apply(operands.strip())),
        scopes.apply(guard) if guard else "",
        bool(negated),
        location,
    )


def _rename_late_labels(function: Function) -> None:
    """A branch that stands before its scoped label could not know the new name: give it now."""
    labels = {item for item in function.body if isinstance(item, str)}
    renamed = {label.rsplit("$s", 1)[0]: label for label in labels if "$s" in label}
    if not renamed:
        return
    for place, item in enumerate(function.body):
        if isinstance(item, Instruction) and item.parts[0] == "bra" and item.operands[0] not in labels:
            target = renamed.get(item.operands[0], item.operands[0])
            function.body[place] = Instruction(item.parts, (target,), item.guard, item.negated, item.location)
