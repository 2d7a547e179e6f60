"""Loads, stores, address conversions, asynchronous copies, fences."""

from __future__ import annotations

from kgrun.runtime.compile.ptx.context import llvm_type
from kgrun.runtime.compile.ptx.emit import Emitter
from kgrun.runtime.compile.ptx.quick import guard
from kgrun.runtime.compile.ptx.quick_values import ATOMIC, BLIND, CAS, LOCAL, LOOKS, PLAIN, SHARED, WRITE, Access
from kgrun.runtime.compile.ptx.rules import Rule, value_type
from kgrun.runtime.compile.ptx.syntax import SIZES, Instruction, parse_address, vector_elements

__all__ = ["ATOMIC", "CAS", "RULES", "WRITE", "address", "copy_async", "pointer", "pointer_to", "space_of"]

ALIGNMENT = 64  # only whether a vector lies where its whole size divides the address
ASYNC = 16  # a flag of the runtime's access check, beside those of quick.py
_SPACES = ("global", "shared", "local", "const", "param")
_ORDERED = frozenset(("volatile", "acquire", "release", "relaxed", "mmio"))


def space_of(i: Instruction) -> str:
    for part in i.parts[1:]:
        if part in _SPACES:
            return part
        if part.startswith("shared__"):
            if part != "shared__cta":
                break
            return "shared"
        if part.startswith("param__"):
            return "param"
    return "generic"


def address(e: Emitter, operand: str, space: str) -> tuple[str, str]:
    """(base pointer, i64 offset) of `[register+n]` or `[symbol+n]` in `space`."""
    base, displacement = parse_address(operand)
    if space == "shared":
        if base in e.function.registers:
            offset = e.read(base, "i64") if e.register_type(base) == "i64" else _extend(e, e.read(base, "i32"))
        elif base:
            offset = e.address_of(base)
        else:
            offset = "0"
        return "%S", _plus(e, offset, displacement)
    value = e.read(base, "i64") if base else "0"
    return "%Z" if not e.bare else "null", _plus(e, value, displacement)


def _extend(e: Emitter, value: str) -> str:
    return value if not value.startswith("%") else e.value(f"sext i32 {value} to i64")


def _plus(e: Emitter, value: str, displacement: int) -> str:
    if not displacement:
        return value
    if not value.startswith("%"):
        return str(int(value) + displacement)
    return e.value(f"add i64 {value}, {displacement}")


def pointer(
    e: Emitter,
    i: Instruction,
    operand: str,
    space: str,
    size: int,
    flags: int,
    stored: tuple[str, str] | None = None,
) -> str:
    """The `ptr` to access; where checks are on, the runtime has approved it or replaced it by a harmless one.

    `stored` is (value, LLVM type) of a store: writing what is there already is no race.
    """
    if space == "param":
        return parameter_pointer(e, operand)
    base, offset = address(e, operand, space)
    return pointer_to(e, i, base, offset, space, size, flags, stored, operand)


def pointer_to(
    e: Emitter,
    i: Instruction,
    base: str,
    offset: str,
    space: str,
    size: int,
    flags: int,
    stored: tuple[str, str] | None = None,
    operand: str = "",
) -> str:
    """`pointer` for an address that is computed already, from `operand` where that is one access's own."""
    place = e.value(f"getelementptr i8, ptr {base}, i64 {offset}") if not e.bare else _bare_pointer(e, offset)
    tested = e.exact or (e.program.quick is not None and e.look != PLAIN)
    if e.bare or not tested or space == "const":
        return place
    if i.parts[0] in ("ld", "st") and _ORDERED.intersection(i.parts):
        # Volatile global accesses are how blocks signal each other; in shared memory they only hide a missing barrier.
        signals = "volatile" not in i.parts or space != "shared"
        flags |= (ATOMIC | BLIND if i.parts[0] == "st" else ATOMIC) if signals else 0
    if e.program.quick is not None:
        e.displacement = parse_address(operand)[1] if operand else 0
        guard(e, Access(space, place, offset, size, flags, e.origin(operand), stored))
        return place
    flags |= {"shared": SHARED, "local": LOCAL}.get(space, 0)
    site = e.program.site(i)
    value = e.convert_bits(*stored, f"i{8 * size}") if stored else "0"
    wide = value if not stored or size == 8 else e.value(f"zext i{8 * size} {value} to i64")
    number = e.value(f"ptrtoint ptr {place} to i64")
    checked = e.runtime(
        "kg_access",
        "i64",
        ("ptr", "%L"),
        ("ptr", "%B"),
        ("i32", "%t"),
        ("i64", number),
        ("i32", str(size)),
        ("i32", str(flags)),
        ("i32", str(site)),
        ("i64", wide),
    )
    return e.value(f"inttoptr i64 {checked} to ptr")


