"""f16 and bf16 arithmetic, scalar and packed: through f32, rounded once to the half format."""

from __future__ import annotations

from collections.abc import Callable

from kgrun.runtime.compile.ptx import floats
from kgrun.runtime.compile.ptx.emit import Emitter
from kgrun.runtime.compile.ptx.rules import Rule, value_type
from kgrun.runtime.compile.ptx.syntax import Instruction


def to_float(e: Emitter, bits: str, ptx: str) -> str:
    """An i16 holding f16 or bf16 as float, exactly."""
    if ptx.startswith("bf16"):
        wide = e.value(f"shl i32 {e.value(f'zext i16 {bits} to i32')}, 16")
        return e.value(f"bitcast i32 {wide} to float")
    return e.value(f"fpext half {e.value(f'bitcast i16 {bits} to half')} to float")


def from_float(e: Emitter, value: str, ptx: str) -> str:
    """A float rounded to nearest even as the i16 of f16 or bf16."""
    if ptx.startswith("bf16"):
        return e.runtime("kg_f32_to_bf16", "i16", ("float", value))
    return e.value(f"bitcast half {e.value(f'fptrunc float {value} to half')} to i16")


def lanes(e: Emitter, operand: str, ptx: str) -> list[str]:
    """The i16 elements of an operand: one, or two of a packed type, the low one first."""
    if not ptx.endswith("x2"):
        return [e.read(operand, "i16")]
    word = e.read(operand, "i32")
    return [e.value(f"trunc i32 {word} to i16"), e.value(f"trunc i32 {e.value(f'lshr i32 {word}, 16')} to i16")]


def join(e: Emitter, elements: list[str]) -> tuple[str, str]:
    """(value, LLVM type) of i16 elements packed again."""
    if len(elements) == 1:
        return elements[0], "i16"
    low, high = (e.value(f"zext i16 {element} to i32") for element in elements)
    return e.value(f"or i32 {low}, {e.value(f'shl i32 {high}, 16')}"), "i32"


def _each(combine: Callable[[Emitter, Instruction, list[str], str], str]) -> Rule:
    """A rule that applies `combine` to the bits of each lane."""

    def rule(e: Emitter, i: Instruction) -> None:
        ptx = value_type(i)
        columns = [lanes(e, operand, ptx) for operand in i.operands[1:]]
        results = [combine(e, i, list(row), ptx) for row in zip(*columns, strict=True)]
        e.write(i.operands[0], *join(e, results))

    return rule


def _through_float(operation: Callable[[Emitter, Instruction, list[str]], str]) -> Rule:
    def combine(e: Emitter, i: Instruction, bits: list[str], ptx: str) -> str:
        value = operation(e, i, [to_float(e, each, ptx) for each in bits])
        if "sat" in i.parts:
            value = floats.saturate(e, value, "float")
        if "relu" in i.parts:
            value = e.intrinsic("maxnum.f32", "float", ("float", value), ("float", "0.0"))
        return from_float(e, value, ptx)

    return _each(combine)


def _binary(operation: str) -> Rule:
    return _through_float(lambda e, i, values: e.value(f"{operation} float {values[0]}, {values[1]}"))


def _fused(e: Emitter, i: Instruction, values: list[str]) -> str:
    # The product is exact in f32; the sum is rounded to odd, so that the second rounding, to half, is the only one
    # that counts (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    return e.runtime("kg_fma_odd", "float", *(("float", value) for value in values))


def _extremum(e: Emitter, i: Instruction, values: list[str]) -> str:
    name = {"min": ("minnum", "minimum"), "max": ("maxnum", "maximum")}[i.parts[0]]["NaN" in i.parts]
    return e.intrinsic(f"{name}.f32", "float", ("float", values[0]), ("float", values[1]))


def _function(e: Emitter, i: Instruction, values: list[str]) -> str:
    return e.runtime(f"kg_{i.parts[0]}", "float", ("float", values[0]))


def _sign(e: Emitter, i: Instruction, bits: list[str], ptx: str) -> str:
    if i.parts[0] == "neg":
        return e.value(f"xor i16 {bits[0]}, -32768")
    return e.value(f"and i16 {bits[0]}, 32767")


def compare(e: Emitter, i: Instruction) -> list[str]:
    """The i1 of each lane of `setp`/`set`."""
    ptx = value_type(i)
    columns = [lanes(e, operand, ptx) for operand in i.operands[1:3]]
    found = []
    for a, b in zip(*columns, strict=True):
        left, right = to_float(e, a, ptx), to_float(e, b, ptx)
        found.append(e.value(f"fcmp {floats.CONDITIONS[i.parts[1]]} float {left}, {right}"))
    return found


RULES: dict[str, Rule] = {
    "add:half": _binary("fadd"),
    "sub:half": _binary("fsub"),
    "mul:half": _binary("fmul"),
    "fma:half": _through_float(_fused),
    **dict.fromkeys(("min:half", "max:half"), _through_float(_extremum)),
    **dict.fromkeys(("neg:half", "abs:half"), _each(_sign)),
    **dict.fromkeys(("ex2:half", "tanh:half"), _through_float(_function)),
}
