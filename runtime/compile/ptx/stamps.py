"""Stamps, as quick.cu keeps them: what an access does to them and asks of them, in place or in a look."""

from __future__ import annotations

from dataclasses import dataclass

from kgrun.runtime.compile.ptx.emit import Emitter
from kgrun.runtime.compile.ptx.layout import BLOCK, offset_of
from kgrun.runtime.compile.ptx.quick_values import (
    BY_ATOMIC,
    CAS,
    CLAIM,
    CONFIRM,
    MOST_GRANULES,
    READERS,
    RUN,
    SHARED,
    UNLIKELY,
    WHO,
    Access,
    field_of,
    inside,
    note,
    settings_of,
    slot_field,
    stop_where,
    stored_bits,
)


@dataclass
class _Times:
    """The moments that stamps are compared with: values of the body at hand."""

    low: str  # older than this: nobody yet
    block: str
    barrier: str
    mine: str
    by_atomic: str
    floor: str  # older than this may be read


def _times(e: Emitter, access: Access) -> _Times:
    quick = settings_of(e)
    shared = access.space == "shared"
    now, block = field_of(e, "now"), field_of(e, "block_low")
    low = block if shared else field_of(e, "low")
    barrier = field_of(e, "barrier_low") if quick.waits else block
    floor = ("0" if quick.init else low) if shared else slot_field(e, access, "floor")
    mine = e.at_entry("%q.mine", f"or i32 {now}, %t")
    return _Times(low, block, barrier, mine, e.hoisted("%q.atomic", "i32", f"or i32 {now}, {BY_ATOMIC}"), floor)


def _ordered(e: Emitter, stamp: str, times: _Times) -> str:
    """Whether somebody was there before, by a barrier or as an earlier thread of this one's own block: i1."""
    quick = settings_of(e)
    if not quick.waits:
        return "false"
    since = e.value(f"sub i32 {stamp}, {times.block}")
    since_block = e.hoisted("%q.barriers", "i32", f"sub i32 {times.barrier}, {times.block}")
    found = e.value(f"icmp ult i32 {since}, {since_block}")
    if e.look != RUN and not e.fresh:  # warps may have synchronised since the barrier
        since = e.value(f"icmp ult i32 {stamp}, {field_of(e, 'sync_low')}")
        here = e.value(f"icmp uge i32 {stamp}, {times.block}")
        who = e.value(f"and i32 {stamp}, {WHO}")
        warp = e.value(f"icmp eq i32 {e.value(f'lshr i32 {who}, 5')}, {e.value('lshr i32 %t, 5')}")
        both = e.value(f"and i1 {e.value(f'and i1 {since}, {here}')}, {warp}")
        found = e.value(f"or i1 {found}, {both}")
    return found


def _any(e: Emitter, *conditions: str) -> str:
    wanted = [condition for condition in conditions if condition != "false"]
    result = wanted[0] if wanted else "false"
    for condition in wanted[1:]:
        result = e.value(f"or i1 {result}, {condition}")
    return result


def stamped(e: Emitter, access: Access) -> None:
    quick = settings_of(e)
    shared = access.space == "shared"
    quiet = e.inspection is not None and e.inspection.quiet and shared and not access.is_write
    unasked = e.look in (CONFIRM, READERS) or (e.look == CLAIM and e.inspection and e.inspection.assumes_complete)
    if quiet and unasked:
        return
    shift = quick.shared_shift if shared else quick.shift
    count = max(1, access.size >> shift)
    if shared:
        first, base = access.offset, field_of(e, "shadow")
    else:
        first, base = inside(e, access), slot_field(e, access, "stamps")
    start = e.value(f"shl i64 {first}, {2 - shift}") if shift < 2 else first
    entry = e.value(f"add i64 {base}, {start}")
    distance = field_of(e, "shared_reads" if shared else "area_bytes")
    times = _times(e, access)
    if e.look != RUN:
        for n in range(count):
            _look(e, access, entry, distance, n, times)
        return
    by_call = count > MOST_GRANULES or access.flags & CAS or (access.is_atomic and not access.is_write)
    if by_call:
        stop_where(e, _call_words(e, access, entry, distance, count, times))
        return
    places, fine = [], "true"
    for n in range(count):
        writer, reader = _pointers(e, entry, distance, n)
        settled, kept = _settled(e, access, writer, reader, times)
        places.append((writer, reader, kept))
        fine = settled if fine == "true" else e.value(f"and i1 {fine}, {settled}")
    slow, quickly, on = e.fresh_label("unclear"), e.fresh_label("clear"), e.fresh_label("on")
    e.line(f"br i1 {fine}, label %{quickly}, label %{slow}, !prof !21")
    e.keep_label(slow)
    bad = _call_words(e, access, entry, distance, count, times)
    e.line(f"br i1 {bad}, label %suspect, label %{on}{UNLIKELY}")
    e.stops = True
    e.keep_label(quickly)
    for writer, reader, kept in places:
        if access.is_write:
            e.line(f"store i32 {times.by_atomic if access.is_atomic else times.mine}, ptr {writer}, align 4")
        else:
            e.line(f"store i32 {kept}, ptr {reader}, align 4")
    if not access.is_write:
        noted = e.value(f"getelementptr i8, ptr %B, i64 {offset_of(BLOCK, 'noted')}")
        e.line(f"store i32 1, ptr {noted}, align 4")
    e.jump(on)
    e.keep_label(on)


