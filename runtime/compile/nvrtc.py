"""CUDA C to a cubin or PTX with NVRTC: needs no GPU and no driver."""

from __future__ import annotations

import json
import re
import struct
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from kgrun.graphs.errors import CompileError, DeviceUnavailable, Place, did_you_mean
from kgrun.runtime.compile import headers
from kgrun.runtime.compile.cache import CompileCache, default_cache, digest_key

Kind = Literal["cubin", "ptx"]

_PLACED = re.compile(
    r"^(?P<file>.+?)\((?P<line>\d+)\): (?:catastrophic |fatal |internal )?error(?: #[\w-]+)?: (?P<text>.*)$",
    re.MULTILINE,
)
_UNPLACED = re.compile(r"^(?:nvrtc: |ptxas )?(?:fatal|error)\s*: (?P<text>.*)$", re.MULTILINE)
_ENTRY = re.compile(r"__global__\s+(?:(?:void|static|inline|__launch_bounds__\s*\([^()]*\))\s+)*(\w+)\s*\(")
_NAMES = "__nv_name_map"  # the file that NVRTC makes of name expressions
_NAMED = re.compile(r'Input name expression was: "(.*)"')
_CONTEXT_LINES = 2
_INSTALL = "pip install 'kgrun[cpu]' (or 'kgrun[cuda]' where there is a GPU)"


@dataclass(frozen=True)
class Compiled:
    """A compiled image: `lowered_names` maps each name expression to its symbol, `seconds` is NVRTC's own
    time."""

    image: bytes
    log: str
    lowered_names: dict[str, str]
    seconds: float
    from_cache: bool


@dataclass(frozen=True)
class CompileRow:
    """One source asked for: what it is called, "cubin" or "ptx", the nanoseconds until it was there."""

    name: str
    kind: str
    ns: int
    from_cache: bool


_history: deque[CompileRow] = deque(maxlen=10_000)


@dataclass(frozen=True)
class Diagnostic:
    """The first error of a compiler's log; `file` and `line` are None where the error has no place."""

    file: str | None
    line: int | None
    message: str
    context: str


def compile_cuda(
    source: str,
    *,
    name: str,
    arch: str = "sm_90",
    options: Sequence[str] = (),
    include_dirs: Sequence[Path] = (),
    kind: Kind = "cubin",
    name_expressions: Sequence[str] = (),
    cache: CompileCache | Literal["default"] | None = "default",
) -> Compiled:
    """Compile `source`, which the log calls `name` (a file, or a place such as
    `graph.json:kernels.k.source`).

    `#include "…"` is looked for beside the file `name`, then in `include_dirs`, then in the CUDA headers.
    Raises `CompileError` (`details["log"]` is the compiler's log) and, where NVRTC is not installed,
    `DeviceUnavailable`.
    """
    started = time.perf_counter_ns()
    store = default_cache() if cache == "default" else cache
    folder = Path(name).parent if Path(name).is_file() else None
    user_dirs = [*([folder] if folder else []), *include_dirs]
    arguments = _arguments(arch, kind, options, user_dirs)
    key = _key(source, name, arguments, user_dirs, options, kind, name_expressions) if store else None
    if store and key and (found := store.get(key)) is not None:
        unpacked = _unpack(found)
        _history.append(CompileRow(name, kind, time.perf_counter_ns() - started, from_cache=True))
        return unpacked
    compiled = _run_nvrtc(source, name, arguments, kind, name_expressions)
    if store and key:
        store.put(key, _pack(compiled))
    _history.append(CompileRow(name, kind, time.perf_counter_ns() - started, from_cache=False))
    return compiled


def compiled_here() -> list[CompileRow]:
    """What this process compiled or took from the cache, the latest thousands."""
    return list(_history)


def nvrtc_version() -> tuple[int, int]:
    """NVRTC's version; `DeviceUnavailable` where it is not installed."""
    nvrtc = _nvrtc()
    _, major, minor = nvrtc.nvrtcVersion()
    return int(major), int(minor)


