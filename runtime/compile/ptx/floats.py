"""f32 and f64 arithmetic, comparisons, and the approximate functions."""

from __future__ import annotations

from kgrun.runtime.compile.ptx.context import llvm_type
from kgrun.runtime.compile.ptx.emit import Emitter
from kgrun.runtime.compile.ptx.rules import Rule, value_type
from kgrun.runtime.compile.ptx.syntax import Instruction

_DIRECTED = frozenset(("rz", "rm", "rp"))


def suffix(kind: str) -> str:
    """LLVM's name for a floating type in an intrinsic."""
    return {"float": "f32", "double": "f64", "half": "f16"}[kind]


def _operands(e: Emitter, i: Instruction) -> tuple[str, list[str]]:
    kind = llvm_type(value_type(i))
    return kind, [e.read(operand, kind) for operand in i.operands[1:]]


def rounding_of(i: Instruction) -> str:
    """`rz`, `rm`, `rp` of an opcode, or an empty text for round-to-nearest."""
    return next((part for part in i.parts if part in _DIRECTED), "")


def saturate(e: Emitter, value: str, kind: str) -> str:
    """`.sat`: clamp to [0, 1], NaN becoming 0."""
    above = e.value(f"fcmp ogt {kind} {value}, 0.0")  # false for NaN
    value = e.value(f"select i1 {above}, {kind} {value}, {kind} 0.0")
    below = e.value(f"fcmp olt {kind} {value}, 1.0")
    return e.value(f"select i1 {below}, {kind} {value}, {kind} 1.0")


def _finish(e: Emitter, i: Instruction, value: str, kind: str) -> None:
    e.write(i.operands[0], saturate(e, value, kind) if "sat" in i.parts else value, kind)


def _directed(e: Emitter, i: Instruction, name: str, kind: str, values: list[str]) -> str:
    """An operation rounded towards zero, down or up, which the runtime corrects from the exact error."""
    mode = {"rz": "0", "rm": "1", "rp": "2"}[rounding_of(i)]
    arguments = [(kind, value) for value in values]
    return e.runtime(f"kg_{name}_{suffix(kind)}_directed", kind, *arguments, ("i32", mode))


def _binary(operation: str) -> Rule:
    def rule(e: Emitter, i: Instruction) -> None:
        kind, values = _operands(e, i)
        if rounding_of(i):
            value = _directed(e, i, operation[1:], kind, values)
        else:
            value = e.value(f"{operation} {kind} {values[0]}, {values[1]}")
        _finish(e, i, value, kind)

    return rule


def fused(e: Emitter, i: Instruction) -> None:
    kind, values = _operands(e, i)
    if rounding_of(i):
        value = _directed(e, i, "fma", kind, values)
    else:
        value = e.intrinsic(f"fma.{suffix(kind)}", kind, *((kind, value) for value in values))
    _finish(e, i, value, kind)


def extremum(e: Emitter, i: Instruction) -> None:
    """min and max: a NaN operand loses, unless `.NaN` is given; -0 < +0."""
    kind, values = _operands(e, i)
    name = {("min", False): "minnum", ("max", False): "maxnum", ("min", True): "minimum", ("max", True): "maximum"}
    operation = name[i.parts[0], "NaN" in i.parts]
    value = values[0]
    for other in values[1:]:
        value = e.intrinsic(f"{operation}.{suffix(kind)}", kind, (kind, value), (kind, other))
    e.write(i.operands[0], value, kind)


def sign(e: Emitter, i: Instruction) -> None:
    kind, values = _operands(e, i)
    if i.parts[0] == "neg":
        value = e.value(f"fneg {kind} {values[0]}")
    elif i.parts[0] == "abs":
        value = e.intrinsic(f"fabs.{suffix(kind)}", kind, (kind, values[0]))
    else:  # copysign d, a, b: the sign of a on b
        value = e.intrinsic(f"copysign.{suffix(kind)}", kind, (kind, values[1]), (kind, values[0]))
    e.write(i.operands[0], value, kind)


def root(e: Emitter, i: Instruction) -> None:
    """sqrt, rsqrt, rcp; the approximate forms get the accurate value, which is within their error."""
    kind, (a,) = _operands(e, i)
    if rounding_of(i):
        if i.parts[0] == "rcp":
            one = Instruction(("div", *i.parts[1:]), i.operands, "", False, i.location)
            value = _directed(e, one, "div", kind, ["1.0", a])
        else:
            value = _directed(e, i, i.parts[0], kind, [a])
        e.write(i.operands[0], value, kind)
        return
    value = a
    if i.parts[0] in ("sqrt", "rsqrt"):
        value = e.intrinsic(f"sqrt.{suffix(kind)}", kind, (kind, value))
    if i.parts[0] in ("rcp", "rsqrt"):
        value = e.value(f"fdiv {kind} 1.0, {value}")
    e.write(i.operands[0], value, kind)


def approximate(e: Emitter, i: Instruction) -> None:
    """ex2, lg2, sin, cos, tanh of f32, computed by the runtime's own polynomials so that loops vectorise."""
    if value_type(i) != "f32":
        raise e.fail(i.opcode)
    e.write(i.operands[0], e.runtime(f"kg_{i.parts[0]}", "float", ("float", e.read(i.operands[1], "float"))), "float")


def test_property(e: Emitter, i: Instruction) -> None:
    ptx = value_type(i)
    kind = llvm_type(ptx)
    masks = {"finite": 0x1F8, "infinite": 0x204, "number": 0x3FC, "notanumber": 0x3, "normal": 0x108, "subnormal": 0x90}
    a = e.read(i.operands[1], kind)
    mask = str(masks[i.parts[1]])
    value = e.intrinsic(f"is.fpclass.{suffix(kind)}", "i1", (kind, a), ("i32", mask))
    e.write(i.operands[0], value, "i1")


_ORDERED = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "num": "ord", "nan": "uno"}
_UNORDERED = {"equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge"}
CONDITIONS = _ORDERED | _UNORDERED


def compare(e: Emitter, i: Instruction) -> str:
    """The i1 of `setp`/`set` on f32 and f64."""
    kind = llvm_type(value_type(i))
    a, b = e.read(i.operands[1], kind), e.read(i.operands[2], kind)
    return e.value(f"fcmp {CONDITIONS[i.parts[1]]} {kind} {a}, {b}")


RULES: dict[str, Rule] = {
    "add:float": _binary("fadd"),
    "sub:float": _binary("fsub"),
    "mul:float": _binary("fmul"),
    "div:float": _binary("fdiv"),
    **dict.fromkeys(("fma:float", "mad:float"), fused),
    **dict.fromkeys(("min:float", "max:float"), extremum),
    **dict.fromkeys(("neg:float", "abs:float", "copysign:float"), sign),
    **dict.fromkeys(("sqrt:float", "rsqrt:float", "rcp:float"), root),
    **dict.fromkeys(("ex2:float", "lg2:float", "sin:float", "cos:float", "tanh:float"), approximate),
    "testp:float": test_property,
}
