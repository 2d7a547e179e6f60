"""What a cubin says of its kernels: parameter layout, registers, static shared memory. Needs no device.

A cubin is an ELF file. `.nv.info.KERNEL` holds records of (format, attribute, size or value); attribute 0x17 describes
one parameter each, as printed by `cuobjdump -elf`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from kgrun.graphs.records import dataclass

_SIZED = 4  # the record's payload follows; other formats hold two bytes in place
_KPARAM_INFO = 0x17
_REGCOUNT = 0x2F
_RESERVED_SHARED = 1024  # architectures from sm_90 on count the driver's own KiB in `.nv.shared.KERNEL`


@dataclass(frozen=True, slots=True)
class Parameter:
    """One kernel parameter: bytes from the start of the parameter block, and bytes."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One kernel of a cubin.

    Attributes:
        parameters: in order; None where the cubin does not tell.
        registers: a thread; 0 where the cubin does not tell.
        static_shared: bytes a block.
    """

    name: str
    parameters: tuple[Parameter, ...] | None
    registers: int
    static_shared: int


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    start: int
    size: int
    entry: int
    link: int


def read_cubin(image: bytes) -> dict[str, KernelFacts]:
    """The kernels of `image` by symbol; empty where it is no cubin that can be read."""
    try:
        return _read(image)
    except (struct.error, ValueError, IndexError, OverflowError):
        return {}


def _read(image: bytes) -> dict[str, KernelFacts]:
    if image[:5] != b"\x7fELF\x02":
        return {}
    sections = _sections(image)
    by_name = {section.name: section for section in sections}
    symbols = _symbols(image, sections)
    registers = {}
    if ".nv.info" in by_name:
        for attribute, payload in _records(image, by_name[".nv.info"]):
            if attribute == _REGCOUNT:
                symbol, count = struct.unpack("<II", payload)
                registers[symbols[symbol]] = count
    facts = {}
    for section in sections:
        if not section.name.startswith(".text."):
            continue
        name = section.name.removeprefix(".text.")
        info = by_name.get(f".nv.info.{name}")
        parameters = _parameters(image, info) if info else None
        facts[name] = KernelFacts(name, parameters, registers.get(name, 0), _static_shared(by_name, name))
    return facts


def _sections(image: bytes) -> list[_Section]:
    (table,) = struct.unpack_from("<Q", image, 0x28)
    entry, count, names = struct.unpack_from("<HHH", image, 0x3A)
    rows = [struct.unpack_from("<IIQQQQIIQQ", image, table + index * entry) for index in range(count)]
    strings = rows[names][4]
    return [
        _Section(_string(image, strings + row[0]), row[1], row[4], row[5], row[9], row[6])
        for row in rows  # name, type, flags, address, offset, size, link, info, alignment, entry size
    ]


def _symbols(image: bytes, sections: list[_Section]) -> list[str]:
    for section in sections:
        if section.kind == 2:
            strings = sections[section.link].start
            offsets = range(section.start, section.start + section.size, section.entry)
            return [_string(image, strings + struct.unpack_from("<I", image, offset)[0]) for offset in offsets]
    return []


def _string(image: bytes, start: int) -> str:
    return image[start : image.index(b"\0", start)].decode("utf-8", "replace")


def _records(image: bytes, section: _Section) -> Iterator[tuple[int, bytes]]:
    at, end = section.start, section.start + section.size
    while at + 4 <= end:
        form, attribute, size = struct.unpack_from("<BBH", image, at)
        at += 4
        if form == _SIZED:
            yield attribute, image[at : at + size]
            at += size


def _parameters(image: bytes, section: _Section) -> tuple[Parameter, ...]:
    found = {}
    for attribute, payload in _records(image, section):
        if attribute == _KPARAM_INFO:
            _, ordinal, offset, packed = struct.unpack("<IHHI", payload)
            found[ordinal] = Parameter(offset, packed >> 18)
    return tuple(found[ordinal] for ordinal in sorted(found))


def _static_shared(sections: dict[str, _Section], name: str) -> int:
    section = sections.get(f".nv.shared.{name}")
    if section is None:
        return 0
    reserved = _RESERVED_SHARED if ".nv.shared.reserved.0" in sections else 0
    return max(0, section.size - reserved)