def _bare_pointer(e: Emitter, offset: str) -> str:
    if e.metadata:  # a loop to vectorise: see HIDDEN on %Z
        return e.value(f"getelementptr i8, ptr {e.value('load ptr, ptr @kg_zero, !invariant.load !0')}, i64 {offset}")
    return e.value(f"inttoptr i64 {offset} to ptr")


def parameter_pointer(e: Emitter, operand: str) -> str:
    """A place in a kernel's argument buffer, or in a function's own parameter or call argument."""
    base, displacement = parse_address(operand)
    if base in e.function.variables or any(base == p.name for p in _function_parameters(e)):
        return e.value(f'getelementptr i8, ptr %"V{base}", i64 {displacement}')
    for param in e.function.params if e.function.is_entry else ():
        if param.name == base:
            return e.value(f"getelementptr i8, ptr %P, i64 {param.offset + displacement}")
    if e.function.is_entry and base in e.function.registers:  # the address of a parameter, taken by a `mov`
        return e.value(f"getelementptr i8, ptr %Z, i64 {_plus(e, e.read(base, 'i64'), displacement)}")
    raise e.fail(f"parameter space at {operand}")


def _function_parameters(e: Emitter) -> list:  # type: ignore[type-arg]
    return [] if e.function.is_entry else [*e.function.params, *e.function.results]


def _volatile(e: Emitter, i: Instruction) -> str:
    """In a kernel, volatile accesses need nothing: other threads run only where this one has returned to the scheduler,
    after which all is loaded anew. (LLVM 22 also asserts on vectorising them.) A function may be waiting in a loop."""
    return "volatile " if _ORDERED.intersection(i.parts) and not e.function.is_entry else ""


def load(e: Emitter, i: Instruction) -> None:
    space = space_of(i)
    ptx = value_type(i)
    kind, size = llvm_type(ptx), SIZES[ptx]
    targets = vector_elements(i.operands[0])
    volatile = _volatile(e, i)
    place = pointer(e, i, i.operands[1], space, size * len(targets), 0)
    is_argument = (
        space == "param" and e.function.is_entry and parse_address(i.operands[1])[0] not in e.function.variables
    )
    note = ", !invariant.load !0" if is_argument else e.metadata if space not in ("param",) else ""
    alignment = min(size, 8)
    for number, target in enumerate(targets):
        at = e.value(f"getelementptr i8, ptr {place}, i64 {number * size}") if number else place
        if target == "_":
            continue
        if e.look in LOOKS and space not in ("param", "const"):
            e.write(target, "0.0" if e.register_type(target) in ("float", "double") else "0", e.register_type(target))
            continue
        value = e.value(f"load {volatile}{kind}, ptr {at}, align {alignment}{note}")
        if "acquire" in i.parts:
            e.line("fence seq_cst")
        _write_loaded(e, target, value, kind, ptx)


def _write_loaded(e: Emitter, target: str, value: str, kind: str, ptx: str) -> None:
    wide = e.register_type(target)
    if kind.startswith("i") and wide.startswith("i") and int(wide[1:]) > int(kind[1:]):
        value = e.value(f"{'sext' if ptx.startswith('s') else 'zext'} {kind} {value} to {wide}")
        kind = wide
    e.write(target, value, kind)


def store(e: Emitter, i: Instruction) -> None:
    space = space_of(i)
    ptx = value_type(i)
    kind, size = llvm_type(ptx), SIZES[ptx]
    sources = vector_elements(i.operands[1])
    volatile = _volatile(e, i)
    note = e.metadata if space != "param" else ""
    values = [e.read(source, kind) for source in sources]
    if "release" in i.parts:
        e.line("fence seq_cst")
    if e.program.quick is not None and len(sources) == 1:
        place, checked = pointer(e, i, i.operands[0], space, size, WRITE, (values[0], kind)), False
    else:
        checked = e.exact
        place = ""
        if not checked or len(sources) > 1:
            flags = WRITE | ALIGNMENT if checked else WRITE
            place = pointer(e, i, i.operands[0], space, size * len(sources), flags)
    if e.look in LOOKS and space != "param":
        return
    for number, value in enumerate(values):
        if checked:  # element by element, to compare each with what is there
            base, displacement = parse_address(i.operands[0])
            operand = f"[{base}+{displacement + number * size}]" if base else f"[{displacement + number * size}]"
            at = pointer(e, i, operand, space, size, WRITE, (value, kind) if size <= 8 else None)
        else:
            at = e.value(f"getelementptr i8, ptr {place}, i64 {number * size}") if number else place
        e.line(f"store {volatile}{kind} {value}, ptr {at}, align {min(size, 8)}{note}")