def _pointers(e: Emitter, entry: str, distance: str, number: int) -> tuple[str, str]:
    """Pointers to the stamps of the writer and the reader of a granule."""
    at = e.value(f"add i64 {entry}, {4 * number}") if number else entry
    other = e.value(f"add i64 {at}, {distance}")
    return e.value(f"getelementptr i8, ptr %Z, i64 {at}"), e.value(f"getelementptr i8, ptr %Z, i64 {other}")


def _load(e: Emitter, place: str) -> str:
    note = ", !llvm.access.group !1" if e.look != RUN else ""
    return e.value(f"load i32, ptr {place}, align 4{note}")


def _settled(e: Emitter, access: Access, writer: str, reader: str, times: _Times) -> tuple[str, str]:
    """Whether a granule needs no closer look (i1), and the reader's stamp that is to stand there."""
    shared = access.space == "shared"
    w, r = _load(e, writer), _load(e, reader)
    before = _ordered(e, w, times)
    nobody = e.value(f"icmp ult i32 {w}, {times.low}")
    if access.is_atomic:  # which reads as well
        who = e.value(f"and i32 {w}, {WHO}")
        is_atomic = e.value(f"icmp eq i32 {who}, {BY_ATOMIC}")
        alike = e.value(f"and i1 {is_atomic}, {e.value(f'xor i1 {nobody}, true')}")
        empty = e.value(f"and i1 {nobody}, {e.value(f'icmp ult i32 {w}, {times.floor}')}")
        fine = _any(e, alike, empty, before)
    elif access.is_write:
        fine = _any(e, nobody, e.value(f"icmp eq i32 {w}, {times.mine}"), before)
    else:
        empty = e.value(f"and i1 {nobody}, {e.value(f'icmp ult i32 {w}, {times.floor}')}")
        fine = _any(e, empty, e.value(f"icmp eq i32 {w}, {times.mine}"), before)
    old = e.value(f"icmp ult i32 {r}, {times.barrier if shared else times.low}")
    read = _any(e, old, e.value(f"icmp eq i32 {r}, {times.mine}"), "false" if shared else _ordered(e, r, times))
    kept = times.mine
    if not access.is_write:
        many = e.value(f"icmp eq i32 {e.value(f'and i32 {r}, {WHO}')}, {WHO}")
        since = times.barrier if shared else times.low
        many = e.value(f"and i1 {many}, {e.value(f'icmp uge i32 {r}, {since}')}")
        if not shared:  # those of this block or of several
            here = e.value(f"icmp uge i32 {r}, {times.barrier}")
            several = e.value(f"icmp eq i32 {r}, {e.value(f'or i32 {times.low}, {WHO}')}")
            many = e.value(f"and i1 {many}, {e.value(f'or i1 {here}, {several}')}")
        kept = e.value(f"select i1 {many}, i32 {r}, i32 {times.mine}")
        read = e.value(f"or i1 {read}, {many}")
    return e.value(f"and i1 {fine}, {read}"), kept


def _call_words(e: Emitter, access: Access, entry: str, distance: str, count: int, times: _Times) -> str:
    number = e.value(f"ptrtoint ptr {access.place} to i64")
    flags = access.flags | (SHARED if access.space == "shared" else 0)
    compared = access.size if access.stored is not None and access.size <= 8 else 0
    answer = e.runtime(
        "kg_quick_words",
        "i32",
        *(("ptr", "%L"), ("ptr", "%B"), ("i32", "%t"), ("i64", entry), ("i64", distance), ("i32", str(count))),
        *(("i32", times.floor), ("i64", number), ("i32", str(compared)), ("i32", str(flags))),
        ("i64", stored_bits(e, access) if compared else "0"),
    )
    return e.value(f"icmp ne i32 {answer}, 0")


def _look(e: Emitter, access: Access, entry: str, distance: str, number: int, times: _Times) -> None:
    """One granule in a look over all threads at once: nothing here depends on the order of threads."""
    shared = access.space == "shared"
    writer, reader = _pointers(e, entry, distance, number)
    if e.look == READERS:
        if access.is_write:
            r = _load(e, reader)
            low = times.block if shared else times.low
            fine = _any(
                e,
                e.value(f"icmp ult i32 {r}, {low}"),
                e.value(f"icmp eq i32 {r}, {times.mine}"),
                _ordered(e, r, times),
            )
            note(e, e.value(f"xor i1 {fine}, true"), 1)
        return
    w = _load(e, writer)
    mine = times.by_atomic if access.is_atomic else times.mine
    if e.look == CONFIRM:
        other = e.value(f"icmp ne i32 {w}, {mine}")
        if access.is_write:
            note(e, other, 1)
            return
        old = _any(e, e.value(f"icmp ult i32 {w}, {times.low}"), _ordered(e, w, times))
        note(e, e.value(f"and i1 {other}, {e.value(f'xor i1 {old}, true')}"), 1)
        if not shared:
            note(e, other, 2)
        return
    nobody = e.value(f"icmp ult i32 {w}, {times.low}")
    full = e.value(f"icmp uge i32 {w}, {times.floor}")
    if not access.is_write or access.is_atomic:  # reads: in the order of its own thread's writes
        note(e, e.value(f"and i1 {nobody}, {full}"), 1)
    if not access.is_write:
        return
    before = _ordered(e, w, times)
    if access.is_atomic:
        is_atomic = e.value(f"icmp eq i32 {e.value(f'and i32 {w}, {WHO}')}, {BY_ATOMIC}")
        fine = _any(e, nobody, before, is_atomic)
    else:
        fine = _any(e, nobody, before, e.value(f"icmp eq i32 {w}, {mine}"))
    note(e, e.value(f"xor i1 {fine}, true"), 1)
    e.line(f"store i32 {mine}, ptr {writer}, align 4, !llvm.access.group !1")
