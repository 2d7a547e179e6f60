"""Values that the quick pass's code is made of: its settings, one access, fields of records, findings."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from kgrun.runtime.compile.ptx.emit import Emitter
from kgrun.runtime.compile.ptx.layout import BLOCK, SLOT, SlotRecord, offset_of

PLAIN, RUN = "plain", "run"
BOUNDS, CLAIM, CONFIRM, READERS = "bounds", "claim", "confirm", "readers"
LOOKS = (BOUNDS, CLAIM, CONFIRM, READERS)
WRITE, ATOMIC, SHARED, LOCAL, CAS, BLIND = 1, 2, 4, 8, 32, 128
UNCOMPARED = 0x100
BY_ATOMIC, WHO = 1057, 2047
MOST_GRANULES = 4
UNLIKELY = ", !prof !20"


@dataclass(frozen=True)
class Quick:
    """Settings of a quick pass for one kernel.

    Attributes:
        stamps: whether races or uninitialised reads matter; else only bounds are tested.
        init: whether uninitialised reads matter.
        shift, shared_shift: a stamp stands for 1 << shift bytes, the smallest access of the kernel.
        written: origins through which the kernel writes.
        anywhere: whether it also writes through addresses of unclear origin.
        waits: whether threads wait for each other.
        ends: of each shared variable, by name, its first byte and the one after its last; None: the launch knows.
    """

    stamps: bool
    init: bool
    shift: int
    shared_shift: int
    written: frozenset[str]
    anywhere: bool
    waits: bool
    ends: dict[str, tuple[int, int | None]]


@dataclass
class Access:
    """One access about to be emitted: `place` is its pointer, `origin` what its address is made from."""

    space: str
    place: str
    offset: str  # from the start of shared memory, where it is of that
    size: int
    flags: int
    origin: str
    stored: tuple[str, str] | None = None

    @property
    def is_write(self) -> bool:
        return bool(self.flags & WRITE)

    @property
    def is_atomic(self) -> bool:
        return bool(self.flags & ATOMIC)


def settings_of(e: Emitter) -> Quick:
    assert e.program.quick is not None
    return e.program.quick


def stop_where(e: Emitter, bad: str) -> None:
    """End this thread where `bad` (i1); a look notes it instead."""
    if e.look != RUN:
        note(e, bad, 1)
        return
    on = e.fresh_label("on")
    e.line(f"br i1 {bad}, label %suspect, label %{on}{UNLIKELY}")
    e.stops = True
    e.keep_label(on)


def note(e: Emitter, bad: str, bit: int) -> None:
    before = e.value("load i32, ptr %look.found")
    found = e.value(f"or i32 {before}, {e.value(f'select i1 {bad}, i32 {bit}, i32 0')}")
    e.line(f"store i32 {found}, ptr %look.found")


def field_of(e: Emitter, name: str) -> str:
    """A field of the block's record that does not change while a body runs."""
    kind = {"u32": "i32", "u64": "i64"}[dict(BLOCK)[name]]
    place = f"getelementptr i8, ptr %B, i64 {offset_of(BLOCK, name)}"
    return e.hoisted(f"%q.{name}", kind, place, f"load {kind}, ptr %%, !invariant.load !0")


def slot_field(e: Emitter, access: Access, name: str) -> str:
    number = e.program.slot(access.origin)
    kind = {"u32": "i32", "u64": "i64"}[dict(SLOT)[name]]
    place = f"getelementptr i8, ptr %B, i64 {offset_of(BLOCK, 'slots')}"
    known = "!invariant.load !0, !dereferenceable !13, !align !14"
    table = e.hoisted("%q.table", "ptr", place, f"load ptr, ptr %%, {known}")
    at = ctypes.sizeof(SlotRecord) * number + offset_of(SLOT, name)
    place = f"getelementptr i8, ptr {table}, i64 {at}"
    return e.hoisted(f"%q.{name}{number}", kind, place, f"load {kind}, ptr %%, !invariant.load !0")


def inside(e: Emitter, access: Access) -> str:
    """The access's distance from the start of what its origin names, i64."""
    if access.space == "shared":
        begin, _ = settings_of(e).ends[access.origin]
        return e.value(f"sub i64 {access.offset}, {begin}")
    number = e.value(f"ptrtoint ptr {access.place} to i64")
    return e.value(f"sub i64 {number}, {slot_field(e, access, 'begin')}")


def stored_bits(e: Emitter, access: Access) -> str:
    if access.stored is None:
        return "0"
    width = 8 * access.size
    value = e.convert_bits(*access.stored, f"i{width}")
    return value if width == 64 else e.value(f"zext i{width} {value} to i64")
