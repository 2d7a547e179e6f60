"""A compiled kernel as a value, and as bytes of the object cache."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import resources

from kgrun.graphs.errors import DeviceUnavailable, Place
from kgrun.runtime.compile.cache import CompileCache
from kgrun.runtime.compile.ptx.context import Unsupported


@dataclass
class CompiledKernel:
    """A kernel's object code and what a launch must know of it; what the object cache holds."""

    code: bytes
    kinds: list[int]
    places: list[tuple[str, int]]
    sites: list[tuple[str, int, str]]
    frame_bytes: int
    local_bytes: int
    waits: bool
    spins: bool
    looped: bool
    slots: list[str] = field(default_factory=list)  # of the quick pass, as all below
    written: list[str] = field(default_factory=list)
    anywhere: bool = False
    shifts: tuple[int, int] = (0, 0)
    whole: bool = False


@cache
def own_digest() -> str:
    """A digest of this package's own sources: another translator makes other code."""
    digest = hashlib.sha256()
    for file in sorted(resources.files("kgrun.runtime.compile.ptx").iterdir(), key=lambda each: each.name):
        if file.name.endswith((".py", ".cu")):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def keep(store: CompileCache, key: str, compiled: CompiledKernel) -> None:
    meta = {name: value for name, value in asdict(compiled).items() if name != "code"}
    head = json.dumps(meta).encode()
    store.put(key, struct.pack("<Q", len(head)) + head + compiled.code)


def unpack(data: bytes) -> CompiledKernel:
    (length,) = struct.unpack_from("<Q", data)
    meta = json.loads(data[8 : 8 + length])
    meta["places"] = [(file, line) for file, line in meta["places"]]
    meta["sites"] = [(file, line, what) for file, line, what in meta["sites"]]
    return CompiledKernel(code=data[8 + length :], **meta)


def line_numbers(places: Sequence[tuple[str, int]]) -> list[int]:
    """For each state a number, the same for the same source line, never 0."""
    numbers: dict[tuple[str, int], int] = {}
    return [numbers.setdefault((file, line), len(numbers) + 1) for file, line in places]


def unsupported(error: Unsupported, kernel: str, module: str) -> DeviceUnavailable:
    """The error of a kernel that has an operation which does not run here."""
    place = error.location
    where = Place(file=place.file or module, line=place.line or None)
    return DeviceUnavailable(
        f"{kernel} is not run on the CPU: {error.operation}",
        code="KG703",
        where=where,
        help="run it on a GPU (--device cuda), or let it count as skipped (--allow-skip)",
    )
