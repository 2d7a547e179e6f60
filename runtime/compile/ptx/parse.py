"""PTX text to `syntax` values: module variables and signatures at once, a function's body when it is asked for."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

from kgrun.graphs.errors import CompileError
from kgrun.runtime.compile.ptx import body
from kgrun.runtime.compile.ptx.syntax import SIZES, Function, Param, Variable, align_up

NEWEST_MAJOR = 9  # of the PTX ISA
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_FILE = re.compile(r'\.file\s+(\d+)\s+"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb'\\(?:([0-7]{3})|([\\"bfnrt]))')  # as LLVM's assembly printer writes them
_ESCAPED = dict(zip(b'\\"bfnrt', b'\\"\b\f\n\r\t', strict=True))
_FUNCTION = re.compile(
    r"(?:\.(?:visible|extern|weak)\s+)*\.(entry|func)\s*(\.noreturn\s*)?(\([^)]*\))?\s*([\w$.]+)\s*(\([^)]*\))?"
)
_PARAM = re.compile(
    r"\.(?:param|reg)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+"
    r"((?:\.ptr\s+)?)(?:\.(?:global|shared|local|const)\s+)?(?:\.align\s+\d+\s+)?"
    r"([\w$%]+)\s*(?:\[(\d*)\])?"
)
_VARIABLE = re.compile(
    r"\.(global|const|shared|local|param)\s+(?:\.attribute\([^)]*\)\s*)?(?:\.align\s+(\d+)\s+)?(?:\.attribute\([^)]*\)\s*)?"
    r"(?:\.v([24])\s+)?\.(\w+)\s+([\w$%.]+)\s*((?:\[\s*\d*\s*\])*)\s*(?:=\s*(.*))?$",
    re.DOTALL,
)
_ADDRESS_TAKEN = re.compile(r"\bmov\.\w+\s+[\w$%]+\s*,\s*([A-Za-z_$][\w$]*)\s*;")
_LIMIT = re.compile(r"\.(maxntid|reqntid)\s+([\d,\s]+)")
_FIRST_TARGET = 0x1000  # the first function's address: none that memory has


@dataclass
class Module:
    """A parsed module; bodies are parsed by `function`, once each."""

    name: str
    version: str
    target: str
    variables: dict[str, Variable] = field(default_factory=dict)
    files: dict[int, str] = field(default_factory=dict)
    signatures: dict[str, Function] = field(default_factory=dict)
    _bodies: dict[str, str] = field(default_factory=dict)
    _targets: dict[str, int] = field(default_factory=dict)

    @property
    def entries(self) -> list[str]:
        return [name for name, function in self.signatures.items() if function.is_entry]

    def has_body(self, name: str) -> bool:
        return name in self._bodies

    def body_text(self, name: str) -> str:
        return self._bodies[name]

    def pointer_targets(self) -> dict[str, int]:
        """Functions that a pointer may hold, each with the number that stands for its address in memory.

        Machine code has no address of its own here: every kernel's is compiled apart, once for each kind of pass.
        """
        if not self._targets:
            named = {symbol for variable in self.variables.values() for _, symbol, _ in variable.relocations}
            named.update(name for text in self._bodies.values() for name in _ADDRESS_TAKEN.findall(text))
            functions = [name for name, function in self.signatures.items() if not function.is_entry]
            self._targets = {name: _FIRST_TARGET + 16 * n for n, name in enumerate(functions) if name in named}
        return self._targets

    def function(self, name: str) -> Function:
        """The function with its body; raises KeyError for one that is only declared."""
        function = self.signatures[name]
        if not function.body:
            body.parse_body(function, self._bodies[name], self.files)
        return function


def parse_module(text: str, name: str) -> Module:
    """Parse `text`; raises `CompileError` where it is no PTX."""
    if not re.search(r"^\s*\.version\s+[\d.]+", text, re.MULTILINE):
        raise CompileError(f"{name} is no PTX: it has no .version line", code="KG503", where=name)
    # NVRTC makes a relative name absolute: the user's own word for the file comes back.
    paths = {int(number): _unescaped(path) for number, path in _FILE.findall(text)}
    files = {number: name if path.endswith(f"/{name}") else path for number, path in paths.items()}
    if "//" in text or "/*" in text:
        text = _COMMENT.sub(_blank_unless_string, text)
    version = re.search(r"\.version\s+([\d.]+)", text)
    _check_version(version[1] if version else "", name)
    target = re.search(r"\.target\s+([\w, ]+)", text)
    module = Module(name, version.group(1) if version else "", target.group(1).strip() if target else "")
    module.files.update(files)
    for statement, block in _top_level(text):
        if match := _FUNCTION.match(statement):
            _add_function(module, match, statement, block)
        elif variable := parse_variable(statement):
            module.variables[variable.name] = variable
    return module


def _unescaped(path: str) -> str:
    """A path as `.file` quotes it: what is no ASCII is octal, byte by byte."""
    data = _ESCAPE.sub(
        lambda m: bytes([int(m[1], 8) & 255 if m[1] else _ESCAPED[m[2][0]]]), path.encode("utf-8", "surrogateescape")
    )
    return data.decode("utf-8", "surrogateescape")


def _check_version(version: str, name: str) -> None:
    """CompileError KG505 for PTX of a later major version: what that means nobody here knows."""
    major, _, _ = version.partition(".")
    if major.isdecimal() and int(major) > NEWEST_MAJOR:
        raise CompileError(
            f"PTX ISA {version} of {name} is too new: the CPU device takes versions up to {NEWEST_MAJOR}.x",
            code="KG505",
            where=name,
            help="compile it for an older PTX version",
        )


def parse_variable(statement: str) -> Variable | None:
    """A variable from its declaration without the semicolon, or None for any other statement."""
    stripped = re.sub(r"^(?:\.(?:visible|extern|weak|common)\s+)+", "", statement.strip())
    match = _VARIABLE.match(stripped)
    if match is None:
        return None
    space, alignment, vector, kind, name, dims, initial = match.groups()
    element = SIZES[kind]
    size = element * int(vector or 1)
    for dim in re.findall(r"\[\s*(\d*)\s*\]", dims or ""):
        size *= int(dim or 0)
    data, relocations = _initial_bytes(initial, kind, element) if initial else (b"", ())
    if dims and size == 0 and data:  # an unsized array takes its size from its values
        size = len(data)
    return Variable(name, space, size, int(alignment or element * int(vector or 1)), data, relocations)


def parse_params(text: str | None) -> list[Param]:
    """The parameters of `(.param .u64 a, .param .align 8 .b8 s[24])`, laid out as the driver packs them."""
    params, offset = [], 0
    for match in _PARAM.finditer(text or ""):
        alignment, kind, pointer, name, count = match.groups()
        element = SIZES[kind]
        is_array = match.group().endswith("]")  # in a prototype, several are named `_`
        size = element * int(count or 0) if is_array else element
        align = int(alignment or element)
        offset = align_up(offset, align)
        guess = bool(pointer) or (not is_array and kind in ("u64", "b64"))
        params.append(Param(name, size, align, offset, guess, is_array, kind))
        offset += size
    return params


def _add_function(module: Module, match: re.Match[str], statement: str, block: str | None) -> None:
    kind, _, results, name, params = match.groups()
    if kind == "entry" and params is None and results:  # `.entry name (…)` has no results
        params, results = results, None
    function = Function(name, kind == "entry", parse_params(params), parse_params(results))
    if limit := _LIMIT.search(statement):
        counts = [int(word) for word in limit.group(2).split(",")]
        function.max_threads = 1
        for count in counts:
            function.max_threads *= count
    if block is not None or name not in module.signatures:
        module.signatures[name] = function
    if block is not None:
        module._bodies[name] = block


def _blank_unless_string(match: re.Match[str]) -> str:
    return "\n" * match.group().count("\n") or " "


def _top_level(text: str) -> list[tuple[str, str | None]]:
    """(statement, body or None) of a module: a body is what stands in braces after a signature."""
    found: list[tuple[str, str | None]] = []
    place, start = 0, 0
    tokens = re.compile(r"[;{}]|^[ \t]*\.(?:version|target|address_size|file|loc|section)\b[^\n{]*", re.MULTILINE)
    while match := tokens.search(text, place):
        token = match.group()
        if token == ";":
            found.append((text[start : match.start()].strip(), None))
            place = start = match.end()
        elif token == "{":
            end = _closing(text, match.start())
            head = text[start : match.start()].strip()
            if "=" in head:  # an initialiser: part of a statement
                place = end
                continue
            if not head.startswith(".section"):
                found.append((head, text[match.start() + 1 : end - 1]))
            place = start = end
        elif token == "}":
            place = start = match.end()
        else:
            is_section = ".section" in token
            place = match.end()
            start = match.start() if is_section else place
    return found


def _closing(text: str, opening: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, opening):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    return len(text)


def _initial_bytes(text: str, kind: str, element: int) -> tuple[bytes, tuple[tuple[int, str, int], ...]]:
    data = bytearray()
    relocations = []
    for word in re.findall(r"generic\([^)]*\)[^,{}]*|[^,{}\s][^,{}]*", text):
        word = word.strip()
        if re.match(r"^-?(0[xX][\da-fA-F]+|\d)", word):
            data += _number_bytes(word, kind, element)
        else:
            symbol = re.match(r"(?:generic\()?([\w$.]+)\)?\s*(?:\+\s*(\d+))?", word)
            if symbol:
                relocations.append((len(data), symbol.group(1), int(symbol.group(2) or 0)))
            data += bytes(element)
    return bytes(data), tuple(relocations)


def _number_bytes(word: str, kind: str, element: int) -> bytes:
    if word[:2] in ("0f", "0F"):
        return int(word[2:], 16).to_bytes(4, "little")
    if word[:2] in ("0d", "0D"):
        return int(word[2:], 16).to_bytes(8, "little")
    if kind in ("f32", "f64"):
        return struct.pack("<f" if kind == "f32" else "<d", float(word))
    return (int(word.rstrip("U"), 0) & ((1 << 8 * element) - 1)).to_bytes(element, "little")