def _identity() -> str:
    """What tells one NVRTC from another. The packages' versions do, and asking them spares loading the library."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"{version('nvidia-cuda-nvrtc')} through {version('cuda-bindings')}"
    except PackageNotFoundError:
        return "{}.{}".format(*nvrtc_version())


def first_error(log: str, source: str, name: str) -> Diagnostic:
    """The first error in `log`, with up to two lines of the source that it points at."""
    if placed := _PLACED.search(log):
        file, line = placed["file"], int(placed["line"])
        return Diagnostic(file, line, placed["text"], _context(source if file == name else _read(file), line))
    unplaced = _UNPLACED.search(log)
    message = unplaced["text"] if unplaced else (log.strip().splitlines() or ["the compiler gave no log"])[0]
    return Diagnostic(None, None, message, "")


def _arguments(arch: str, kind: Kind, options: Sequence[str], user_dirs: Sequence[Path]) -> list[str]:
    number = arch.removeprefix("sm_").removeprefix("compute_")
    places = [*user_dirs, *headers.toolkit_include_dirs()]
    line_info = [] if "-G" in options or "--device-debug" in options else ["-lineinfo"]
    prefix = "sm" if kind == "cubin" else "compute"
    return [f"-arch={prefix}_{number}", *line_info, *(f"-I{place}" for place in places), *options]


def _key(
    source: str,
    name: str,
    arguments: Sequence[str],
    user_dirs: Sequence[Path],
    options: Sequence[str],
    kind: Kind,
    name_expressions: Sequence[str],
) -> str | None:
    """The cache key, or None where an option or a computed `#include` hides what is read."""
    if any(re.match(r"--?(pre-include|include$|include=|pch|create-pch|use-pch)", option) for option in options):
        return None
    listed = [Path(option[2:]) for option in options if option.startswith("-I") and len(option) > 2]
    listed += [Path(option.partition("=")[2]) for option in options if option.startswith("--include-path=")]
    included = headers.included_digest(source, user_dirs[0] if user_dirs else None, [*user_dirs, *listed])
    if included is None:
        return None
    parts = ["nvrtc", _identity(), kind, name, source, included, headers.toolkit_identity()]
    return digest_key([*parts, *sorted(headers.HOST_HEADERS.values()), *arguments, "names", *name_expressions])


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()  # the library itself is looked for at the first call
    except (ImportError, RuntimeError, OSError) as error:
        raise DeviceUnavailable(
            f"CUDA C cannot be compiled: NVRTC is not installed ({str(error).strip()})", code="KG701", help=_INSTALL
        ) from error
    return nvrtc


def _run_nvrtc(source: str, name: str, arguments: Sequence[str], kind: Kind, names: Sequence[str]) -> Compiled:
    nvrtc = _nvrtc()
    started = time.perf_counter()
    shims = headers.HOST_HEADERS
    code, program = nvrtc.nvrtcCreateProgram(
        _bytes(source),
        _bytes(name),
        len(shims),
        [_bytes(text) for text in shims.values()],
        [_bytes(key) for key in shims],
    )
    if int(code) != 0:
        raise CompileError(f"NVRTC refused the source: {code.name}", code="KG501", where=name)
    try:
        for expression in names:
            nvrtc.nvrtcAddNameExpression(program, _bytes(expression))
        (code,) = nvrtc.nvrtcCompileProgram(program, len(arguments), [_bytes(argument) for argument in arguments])
        log = _fetch(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode("utf-8", "replace").strip()
        if int(code) != 0:
            raise _compile_error(log or code.name, source, name, names)
        getters = {
            "cubin": (nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN),
            "ptx": (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX),
        }[kind]
        image = _fetch(program, *getters)
        lowered = {expression: _lowered(nvrtc, program, expression) for expression in names}
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    image = image.rstrip(b"\0") if kind == "ptx" else image
    return Compiled(image, log, lowered, time.perf_counter() - started, from_cache=False)


def _fetch(program: Any, size_of: Any, get: Any) -> bytes:
    _, size = size_of(program)
    if size <= 1:  # an empty text: NVRTC would write its NUL into a shared one-byte object
        return b""
    buffer = bytearray(size)
    get(program, buffer)
    return bytes(buffer).rstrip(b"\0") if size_of.__name__.endswith("LogSize") else bytes(buffer)


def _lowered(nvrtc: Any, program: Any, expression: str) -> str:
    code, lowered = nvrtc.nvrtcGetLoweredName(program, _bytes(expression))
    if int(code) != 0:
        raise CompileError(f"no symbol for {expression!r}: {code.name}", code="KG502")
    return str(lowered.decode())


def _compile_error(log: str, source: str, name: str, names: Sequence[str]) -> CompileError:
    found = first_error(log, source, name)
    if found.file == _NAMES and (named := _NAMED.search(log)):  # spelled out with spaces of its own
        spelled = "".join(named[1].split())
        expression = next((each for each in names if "".join(each.split()) == spelled), named[1].strip())
        return _unknown_entry(expression, found.message, log, source, name)
    message = found.message + (f"\n{found.context}" if found.context else "")
    others = len(_PLACED.findall(log)) - 1
    hint = f"{others} more error{'s' * (others > 1)} in the compiler's log" if others > 0 else None
    if "cannot open source file" in found.message:
        hint = "give its folder as an include directory, or put the header beside the source"
    where = Place(file=found.file or name, line=found.line)
    return CompileError(message, code="KG501", where=where, help=hint, details={"log": log})


def _unknown_entry(expression: str, why: str, log: str, source: str, name: str) -> CompileError:
    """The source compiles, but an entry names nothing in it, or no instance of a template."""
    known = list(dict.fromkeys(_ENTRY.findall(source)))
    base = expression.partition("<")[0].strip()
    code = "KG502" if base in known else "KG504"
    hint = did_you_mean(base, known) or f"it has {', '.join(known) or 'no kernel'}"
    if code == "KG502":
        hint = f"an entry of a template has its arguments: {base}<float>"
    return CompileError(
        f"no kernel {expression!r} in {name}: {why}", code=code, where=name, help=hint, details={"log": log}
    )


def _context(text: str, line: int) -> str:
    lines = text.splitlines()
    first = max(1, line - _CONTEXT_LINES + 1)
    return "\n".join(f"{number:5d} | {lines[number - 1]}" for number in range(first, min(line, len(lines)) + 1))


def _read(file: str) -> str:
    try:
        return Path(file).read_text("utf-8", "replace")
    except OSError:
        return ""


def _pack(compiled: Compiled) -> bytes:
    meta = json.dumps({"log": compiled.log, "names": compiled.lowered_names, "seconds": compiled.seconds}).encode()
    return struct.pack("<Q", len(meta)) + meta + compiled.image


def _unpack(data: bytes) -> Compiled:
    (length,) = struct.unpack_from("<Q", data)
    meta = json.loads(data[8 : 8 + length])
    fresh = Compiled(data[8 + length :], meta["log"], meta["names"], meta["seconds"], from_cache=False)
    return replace(fresh, from_cache=True)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
