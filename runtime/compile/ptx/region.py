"""The loops around a kernel's body: rows of threads from one state to the next, and one thread alone."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from kgrun.runtime.compile.ptx.context import HIDDEN, chain
from kgrun.runtime.compile.ptx.inspection import Inspection
from kgrun.runtime.compile.ptx.layout import BLOCK, LAUNCH, BlockRecord, LaunchRecord, offset_of
from kgrun.runtime.compile.ptx.quick_values import CONFIRM

# Accesses of different threads between two suspend points have no order (what has one is a race), so LLVM may take
# the iterations over threads as parallel: group !1 says it of the accesses, the loop's metadata of the loop.
METADATA = """!0 = !{}
!1 = distinct !{}
!2 = distinct !{!2, !3}
!3 = !{!"llvm.loop.parallel_accesses", !1}
!9 = !{i32 1, i32 1025}
!10 = !{i32 0, i32 2147483647}
!11 = !{i64 16}
!20 = !{!"branch_weights", i32 1, i32 1000}
!21 = !{!"branch_weights", i32 1000, i32 1}
!22 = !{!"llvm.loop.vectorize.predicate.enable", i1 true}
!23 = !{!"llvm.loop.interleave.count", i32 1}
!24 = !{!"llvm.loop.unroll.disable"}"""
_RECORDS = (
    f"ptr align 8 dereferenceable({ctypes.sizeof(LaunchRecord)}) %L, "
    f"ptr align 8 dereferenceable({ctypes.sizeof(BlockRecord)}) %B"
)
# Where the values stand that only all bodies together say: parameters and arguments, and the lines that compute them.
HOISTED, HOISTED_LINES = "@HOISTED@", "@HOISTED_LINES@"
PARALLEL_LOOP = ", !llvm.loop !2"
_FIRST_LOOP = 100
Fields = tuple[tuple[str, str], ...]


def entry_points(states: int, looped: bool, args_size: int, inspections: Sequence[Inspection | None] = ()) -> str:
    """`kg_step(L, B, state, thread)` and, where `looped`, `kg_region(L, B, state, first, end)`.

    The region answers the state that all its threads reached, -1 where all ended, -2 where they differ; each
    thread's own state is left in `pend` as well. `inspections` are of the states that are looked at before they run.
    """
    arguments = f"\n!12 = !{{i64 {max(args_size, 8)}}}\n"
    rows = _region(states, inspections) if looped else _stub("kg_region", "i32 %state, i32 %first, i32 %end")
    if looped and states == 1:  # no thread ever waits, so none runs alone
        return _stub("kg_step", "i32 %state, i32 %thread") + arguments + rows
    return _step(states) + arguments + rows


def with_hoisted(text: str, hoisted: dict[str, tuple[str, tuple[str, ...]]]) -> str:
    """`text` with the hoisted values in their places."""
    lines = "\n".join(line for name, (_, texts) in hoisted.items() for line in chain(name, texts))
    names = "".join(f", {kind} {name}" for name, (kind, _) in hoisted.items())
    return text.replace(HOISTED_LINES, lines).replace(HOISTED, names)


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
    return [*lines, HOISTED_LINES]


def _body_call(body: str, thread: str, x: str, y: str, z: str, inline: str) -> str:
    own = {"%t": thread, "%tx": x, "%ty": y, "%tz": z}
    hidden = ", ".join(f"{kind} {own.get(name, name)}" for kind, name in HIDDEN)
    return f"call i32 @{body}({hidden}, ptr %P, i64 %T, i64 %LB{HOISTED}) {inline}"


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
        call = _body_call(f"kg_body{state}", "%thread", "%sx0", "%sy", "%sz", inline)
        lines += [f"S{state}:", f"  %next{state} = {call}", f"  ret i32 %next{state}"]
    return "\n".join([*lines, "}"])


def _stub(name: str, parameters: str) -> str:
    """An entry point that the scheduler does not use for this kernel."""
    return f"define i32 @{name}(ptr %L, ptr %B, {parameters}) {{\n  ret i32 -2\n}}"


def _region(states: int, inspections: Sequence[Inspection | None]) -> str:
    cases = " ".join(f"i32 {state}, label %S{state}" for state in range(states))
    lines = [
        f"define i32 @kg_region({_RECORDS}, i32 %state, i32 %first, i32 %end) {{",
        "entry:",
        *_constants(),
        f"  switch i32 %state, label %S0 [ {cases} ]",
    ]
    loops: list[str] = []
    ends: list[tuple[str, str]] = []  # (tag of the values, the block that they come from)
    for state in range(states):
        inspection = inspections[state] if inspections else None
        lines.append(f"S{state}:")
        if inspection is not None:
            lines += look_first(state, inspection, loops)
            lines += rows(f"P{state}", f"kg_plain{state}", loops, states > 1)
            lines += after_look(state, inspection)
            ends.append((f"P{state}", f"P{state}.over"))
            lines += [f"D{state}:", f"  br i1 %J{state}.set, label %unsure, label %T{state}", f"T{state}:"]
        inline = "alwaysinline" if inspection is None else "noinline"  # where it is the exception, once is enough
        lines += rows(f"R{state}", f"kg_body{state}", loops, states > 1, inline=inline)
        lines.append("  br label %done")
        ends.append((f"R{state}", f"R{state}.out"))
    lowest = ", ".join(f"[ %{tag}.lo.all, %{block} ]" for tag, block in ends)
    highest = ", ".join(f"[ %{tag}.hi.all, %{block} ]" for tag, block in ends)
    lines += [
        "done:",
        f"  %lo = phi i32 {lowest}",
        f"  %hi = phi i32 {highest}",
        "  %same = icmp eq i32 %lo, %hi",
        "  %answer = select i1 %same, i32 %lo, i32 -2",
        "  ret i32 %answer",
    ]
    if any(inspections):
        lines += [
            "suspect:",
            "  %L.number = ptrtoint ptr %L to i64",
            "  call void @kg_suspect(i64 %L.number)",
            "  ret i32 -1",
        ]
        lines += ["looked:", "  ret i32 -1", "unsure:"]
        for name in ("unsure", "stop"):
            lines.append(f"  %{name}.at = getelementptr i8, ptr %L, i64 {offset_of(LAUNCH, name)}")
            lines.append(f"  store volatile i32 1, ptr %{name}.at, align 4")
        lines.append("  ret i32 -1")
    return "\n".join([*lines, "}", *loops])


def rows(
    tag: str, body: str, loops: list[str], keeps: bool, *, found: bool = False, inline: str = "alwaysinline"
) -> list[str]:
    """Threads [first, end) row by row: in a row y and z are fixed and x counts up, which LLVM can vectorise.

    Leaves %TAG.lo.all and %TAG.hi.all, least and greatest answer of `body`, or with `found` %TAG.found.all, all its
    bits; goes on in block TAG.out. `keeps` stores the answers in `pend`. The loop's metadata goes to `loops`.
    """
    if found:
        start, merge = [("found", "0")], [f"  %{tag}.found.all = or i32 %{tag}.found, %{tag}.next"]
    else:
        start = [("lo", "2147483647"), ("hi", "-2147483648")]
        merge = [
            f"  %{tag}.lo.all = call i32 @llvm.smin.i32(i32 %{tag}.lo, i32 %{tag}.next)",
            f"  %{tag}.hi.all = call i32 @llvm.smax.i32(i32 %{tag}.hi, i32 %{tag}.next)",
        ]
    store = [
        f"  %{tag}.pend = getelementptr i32, ptr %pend, i64 %{tag}.t.wide",
        f"  store i32 %{tag}.next, ptr %{tag}.pend, !llvm.access.group !1",
    ]
    number = _FIRST_LOOP + len(loops)
    hints = ", !22, !23, !24" if found else ""  # a look is cheap to run: one loop of it, to save the compiler's time
    loops.append(f"!{number} = distinct !{{!{number}, !3{hints}}}")
    c = f"{tag}.c"
    return [
        f"  br label %{tag}.in",
        f"{tag}.in:",
        f"  br label %{tag}.row",
        f"{tag}.row:",
        f"  %{tag}.at = phi i32 [ %first, %{tag}.in ], [ %{tag}.at.next, %{tag}.end ]",
        *(f"  %{tag}.{n}.before = phi i32 [ {v}, %{tag}.in ], [ %{tag}.{n}.all, %{tag}.end ]" for n, v in start),
        *_coordinates(f"%{tag}.at", c),
        f"  %{tag}.rest = sub nuw nsw i32 %nx, %{c}x0",
        f"  %{tag}.left = sub nuw nsw i32 %end, %{tag}.at",
        f"  %{tag}.short = icmp ult i32 %{tag}.rest, %{tag}.left",
        f"  %{tag}.count = select i1 %{tag}.short, i32 %{tag}.rest, i32 %{tag}.left",
        f"  br label %{tag}.thread",
        f"{tag}.thread:",
        f"  %{tag}.i = phi i32 [ 0, %{tag}.row ], [ %{tag}.i.next, %{tag}.thread ]",
        *(
            f"  %{tag}.{n} = phi i32 [ %{tag}.{n}.before, %{tag}.row ], [ %{tag}.{n}.all, %{tag}.thread ]"
            for n, _ in start
        ),
        f"  %{tag}.x = add nuw nsw i32 %{c}x0, %{tag}.i",
        f"  %{tag}.t = add nuw nsw i32 %{tag}.at, %{tag}.i",
        f"  %{tag}.t.wide = zext i32 %{tag}.t to i64",
        f"  %{tag}.next = {_body_call(body, f'%{tag}.t', f'%{tag}.x', f'%{c}y', f'%{c}z', inline)}",
        *(store if keeps else []),
        *merge,
        f"  %{tag}.i.next = add nuw nsw i32 %{tag}.i, 1",
        f"  %{tag}.more = icmp ult i32 %{tag}.i.next, %{tag}.count",
        f"  br i1 %{tag}.more, label %{tag}.thread, label %{tag}.end, !llvm.loop !{number}",
        f"{tag}.end:",
        f"  %{tag}.at.next = add nuw nsw i32 %{tag}.at, %{tag}.count",
        f"  %{tag}.again = icmp ult i32 %{tag}.at.next, %end",
        f"  br i1 %{tag}.again, label %{tag}.row, label %{tag}.out",
        f"{tag}.out:",
    ]


def look_first(state: int, inspection: Inspection, loops: list[str]) -> list[str]:
    """All the looks at a state before it runs; its tested body runs, from block D on, where they cannot tell."""
    after = f"N{state}" if inspection.unread else f"K{state}.0"
    lines = [
        *_flag(f"J{state}", "only", "%L", LAUNCH),
        f"  %J{state}.run = icmp eq i32 %J{state}.value, 2",
        f"  br i1 %J{state}.run, label %K{state}.end, label %A{state}",
        f"A{state}:",
        *_flag(f"A{state}", "aliased"),
        f"  br i1 %A{state}.set, label %D{state}, label %{after}",
    ]
    if inspection.assumes_complete:
        lines += [
            f"K{state}.0:",
            *_flag(f"O{state}", "complete"),
            f"  br i1 %O{state}.set, label %K{state}.first, label %D{state}",
        ]
    if inspection.unread:
        lines += [
            f"N{state}:",
            *_flag(f"N{state}", "noted"),
            f"  br i1 %N{state}.set, label %D{state}, label %K{state}.0",
        ]
    for place, look in enumerate(inspection.looks):
        tag, following = f"K{state}.{place}", f"K{state}.{place + 1}"
        condition = inspection.condition(look)
        lines.append(f"K{state}.first:" if place == 0 and inspection.assumes_complete else f"{tag}:")
        if condition:
            wanted = f"{tag}.go, label %{following}" if condition == "noted" else f"{following}, label %{tag}.go"
            lines += [*_flag(tag, condition), f"  br i1 %{tag}.set, label %{wanted}", f"{tag}.go:"]
        lines += [
            *rows(f"{tag}L", f"kg_{look}{state}", loops, False, found=True),
            f"  %{tag}.bad = trunc i32 %{tag}L.found.all to i1",
        ]
        if look == CONFIRM:
            lines += [
                f"  br i1 %{tag}.bad, label %suspect, label %{tag}.good, !prof !20",
                f"{tag}.good:",
                f"  %{tag}.open = icmp uge i32 %{tag}L.found.all, 2",
                f"  br i1 %{tag}.open, label %D{state}, label %{following}",
            ]
        else:
            lines.append(f"  br i1 %{tag}.bad, label %suspect, label %{following}, !prof !20")
    return [
        *lines,
        f"K{state}.{len(inspection.looks)}:",
        f"  br i1 %J{state}.set, label %looked, label %K{state}.end",
        f"K{state}.end:",
    ]


def after_look(state: int, inspection: Inspection) -> list[str]:
    """After a state that was looked at: whether it wrote the last of shared memory."""
    lines: list[str] = []
    if inspection.fills_shared:
        lines = [
            *_flag(f"C{state}", "complete"),
            f"  br i1 %C{state}.set, label %P{state}.over, label %C{state}.look",
            f"C{state}.look:",
            f"  %C{state}.L = ptrtoint ptr %L to i64",
            f"  %C{state}.B = ptrtoint ptr %B to i64",
            f"  call void @kg_look_complete(i64 %C{state}.L, i64 %C{state}.B)",
        ]
    return [*lines, f"  br label %P{state}.over", f"P{state}.over:", "  br label %done"]


def _flag(tag: str, name: str, record: str = "%B", fields: Fields = BLOCK) -> list[str]:
    return [
        f"  %{tag}.at = getelementptr i8, ptr {record}, i64 {offset_of(fields, name)}",
        f"  %{tag}.value = load i32, ptr %{tag}.at, align 4",
        f"  %{tag}.set = icmp ne i32 %{tag}.value, 0",
    ]