def convert_address(e: Emitter, i: Instruction) -> None:
    """cvta: only shared addresses differ from generic ones, by the block's base."""
    kind = llvm_type(value_type(i))
    space = next((part for part in i.parts if part.startswith(_SPACES)), "")
    source = i.operands[1]
    value = e.read(source, kind)
    if space.startswith("shared"):
        base = e.value("ptrtoint ptr %S to i64")
        value = e.convert_bits(value, kind, "i64")
        value = e.value(f"{'sub' if 'to' in i.parts else 'add'} i64 {value}, {base}")
        kind = "i64"
    e.write(i.operands[0], value, kind)


def is_space(e: Emitter, i: Instruction) -> None:
    """isspacep: shared and local memory are recognised by their ranges, all else counts as global."""
    value = e.read(i.operands[1], "i64")
    base = e.value("ptrtoint ptr %S to i64")
    inside = _within(e, value, base, e.launch_field("shared_bytes"))
    space = i.parts[1]
    if space == "global":
        inside = e.value(f"xor i1 {inside}, true")
    elif space == "local":
        start = e.block_pointer_value("local")
        size = e.launch_field("local_bytes")
        threads = e.value(f"zext i32 {e.launch_field('threads')} to i64")
        inside = _within(e, value, start, e.value(f"mul i64 {size}, {threads}"))
    elif not space.startswith("shared"):
        inside = "false"
    e.write(i.operands[0], inside, "i1")


def _within(e: Emitter, value: str, start: str, size: str) -> str:
    return e.value(f"icmp ult i64 {e.value(f'sub i64 {value}, {start}')}, {size}")


def fence(e: Emitter, i: Instruction) -> None:
    if e.exact:
        e.runtime("kg_fence", "void", ("ptr", "%L"), ("ptr", "%B"), ("i32", "%t"))
    e.line("fence seq_cst")


def nothing(e: Emitter, i: Instruction) -> None:
    """Hints and pieces of the asynchronous machinery that has finished already."""


def copy_async(e: Emitter, i: Instruction) -> None:
    """cp.async copies at once: the earliest moment at which the hardware might."""
    if "bulk" in i.parts:
        raise e.fail(i.opcode)
    if i.parts[2] in ("commit_group", "wait_group", "wait_all"):
        return
    size = int(i.operands[2], 0)
    available = e.read(i.operands[3], "i32") if len(i.operands) > 3 and not i.operands[3].startswith("{") else str(size)
    target = pointer(e, i, i.operands[0], "shared", size, WRITE | ASYNC)
    full = not available.startswith("%")
    if full and int(available) == size:
        source = pointer(e, i, i.operands[1], "global", size, 0)
        for place in range(0, size, 4):
            at = e.value(f"getelementptr i8, ptr {source}, i64 {place}")
            value = e.value(f"load i32, ptr {at}, align 4{e.metadata}")
            e.line(
                f"store i32 {value}, ptr {e.value(f'getelementptr i8, ptr {target}, i64 {place}')}, align 4{e.metadata}"
            )
        return
    base, offset = address(e, i.operands[1], "global")
    raw = e.value(f"getelementptr i8, ptr {base}, i64 {offset}")
    number = e.value(f"ptrtoint ptr {raw} to i64")
    site = str(e.program.site(i)) if e.exact else "0"
    numbers = [("i32", str(size)), ("i32", available), ("i32", site)]
    into = e.value(f"ptrtoint ptr {target} to i64")
    threads = [("ptr", "%L"), ("ptr", "%B"), ("i32", "%t")]
    if e.program.quick is not None and e.look != PLAIN:
        e.runtime("kg_quick_copy", "void", *threads, ("i64", into), ("i64", number), *numbers[:2])
        return
    e.runtime("kg_copy_async", "void", *threads, ("i64", into), ("i64", number), *numbers)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("ld", "ldu"), load),
    "st": store,
    "cvta": convert_address,
    "isspacep": is_space,
    **dict.fromkeys(("membar", "fence"), fence),
    **dict.fromkeys(("prefetch", "prefetchu", "discard", "applypriority", "pmevent", "brkpt"), nothing),
    **dict.fromkeys(("griddepcontrol", "setmaxnreg", "createpolicy"), nothing),
}
