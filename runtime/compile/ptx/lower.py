"""A kernel's whole LLVM module: its body, the loops around it, the functions it calls; and the shared runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from kgrun.runtime.compile.ptx import control, region
from kgrun.runtime.compile.ptx.context import HIDDEN_PARAMETERS, PARALLEL, SHARED_CODE, Program
from kgrun.runtime.compile.ptx.flow import build_flow
from kgrun.runtime.compile.ptx.inline import inline_waiting
from kgrun.runtime.compile.ptx.inspection import Inspection
from kgrun.runtime.compile.ptx.layout import BLOCK, SlotRecord, offset_of
from kgrun.runtime.compile.ptx.lowering import Lowering
from kgrun.runtime.compile.ptx.parse import Module
from kgrun.runtime.compile.ptx.quick_values import PLAIN, RUN, Quick
from kgrun.runtime.compile.ptx.survey import inspections_of, plain_barriers, quick_settings
from kgrun.runtime.compile.ptx.syntax import Function, Location, align_up, args_size

Inspections = Sequence[Inspection | None]
_LARGE = 800_000  # characters of LLVM text from which on loops over threads would take too long to compile


@dataclass
class Lowered:
    """A kernel's LLVM module and what a launch must know of it."""

    text: str
    kinds: list[int]
    places: list[Location]
    sites: list[tuple[Location, str]]
    frame_bytes: int
    local_bytes: int
    waits: bool
    spins: bool
    looped: bool
    slots: list[str]
    quick: Quick | None
    whole: bool  # whether the quick pass can look at all of it before any of it runs


def lower_kernel(
    module: Module,
    entry: str,
    *,
    runtime: Module,
    addresses: dict[str, int],
    shared: dict[str, int],
    checks: frozenset[str],
    looped: bool,
    sizes: dict[str, int] | None = None,
) -> Lowered:
    """The LLVM module of one kernel; `looped` asks for loops over threads that LLVM may vectorise.

    With `sizes`, bytes of the shared variables, it is the module of the quick pass of a checked launch.

    Raises `Unsupported` for an operation that does not run on the CPU.
    """
    program = Program(module, checks, addresses, shared, runtime)
    function = inline_waiting(module, entry)
    flow = build_flow(function)
    if sizes is not None:
        program.quick = quick_settings(module, function, flow, checks, shared, sizes, addresses)
    lowering = Lowering(program, function, False, flow)
    inspections = _inspections(lowering, looped)
    local_bytes, parts = _bodies(lowering, function, inspections, looped)
    looped = looped and sum(len(part) for part in parts) < _LARGE
    if not looped:
        inspections = [None] * len(inspections)
    parts += _looks(lowering, function, inspections, looped)
    parts.append(region.entry_points(len(inspections), looped, args_size(function.params), inspections))
    if looped:
        program.declare("llvm.smin.i32", "i32 (i32, i32)")
        program.declare("llvm.smax.i32", "i32 (i32, i32)")
    parts.append(f"!13 = !{{i64 {ctypes.sizeof(SlotRecord) * max(1, len(program.slots))}}}\n!14 = !{{i64 8}}")
    parts.append(_rest(program))
    return Lowered(
        region.with_hoisted("\n".join(parts), program.hoisted),
        lowering.kinds,
        lowering.places,
        program.sites,
        lowering.frame_bytes,
        local_bytes,
        bool(lowering.points),
        bool(lowering.spins),
        looped,
        list(program.slots),
        program.quick,
        len(inspections) == 1 and any(inspections),
    )


def _inspections(lowering: Lowering, looped: bool) -> Inspections:
    """What a quick pass looks at in each of a kernel's states; None where it looks at nothing."""
    quick = lowering.program.quick
    return inspections_of(lowering, quick) if quick and looped else [None] * len(lowering.kinds)


def _bodies(lowering: Lowering, function: Function, inspections: Inspections, looped: bool) -> tuple[int, list[str]]:
    """(bytes of local memory, the kernel from each of its states on), as a launch runs it."""
    local_bytes, parts = 0, []
    own = RUN if lowering.program.quick else PLAIN
    for state, inspection in enumerate(inspections):
        lowering.inspection = inspection
        lowering.lean = inspection is not None
        local_bytes, part = _body(lowering, function, state, f"kg_body{state}", own, looped)
        parts.append(part)
    return local_bytes, parts


def _looks(lowering: Lowering, function: Function, inspections: Inspections, looped: bool) -> list[str]:
    """The same once more for each way in which a quick pass looks at a state."""
    parts = []
    for state, inspection in enumerate(inspections):
        lowering.inspection = inspection
        looks = (PLAIN, *inspection.looks) if inspection else ()
        parts += [_body(lowering, function, state, f"kg_{look}{state}", look, looped)[1] for look in looks]
    if any(inspections):
        lowering.program.declare("kg_suspect", "void (i64)")
        lowering.program.declare("kg_look_complete", "void (i64, i64)")
    return parts


