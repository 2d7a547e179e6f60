"""The loops around a kernel's body: rows of threads from one state to the next, and one thread alone."""

from __future__ import annotations

import ctypes

from kgrun.runtime.compile.ptx.emit import HIDDEN
from kgrun.runtime.compile.ptx.layout import BLOCK, LAUNCH, BlockRecord, LaunchRecord, offset_of

# Accesses of different threads between two suspend points have no order (what has one is a race), so LLVM may take
# the iterations over threads as parallel: group !1 says it of the accesses, the loop's metadata of the loop.
METADATA = """!0 = !{}
!1 = distinct !{}
!2 = distinct !{!2, !3}
!3 = !{!"llvm.loop.parallel_accesses", !1}
!9 = !{i32 1, i32 1025}
!10 = !{i32 0, i32 2147483647}
!11 = !{i64 16}"""
_RECORDS = (
    f"ptr align 8 dereferenceable({ctypes.sizeof(LaunchRecord)}) %L, "
    f"ptr align 8 dereferenceable({ctypes.sizeof(BlockRecord)}) %B"
)
PARALLEL_LOOP = ", !llvm.loop !2"
_FIRST_LOOP = 100


def entry_points(states: int, looped: bool, args_size: int) -> str:
    """`kg_step(L, B, state, thread)` and, where `looped`, `kg_region(L, B, state, first, end)`.

    The region answers the state that all its threads reached, -1 where all ended, -2 where they differ; each
    thread's own state is left in `pend` as well.
    """
    arguments = f"\n!12 = !{{i64 {max(args_size, 8)}}}\n"
    if looped and states == 1:  # no thread ever waits, so none runs alone
        return _stub("kg_step", "i32 %state, i32 %thread") + arguments + _region(states)
    rows = _region(states) if looped else _stub("kg_region", "i32 %state, i32 %first, i32 %end")
    return _step(states) + arguments + rows


def _constants() -> list[str]:
    """Values that a launch fixes, and the block's own ones, loaded once."""
    lines = []
    wanted = {"nx": "block_x", "ny": "block_y", "T32": "threads", "P": "params", "LB": "local_bytes"}
    kinds = {"nx": "i32", "ny": "i32", "T32": "i32", "P": "ptr", "LB": "i64"}
    notes = dict.fromkeys(("nx", "ny", "T32"), ", !range !9") | {"P": ", !dereferenceable !12, !align !11"}
    for name, field in wanted.items():
        lines.append(f"  %{name}.at = getelementptr i8, ptr %L, i64 {offset_of(LAUNCH, field)}")
        lines.append(
            f"  %{name} = load {kinds[name]}, ptr %{name}.at, align 4, !invariant.load !0{notes.get(name, '')}"
        )
    block = (
        ("cx", "cta_x", "i32"),
        ("cy", "cta_y", "i32"),
        ("cz", "cta_z", "i32"),
        ("S", "shared", "ptr"),
        ("pend", "pend", "ptr"),
    )
    for name, field, kind in block:
        lines.append(f"  %{name}.at = getelementptr i8, ptr %B, i64 {offset_of(BLOCK, field)}")
        note = ", !range !10" if name.startswith("c") else ""
        lines.append(f"  %{name} = load {kind}, ptr %{name}.at{note}")
    lines.append(f"  %Z.at = getelementptr i8, ptr %B, i64 {offset_of(BLOCK, 'zero')}")
    lines.append("  %Z = load ptr, ptr %Z.at, !invariant.load !0")
    lines.append("  %T = zext i32 %T32 to i64")
    return lines


def _body_call(state: int, thread: str, x: str, y: str, z: str, inline: str) -> str:
    own = {"%t": thread, "%tx": x, "%ty": y, "%tz": z}
    hidden = ", ".join(f"{kind} {own.get(name, name)}" for kind, name in HIDDEN)
    return f"call i32 @kg_body{state}({hidden}, ptr %P, i64 %T, i64 %LB) {inline}"


def _coordinates(thread: str, prefix: str) -> list[str]:
    return [
        f"  %{prefix}x0 = urem i32 {thread}, %nx",
        f"  %{prefix}row = udiv i32 {thread}, %nx",
        f"  %{prefix}y = urem i32 %{prefix}row, %ny",
        f"  %{prefix}z = udiv i32 %{prefix}row, %ny",
    ]


def _step(states: int) -> str:
    cases = " ".join(f"i32 {state}, label %S{state}" for state in range(states))
    lines = [
        f"define i32 @kg_step({_RECORDS}, i32 %state, i32 %thread) {{",
        "entry:",
        *_constants(),
        *_coordinates("%thread", "s"),
        f"  switch i32 %state, label %S0 [ {cases} ]",
    ]
    inline = "alwaysinline" if states == 1 else "noinline"
    for state in range(states):
        call = _body_call(state, "%thread", "%sx0", "%sy", "%sz", inline)
        lines += [f"S{state}:", f"  %next{state} = {call}", f"  ret i32 %next{state}"]
    return "\n".join([*lines, "}"])


