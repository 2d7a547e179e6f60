"""SIMD within a word: four bytes or two halves side by side, as `__vabsdiffu4` and its siblings are in PTX."""

from __future__ import annotations

from kgrun.runtime.compile.ptx.emit import Emitter
from kgrun.runtime.compile.ptx.rules import Rule
from kgrun.runtime.compile.ptx.syntax import Instruction

_COMPARED = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


def simd(e: Emitter, i: Instruction) -> None:
    """`vop.dtype.atype.btype{.sat} d, a, b, c`: part by part; with `.add` the parts' exact results are added to c.

    Operands with a mask or a selection of parts (`d.b10`) are no registers, and fail as such.
    """
    operation, count = i.parts[0][1:-1], int(i.parts[0][-1])
    compared = operation == "set"
    types = ("u32", *i.parts[1:3]) if compared else i.parts[1:4]
    wide = f"<{count} x i32>"
    a, b = (_parts(e, operand, count, ptx) for operand, ptx in zip(i.operands[1:3], types[1:], strict=True))
    value = _compare(e, i, wide, a, b) if compared else _arithmetic(e, operation, wide, a, b)
    if "add" in i.parts[3:]:
        total = e.intrinsic(f"vector.reduce.add.v{count}i32", "i32", (wide, value))
        e.write(i.operands[0], e.value(f"add i32 {total}, {e.read(i.operands[3], 'i32')}"), "i32")
        return
    if "sat" in i.parts:
        bits = 32 // count
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if types[0] == "s32" else (0, (1 << bits) - 1)
        value = _of_both(e, "smax", wide, value, _splat(least, count))
        value = _of_both(e, "smin", wide, value, _splat(most, count))
    narrow = f"<{count} x i{32 // count}>"
    e.write(i.operands[0], e.value(f"bitcast {narrow} {e.value(f'trunc {wide} {value} to {narrow}')} to i32"), "i32")


def _parts(e: Emitter, operand: str, count: int, ptx: str) -> str:
    narrow = f"<{count} x i{32 // count}>"
    parts = e.value(f"bitcast i32 {e.read(operand, 'i32')} to {narrow}")
    return e.value(f"{'sext' if ptx == 's32' else 'zext'} {narrow} {parts} to <{count} x i32>")


def _splat(number: int, count: int) -> str:
    return f"<{', '.join([f'i32 {number}'] * count)}>"


def _of_both(e: Emitter, name: str, wide: str, a: str, b: str) -> str:
    return e.intrinsic(f"{name}.v{wide[1]}i32", wide, (wide, a), (wide, b))


def _arithmetic(e: Emitter, operation: str, wide: str, a: str, b: str) -> str:
    if operation in ("min", "max"):
        return _of_both(e, f"s{operation}", wide, a, b)
    if operation == "absdiff":
        larger, smaller = _of_both(e, "smax", wide, a, b), _of_both(e, "smin", wide, a, b)
        return e.value(f"sub {wide} {larger}, {smaller}")
    return e.value(f"{operation} {wide} {a}, {b}")


def _compare(e: Emitter, i: Instruction, wide: str, a: str, b: str) -> str:
    word = next(part for part in i.parts if part in _COMPARED)
    condition = word if word in ("eq", "ne") else f"s{word}"
    return e.value(f"zext <{wide[1]} x i1> {e.value(f'icmp {condition} {wide} {a}, {b}')} to {wide}")


RULES: dict[str, Rule] = dict.fromkeys(
    (f"v{name}{count}" for name in ("add", "sub", "min", "max", "absdiff", "set") for count in (2, 4)), simd
)
