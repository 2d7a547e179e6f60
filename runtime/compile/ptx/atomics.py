"""atom and red on shared and global memory, all types."""

from __future__ import annotations

from kgrun.runtime.compile.ptx import halves
from kgrun.runtime.compile.ptx.context import llvm_type
from kgrun.runtime.compile.ptx.emit import Emitter
from kgrun.runtime.compile.ptx.memory import ATOMIC, CAS, WRITE, pointer, space_of
from kgrun.runtime.compile.ptx.quick_values import LOOKS
from kgrun.runtime.compile.ptx.rules import Rule, class_of, value_type
from kgrun.runtime.compile.ptx.syntax import SIZES, Instruction, vector_elements

_PLAIN = {"exch": "xchg", "add": "add", "and": "and", "or": "or", "xor": "xor", "inc": "uinc_wrap", "dec": "udec_wrap"}
_OPERATIONS = (*_PLAIN, "min", "max", "cas")


def atomic(e: Emitter, i: Instruction) -> None:
    """`atom d, [a], b {, c}` gives the old value; `red [a], b` does not."""
    returns = i.parts[0] == "atom"
    target = i.operands[0] if returns else "_"
    place_operand, *sources = i.operands[1:] if returns else i.operands
    ptx = value_type(i)
    kind = llvm_type(ptx)
    operation = next(part for part in i.parts if part in _OPERATIONS)
    elements = vector_elements(sources[0])
    flags = WRITE | ATOMIC | (CAS if operation == "cas" else 0)
    place = pointer(e, i, place_operand, space_of(i), SIZES[ptx] * len(elements), flags)
    if e.look in LOOKS:
        for name in vector_elements(target):
            if name != "_":
                e.write(name, "0.0" if e.register_type(name) in ("float", "double") else "0", e.register_type(name))
        return
    if len(elements) > 1:
        for number, element in enumerate(elements):
            at = e.value(f"getelementptr i8, ptr {place}, i64 {number * SIZES[ptx]}")
            old = _one(e, i, at, ptx, kind, operation, [element])
            e.write(vector_elements(target)[number] if returns else "_", old, _held(ptx, kind))
        return
    e.write(target, _one(e, i, place, ptx, kind, operation, sources), _held(ptx, kind))


def _held(ptx: str, kind: str) -> str:
    return kind if class_of(ptx) != "half" else f"i{8 * SIZES[ptx]}"


def _one(e: Emitter, i: Instruction, place: str, ptx: str, kind: str, operation: str, sources: list[str]) -> str:
    if kind == "i128":
        raise e.fail(i.opcode)
    if operation == "cas":
        whole = f"i{8 * SIZES[ptx]}"
        expected, desired = e.read(sources[0], whole), e.read(sources[1], whole)
        pair = e.value(f"cmpxchg ptr {place}, {whole} {expected}, {whole} {desired} seq_cst seq_cst")
        return e.value(f"extractvalue {{ {whole}, i1 }} {pair}, 0")
    if class_of(ptx) == "half":
        return _half(e, i, place, ptx, operation, sources[0])
    if kind in ("float", "double"):
        value = e.read(sources[0], kind)
        if operation not in ("add", "min", "max", "exch"):
            raise e.fail(i.opcode)
        name = {"add": "fadd", "min": "fmin", "max": "fmax", "exch": "xchg"}[operation]
        return e.value(f"atomicrmw {name} ptr {place}, {kind} {value} seq_cst")
    value = e.read(sources[0], kind)
    name = _PLAIN.get(operation) or f"{'' if ptx.startswith('s') else 'u'}{operation}"
    return e.value(f"atomicrmw {name} ptr {place}, {kind} {value} seq_cst")


def _half(e: Emitter, i: Instruction, place: str, ptx: str, operation: str, source: str) -> str:
    """f16 and bf16, scalar and packed: a compare-and-swap loop around the operation on each lane."""
    if operation not in ("add", "min", "max"):
        raise e.fail(i.opcode)
    whole = f"i{8 * SIZES[ptx]}"
    operand = e.read(source, whole)
    loop, done = e.fresh_label("cas"), e.fresh_label("cas_done")
    name = e.fresh_label("%old")
    e.alloca(name, whole)
    first = e.value(f"load atomic {whole}, ptr {place} monotonic, align {SIZES[ptx]}")
    e.line(f"store {whole} {first}, ptr {name}")
    e.jump(loop)
    e.label(loop)
    old = e.value(f"load {whole}, ptr {name}")
    new = _combine(e, old, operand, ptx, operation, whole)
    pair = e.value(f"cmpxchg ptr {place}, {whole} {old}, {whole} {new} seq_cst seq_cst")
    e.line(f"store {whole} {e.value(f'extractvalue {{ {whole}, i1 }} {pair}, 0')}, ptr {name}")
    e.branch(e.value(f"extractvalue {{ {whole}, i1 }} {pair}, 1"), done, loop)
    e.label(done)
    return e.value(f"load {whole}, ptr {name}")


def _combine(e: Emitter, a: str, b: str, ptx: str, operation: str, whole: str) -> str:
    results = []
    for shift in range(0, 8 * SIZES[ptx], 16):
        lanes = []
        for word in (a, b):
            part = e.value(f"lshr {whole} {word}, {shift}") if shift else word
            bits = e.value(f"trunc {whole} {part} to i16") if whole != "i16" else part
            lanes.append(halves.to_float(e, bits, ptx))
        if operation == "add":
            value = e.value(f"fadd float {lanes[0]}, {lanes[1]}")
        else:
            value = e.intrinsic(f"{operation}num.f32", "float", ("float", lanes[0]), ("float", lanes[1]))
        results.append(halves.from_float(e, value, ptx))
    return halves.join(e, results)[0]


RULES: dict[str, Rule] = {"atom": atomic, "red": atomic}
