"""What the quick pass of a checked launch emits at an access; quick.cu says what stamps are.

A body is written in one of several ways. As it runs ("run"), each access is tested before it happens, and a thread that
may be at fault ends. Where addresses and branches of a state depend on no data, the state is looked at before it runs
without any test (inspection.py): one pass over all threads for each of the looks below, which touch only stamps, in
loops that LLVM can vectorise.
"""

from __future__ import annotations

from kgrun.runtime.compile.ptx.emit import Emitter
from kgrun.runtime.compile.ptx.layout import LAUNCH, offset_of
from kgrun.runtime.compile.ptx.quick_values import (
    BOUNDS,
    LOCAL,
    RUN,
    SHARED,
    UNCOMPARED,
    Access,
    inside,
    settings_of,
    slot_field,
    stop_where,
    stored_bits,
)
from kgrun.runtime.compile.ptx.stamps import stamped


def known(e: Emitter, access: Access) -> bool:
    """Whether the access can be tested in place, by the record of what its address is made from."""
    quick = settings_of(e)
    if access.space == "shared":
        return access.origin in quick.ends
    return access.space in ("global", "generic") and access.origin.startswith(("param:", "global:"))


def guard(e: Emitter, access: Access) -> None:
    """Emit the tests of an access, for the way in which the body at hand is written."""
    quick = settings_of(e)
    if e.lean and e.look == RUN:
        stop_where(e, _call_access(e, access))
        return
    if access.space == "local" and e.look == RUN:
        _local(e, access)
        return
    if not known(e, access):
        assert e.look == RUN
        stop_where(e, _call_access(e, access))
        return
    if e.look in (RUN, BOUNDS):
        _bounds(e, access)
    if not quick.stamps or e.look == BOUNDS:
        return
    if access.space != "shared" and access.origin not in quick.written:
        if e.look != RUN:
            return  # `aliased` says where that is not enough
        stamps = slot_field(e, access, "stamps")
        there, on = e.fresh_label("stamped"), e.fresh_label("on")
        e.branch(e.value(f"icmp ne i64 {stamps}, 0"), there, on)
        e.keep_label(there)
        stamped(e, access)
        e.jump(on)
        e.keep_label(on)
        return
    stamped(e, access)


def _bounds(e: Emitter, access: Access) -> None:
    """Bounds and alignment of the access and those that it stands for; nothing where another one stands for it."""
    lowest, span = 0, access.size
    if e.index in e.groups:
        group = e.groups[e.index]
        if group is None:
            return
        lowest, span = group.lowest - e.displacement, group.end - group.lowest
    at = inside(e, access)
    if lowest:
        at = e.value(f"add i64 {at}, {lowest}")
    if access.space == "shared":
        begin, end = settings_of(e).ends[access.origin]
        if end is not None:
            room = str(max(0, end - begin - span + 1))
        else:
            place = f"getelementptr i8, ptr %L, i64 {offset_of(LAUNCH, 'dynamic_bytes')}"
            room = _room(e, e.hoisted("%q.dynamic", "i64", place, "load i64, ptr %%, !invariant.load !0"), span)
    else:
        room = _room(e, slot_field(e, access, "writable" if access.is_write else "bytes"), span)
    bad = e.value(f"icmp uge i64 {at}, {room}")
    if access.size > 1:
        number = access.offset if access.space == "shared" else e.value(f"ptrtoint ptr {access.place} to i64")
        crooked = e.value(f"icmp ne i64 {e.value(f'and i64 {number}, {access.size - 1}')}, 0")
        bad = e.value(f"or i1 {bad}, {crooked}")
    stop_where(e, bad)


def _room(e: Emitter, given: str, span: int) -> str:
    """In how many places `span` of `given` bytes lie."""
    e.program.declare("llvm.usub.sat.i64", "i64 (i64, i64)")
    return e.hoisted(f"{given}.{span}", "i64", f"call i64 @llvm.usub.sat.i64(i64 {given}, i64 {span - 1})")


def _local(e: Emitter, access: Access) -> None:
    """A thread's own memory: bounds alone. (In a function, what it may point to is not known.)"""
    if not e.function.is_entry:
        stop_where(e, _call_access(e, access))
        return
    number = e.value(f"ptrtoint ptr {access.place} to i64")
    start = e.value("ptrtoint ptr %local to i64")
    room = e.intrinsic("usub.sat.i64", "i64", ("i64", "%LB"), ("i64", str(access.size - 1)))
    bad = e.value(f"icmp uge i64 {e.value(f'sub i64 {number}, {start}')}, {room}")
    crooked = e.value(f"icmp ne i64 {e.value(f'and i64 {number}, {access.size - 1}')}, 0")
    stop_where(e, e.value(f"or i1 {bad}, {crooked}"))


def _call_access(e: Emitter, access: Access) -> str:
    """Have the runtime look at an access whose address may point anywhere: i1."""
    number = e.value(f"ptrtoint ptr {access.place} to i64")
    flags = access.flags | {"shared": SHARED, "local": LOCAL}.get(access.space, 0)
    size = access.size | (UNCOMPARED if access.is_write and access.stored is None else 0)
    answer = e.runtime(
        "kg_quick_access",
        "i32",
        *(("ptr", "%L"), ("ptr", "%B"), ("i32", "%t"), ("i64", number)),
        *(("i32", str(size)), ("i32", str(flags)), ("i64", stored_bits(e, access))),
    )
    return e.value(f"icmp ne i32 {answer}, 0")