def _stub(name: str, parameters: str) -> str:
    """An entry point that the scheduler does not use for this kernel."""
    return f"define i32 @{name}(ptr %L, ptr %B, {parameters}) {{\n  ret i32 -2\n}}"


def _region(states: int) -> str:
    cases = " ".join(f"i32 {state}, label %S{state}" for state in range(states))
    lines = [
        f"define i32 @kg_region({_RECORDS}, i32 %state, i32 %first, i32 %end) {{",
        "entry:",
        *_constants(),
        f"  switch i32 %state, label %S0 [ {cases} ]",
    ]
    for state in range(states):
        lines += _rows(state, states)
    lowest = ", ".join(f"[ %lo{state}.all, %row{state}.end ]" for state in range(states))
    highest = ", ".join(f"[ %hi{state}.all, %row{state}.end ]" for state in range(states))
    lines += [
        "done:",
        f"  %lo = phi i32 {lowest}",
        f"  %hi = phi i32 {highest}",
        "  %same = icmp eq i32 %lo, %hi",
        "  %answer = select i1 %same, i32 %lo, i32 -2",
        "  ret i32 %answer",
        "}",
    ]
    loops = [f"!{_FIRST_LOOP + state} = distinct !{{!{_FIRST_LOOP + state}, !3}}" for state in range(states)]
    return "\n".join(lines + loops)


def _rows(state: int, states: int) -> list[str]:
    """Threads [first, end) row by row: in a row y and z are fixed and x counts up, which LLVM can vectorise."""
    s = str(state)
    store = [
        f"  %pend{s} = getelementptr i32, ptr %pend, i64 %t{s}.wide",
        f"  store i32 %next{s}, ptr %pend{s}, !llvm.access.group !1",
    ]
    return [
        f"S{s}:",
        f"  br label %row{s}",
        f"row{s}:",
        f"  %at{s} = phi i32 [ %first, %S{s} ], [ %at{s}.next, %row{s}.end ]",
        f"  %lo{s}.before = phi i32 [ 2147483647, %S{s} ], [ %lo{s}.all, %row{s}.end ]",
        f"  %hi{s}.before = phi i32 [ -2147483648, %S{s} ], [ %hi{s}.all, %row{s}.end ]",
        *_coordinates(f"%at{s}", f"c{s}."),
        f"  %rest{s} = sub nuw nsw i32 %nx, %c{s}.x0",
        f"  %left{s} = sub nuw nsw i32 %end, %at{s}",
        f"  %short{s} = icmp ult i32 %rest{s}, %left{s}",
        f"  %count{s} = select i1 %short{s}, i32 %rest{s}, i32 %left{s}",
        f"  br label %thread{s}",
        f"thread{s}:",
        f"  %i{s} = phi i32 [ 0, %row{s} ], [ %i{s}.next, %thread{s} ]",
        f"  %lo{s} = phi i32 [ %lo{s}.before, %row{s} ], [ %lo{s}.all, %thread{s} ]",
        f"  %hi{s} = phi i32 [ %hi{s}.before, %row{s} ], [ %hi{s}.all, %thread{s} ]",
        f"  %x{s} = add nuw nsw i32 %c{s}.x0, %i{s}",
        f"  %t{s} = add nuw nsw i32 %at{s}, %i{s}",
        f"  %t{s}.wide = zext i32 %t{s} to i64",
        f"  %next{s} = {_body_call(state, f'%t{s}', f'%x{s}', f'%c{s}.y', f'%c{s}.z', 'alwaysinline')}",
        *(store if states > 1 else []),
        f"  %lo{s}.all = call i32 @llvm.smin.i32(i32 %lo{s}, i32 %next{s})",
        f"  %hi{s}.all = call i32 @llvm.smax.i32(i32 %hi{s}, i32 %next{s})",
        f"  %i{s}.next = add nuw nsw i32 %i{s}, 1",
        f"  %more{s} = icmp ult i32 %i{s}.next, %count{s}",
        f"  br i1 %more{s}, label %thread{s}, label %row{s}.end, !llvm.loop !{_FIRST_LOOP + state}",
        f"row{s}.end:",
        f"  %at{s}.next = add nuw nsw i32 %at{s}, %count{s}",
        f"  %again{s} = icmp ult i32 %at{s}.next, %end",
        f"  br i1 %again{s}, label %row{s}, label %done",
    ]