def _body(lowering: Lowering, function: Function, state: int, name: str, look: str, looped: bool) -> tuple[int, str]:
    """(bytes of local memory, text) of the function `name`: the kernel from `state` on, written in the way `look`."""
    lowering.restart()
    lowering.look = look
    lowering.fresh = state == 0 or lowering.points[state - 1] in plain_barriers(lowering.flow)
    lowering.metadata = ", !llvm.access.group !1" if looped and look != RUN else ""
    local_bytes = _place_local(lowering, function)
    _call_variables(lowering, function)
    lowering.walk(state)
    return local_bytes, _body_text(lowering, name)


def lower_runtime(runtime: Module, names: Sequence[str]) -> str:
    """The LLVM module of a part of the code that kernels share."""
    program = Program(runtime, frozenset(), {}, {}, runtime)
    for name in names:
        program.need(name, True)
    return "@kg_zero = global ptr null\n" + _rest(program)


def _rest(program: Program) -> str:
    """Every function that is needed so far or by another such, the declarations, the metadata."""
    parts = []
    done: set[tuple[str, bool]] = set()
    while pending := [item for item in program.needed if item not in done]:
        for name, of_runtime in pending:
            done.add((name, of_runtime))
            parts.append(lower_function(program, name, of_runtime))
    parts += [_declaration(name, signature) for name, signature in sorted(program.intrinsics.items())]
    return "\n".join([*parts, region.METADATA])


def lower_function(program: Program, name: str, of_runtime: bool) -> str:
    """A `.func` as an LLVM function; the runtime's own ones are `bare`."""
    module = program.runtime if of_runtime else program.module
    assert module is not None
    function = module.function(name)
    lowering = Lowering(program, function, of_runtime, build_flow(function))
    if of_runtime and name in PARALLEL:
        lowering.metadata = ", !llvm.access.group !1"
    _call_variables(lowering, function)
    parameters = [] if of_runtime else [HIDDEN_PARAMETERS]
    if function.results and function.results[0].is_array:
        parameters.append(f'ptr %"V{function.results[0].name}"')
    elif function.results:
        result = function.results[0]
        lowering.alloca(f'%"V{result.name}"', f"[{max(result.size, 8)} x i8]", 16)
    for param in function.params:
        kind = control.parameter_type(param)
        if kind == "ptr":
            parameters.append(f'ptr %"V{param.name}"')
        else:
            parameters.append(f'{kind} %"A{param.name}"')
            lowering.alloca(f'%"V{param.name}"', "[8 x i8]", 8)
            lowering.entry.append(f'  store {kind} %"A{param.name}", ptr %"V{param.name}"')
    lowering.walk()
    linkage = "" if name in SHARED_CODE else "internal "
    inline = " alwaysinline" if of_runtime and len(function.body) < 90 and name not in SHARED_CODE | PARALLEL else ""
    head = f'define {linkage}{control.result_type(function.results)} @"{name}"({", ".join(parameters)}){inline} {{'
    return "\n".join([head, "entry:", *lowering.entry, *lowering.lines, "}"])


def _call_variables(lowering: Lowering, function: Function) -> None:
    for name, variable in function.variables.items():
        if variable.space == "param" or (variable.space == "local" and not function.is_entry):
            lowering.alloca(f'%"V{name}"', f"[{max(variable.size, 1)} x i8]", max(variable.align, 8))


def _place_local(lowering: Lowering, function: Function) -> int:
    """A kernel's `.local` variables get a place of their own for each thread; returns the bytes per thread."""
    offset = 0
    for name, variable in function.variables.items():
        if variable.space == "local":
            offset = align_up(offset, max(variable.align, 8))
            lowering.entry.append(f'  %"V{name}" = getelementptr i8, ptr %local, i64 {offset}')
            offset += variable.size
    return align_up(offset, 16)


def _body_text(lowering: Lowering, name: str) -> str:
    """The kernel from one state on: runs one thread to its next suspend point and answers that state."""
    prologue = [
        f"  %M.at = getelementptr i8, ptr %B, i64 {offset_of(BLOCK, 'mail')}",
        "  %M = load ptr, ptr %M.at, !invariant.load !0",
        f"  %F.at = getelementptr i8, ptr %B, i64 {offset_of(BLOCK, 'frames')}",
        "  %F = load ptr, ptr %F.at, !invariant.load !0",
        f"  %local.at = getelementptr i8, ptr %B, i64 {offset_of(BLOCK, 'local')}",
        "  %local.all = load ptr, ptr %local.at, !invariant.load !0",
        "  %t64 = zext i32 %t to i64",
        "  %local.start = mul i64 %t64, %LB",
        "  %local = getelementptr i8, ptr %local.all, i64 %local.start",
    ]
    head = f"define internal i32 @{name}({HIDDEN_PARAMETERS}, ptr %P, i64 %T, i64 %LB{region.HOISTED}) {{"
    return "\n".join([head, "entry:", *prologue, *lowering.entry, *lowering.lines, "}"])


def _declaration(name: str, signature: str) -> str:
    result, _, arguments = signature.partition(" (")
    return f"declare {result} @{name}({arguments}"
