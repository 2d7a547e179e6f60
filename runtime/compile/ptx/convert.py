"""cvt in all its forms, mov, set and setp."""

from __future__ import annotations

from kgrun.runtime.compile.ptx import floats, halves, integers
from kgrun.runtime.compile.ptx.context import llvm_type
from kgrun.runtime.compile.ptx.emit import Emitter
from kgrun.runtime.compile.ptx.rules import Rule, class_of, value_type
from kgrun.runtime.compile.ptx.syntax import SIZES, Instruction, vector_elements

_ROUND_TO_INTEGER = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_FP8 = ("e4m3x2", "e5m2x2")


def convert(e: Emitter, i: Instruction) -> None:
    types = [part for part in i.parts if part in SIZES]
    target, source = types[0], types[-1]
    if i.parts[1] == "pack":
        _pack_integers(e, i)
    elif target in _FP8 or source in _FP8:
        _convert_fp8(e, i, target, source)
    elif target.endswith("x2") and len(i.operands) == 3:
        _pack_halves(e, i, target)
    elif target == "tf32":
        e.write(i.operands[0], e.runtime("kg_f32_to_tf32", "i32", ("float", e.read(i.operands[1], "float"))), "i32")
    else:
        value, kind = _convert_scalar(e, i, target, source)
        _write_extended(e, i.operands[0], value, kind, target)


def _convert_scalar(e: Emitter, i: Instruction, target: str, source: str) -> tuple[str, str]:
    """(value, LLVM type) of the source operand as `target`."""
    kinds = class_of(target), class_of(source)
    if kinds == ("int", "int"):
        return _between_integers(e, i, target, source)
    if kinds[1] == "int":
        return _from_integer(e, i, target, source)
    value, kind = _float_source(e, i.operands[1], source)
    if rounding := next((part for part in i.parts if part in _ROUND_TO_INTEGER), ""):
        name = _ROUND_TO_INTEGER[rounding]
        value = e.intrinsic(f"{name}.{floats.suffix(kind)}", kind, (kind, value))
    if kinds[0] == "int":
        sign = "s" if target.startswith("s") else "u"
        result = llvm_type(target)
        name = f"fpto{sign}i.sat.{result}.{floats.suffix(kind)}"
        number = e.intrinsic(name, result, (kind, value))
        if kind == "double" or SIZES[target] == 8:  # else NaN gives 0, as LLVM has it
            is_nan = e.value(f"fcmp uno {kind} {value}, {value}")
            number = e.value(f"select i1 {is_nan}, {result} {-(1 << 8 * SIZES[target] - 1)}, {result} {number}")
        return number, result
    return _to_float(e, i, target, value, kind)


def _between_integers(e: Emitter, i: Instruction, target: str, source: str) -> tuple[str, str]:
    before, after = llvm_type(source), llvm_type(target)
    value = e.read(i.operands[1], before)
    signed = source.startswith("s")
    if "sat" in i.parts:
        value = e.value(f"{'sext' if signed else 'zext'} {before} {value} to i72")
        bits = 8 * SIZES[target]
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if target.startswith("s") else (0, (1 << bits) - 1)
        value = e.intrinsic("smax.i72", "i72", ("i72", value), ("i72", str(low)))
        value = e.intrinsic("smin.i72", "i72", ("i72", value), ("i72", str(high)))
        before = "i72"
    width = int(before[1:])
    if width < int(after[1:]):
        value = e.value(f"{'sext' if signed else 'zext'} {before} {value} to {after}")
    elif width > int(after[1:]):
        value = e.value(f"trunc {before} {value} to {after}")
    return value, after


def _from_integer(e: Emitter, i: Instruction, target: str, source: str) -> tuple[str, str]:
    kind = llvm_type(source)
    value = e.read(i.operands[1], kind)
    operation = "sitofp" if source.startswith("s") else "uitofp"
    if mode := floats.rounding_of(i):
        number = {"rz": "0", "rm": "1", "rp": "2"}[mode]
        wide = (
            e.value(f"{'sext' if source.startswith('s') else 'zext'} {kind} {value} to i128") if kind != "i64" else ""
        )
        wide = wide or e.value(f"{'sext' if source.startswith('s') else 'zext'} i64 {value} to i128")
        low = e.value(f"trunc i128 {wide} to i64")
        negative = e.value(f"zext i1 {e.value(f'icmp slt i128 {wide}, 0')} to i32")
        after = llvm_type(target)
        if class_of(target) == "half":
            raise e.fail(i.opcode)
        name = f"kg_integer_to_{floats.suffix(after)}_directed"
        return e.runtime(name, after, ("i64", low), ("i32", negative), ("i32", number)), after
    if class_of(target) == "half":
        # Integers of up to 24 bits are exact in f32; larger ones overflow f16, and round through odd for bf16.
        single = e.value(f"{operation} {kind} {value} to double")
        return halves.from_float(e, e.runtime("kg_f64_to_f32_odd", "float", ("double", single)), target), "i16"
    after = llvm_type(target)
    return e.value(f"{operation} {kind} {value} to {after}"), after


def _float_source(e: Emitter, operand: str, source: str) -> tuple[str, str]:
    if class_of(source) == "half":
        return halves.to_float(e, e.read(operand, "i16"), source), "float"
    kind = llvm_type(source)
    return e.read(operand, kind), kind


def _to_float(e: Emitter, i: Instruction, target: str, value: str, kind: str) -> tuple[str, str]:
    if class_of(target) == "half":
        return _to_half(e, i, target, value, kind), "i16"
    after = llvm_type(target)
    if kind == "float" and after == "double":
        value = e.value(f"fpext float {value} to double")
    elif kind == "double" and after == "float":
        if mode := floats.rounding_of(i):
            number = {"rz": "0", "rm": "1", "rp": "2"}[mode]
            value = e.runtime("kg_f64_to_f32_directed", "float", ("double", value), ("i32", number))
        else:
            value = e.value(f"fptrunc double {value} to float")
    if "sat" in i.parts:
        value = floats.saturate(e, value, after)
    return value, after


def _to_half(e: Emitter, i: Instruction, target: str, value: str, kind: str) -> str:
    if kind == "double":  # to odd first: LLVM's own f64 to f16 is a library call that a JIT does not find
        value = e.runtime("kg_f64_to_f32_odd", "float", ("double", value))
    if "relu" in i.parts:
        value = e.intrinsic("maxnum.f32", "float", ("float", value), ("float", "0.0"))
    if "sat" in i.parts:
        value = floats.saturate(e, value, "float")
    if mode := floats.rounding_of(i):
        number = {"rz": "0", "rm": "1", "rp": "2"}[mode]
        return e.runtime(f"kg_f32_to_{target}_directed", "i16", ("float", value), ("i32", number))
    return halves.from_float(e, value, target)


def _pack_halves(e: Emitter, i: Instruction, target: str) -> None:
    """cvt.rn.f16x2.f32 d, a, b: a becomes the upper half."""
    low = _to_half(e, i, target.removesuffix("x2"), e.read(i.operands[2], "float"), "float")
    high = _to_half(e, i, target.removesuffix("x2"), e.read(i.operands[1], "float"), "float")
    e.write(i.operands[0], *halves.join(e, [low, high]))


def _convert_fp8(e: Emitter, i: Instruction, target: str, source: str) -> None:
    if target in _FP8:
        if source == "f32":
            values = [e.read(i.operands[2], "float"), e.read(i.operands[1], "float")]
        else:
            values = [halves.to_float(e, lane, source) for lane in halves.lanes(e, i.operands[1], source)]
        if "relu" in i.parts:
            values = [e.intrinsic("maxnum.f32", "float", ("float", value), ("float", "0.0")) for value in values]
        name = f"kg_f32_to_{target.removesuffix('x2')}"
        low, high = (e.value(f"zext i16 {e.runtime(name, 'i16', ('float', value))} to i32") for value in values)
        both = e.value(f"or i32 {low}, {e.value(f'shl i32 {high}, 8')}")
        e.write(i.operands[0], e.value(f"trunc i32 {both} to i16"), "i16")
        return
    word = e.read(i.operands[1], "i16")
    parts = [e.value(f"and i16 {word}, 255"), e.value(f"lshr i16 {word}, 8")]
    name = f"kg_{source.removesuffix('x2')}_to_f32"
    single = [e.runtime(name, "float", ("i16", part)) for part in parts]
    e.write(i.operands[0], *halves.join(e, [halves.from_float(e, value, target) for value in single]))


def _pack_integers(e: Emitter, i: Instruction) -> None:
    """cvt.pack.sat.u8.s32.b32 d, a, b, c: a and b saturated, above the old bits of c."""
    target = i.parts[3]
    bits = 8 * SIZES[target]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if target.startswith("s") else (0, (1 << bits) - 1)
    packed = []
    for operand in (i.operands[2], i.operands[1]):
        value = e.intrinsic("smax.i32", "i32", ("i32", e.read(operand, "i32")), ("i32", str(low)))
        value = e.intrinsic("smin.i32", "i32", ("i32", value), ("i32", str(high)))
        packed.append(e.value(f"and i32 {value}, {(1 << bits) - 1}"))
    word = e.value(f"or i32 {packed[0]}, {e.value(f'shl i32 {packed[1]}, {bits}')}")
    if len(i.operands) > 3:
        old = e.value(f"shl i32 {e.read(i.operands[3], 'i32')}, {2 * bits}")
        word = e.value(f"or i32 {word}, {old}")
    e.write(i.operands[0], word, "i32")


def _write_extended(e: Emitter, name: str, value: str, kind: str, ptx: str) -> None:
    """A register wider than the value gets it extended by the value's own sign."""
    wide = e.register_type(name) if name != "_" else kind
    if kind.startswith("i") and wide.startswith("i") and int(wide[1:]) > int(kind[1:]):
        value = e.value(f"{'sext' if ptx.startswith('s') else 'zext'} {kind} {value} to {wide}")
        kind = wide
    e.write(name, value, kind)


def move(e: Emitter, i: Instruction) -> None:
    """mov, also packing `{a, b}` into one register and unpacking it."""
    ptx = value_type(i)
    kind = llvm_type(ptx)
    target, source = i.operands
    if source.startswith("{"):
        e.write(target, _pack(e, vector_elements(source), kind), _bits(kind))
        return
    value = e.read(source, kind)
    if not target.startswith("{"):
        e.write(target, value, kind)
        return
    elements = vector_elements(target)
    whole = _bits(kind)
    value = e.convert_bits(value, kind, whole)
    width = int(whole[1:]) // len(elements)
    for place, element in enumerate(elements):
        part = e.value(f"lshr {whole} {value}, {place * width}") if place else value
        e.write(element, e.value(f"trunc {whole} {part} to i{width}"), f"i{width}")


def _bits(kind: str) -> str:
    return {"float": "i32", "double": "i64"}.get(kind, kind)


def _pack(e: Emitter, elements: tuple[str, ...], kind: str) -> str:
    whole = _bits(kind)
    width = int(whole[1:]) // len(elements)
    total = "0"
    for place, element in enumerate(elements):
        part = e.value(f"zext i{width} {e.read(element, f'i{width}')} to {whole}")
        shifted = e.value(f"shl {whole} {part}, {place * width}") if place else part
        total = e.value(f"or {whole} {total}, {shifted}")
    return total


def _conditions(e: Emitter, i: Instruction) -> list[str]:
    kind = class_of(value_type(i))
    if kind == "half":
        return halves.compare(e, i)
    return [floats.compare(e, i) if kind == "float" else integers.compare(e, i)]


def set_predicate(e: Emitter, i: Instruction) -> None:
    """setp p|q, a, b {, c}: p gets (a cmp b) combined with c, q its negation (or the other lane of a packed type)."""
    found = _conditions(e, i)
    targets = [name.strip() for name in i.operands[0].split("|")]
    values = found if len(found) == 2 else [found[0], e.value(f"xor i1 {found[0]}, true")]
    word = next((part for part in i.parts if part in ("and", "or", "xor")), "")
    if word:
        further = e.read(i.operands[3], "i1")
        values = [e.value(f"{word} i1 {value}, {further}") for value in values]
    for name, value in zip(targets, values, strict=False):
        e.write(name, value, "i1")


def set_value(e: Emitter, i: Instruction) -> None:
    """set.cmp.dtype.stype: all ones or 1.0 where the comparison holds."""
    types = [part for part in i.parts if part in SIZES]
    found = _conditions(e, i)
    if word := next((part for part in i.parts if part in ("and", "or", "xor")), ""):
        further = e.read(i.operands[3], "i1")
        found = [e.value(f"{word} i1 {value}, {further}") for value in found]
    target = types[0]
    if target == "f32":
        e.write(i.operands[0], e.value(f"select i1 {found[0]}, float 1.0, float 0.0"), "float")
        return
    if class_of(target) == "half":
        one = 0x3F80 if target.startswith("bf16") else 0x3C00
        bits = [e.value(f"select i1 {value}, i16 {one}, i16 0") for value in found]
        e.write(i.operands[0], *halves.join(e, bits))
        return
    if len(found) == 2:
        e.write(i.operands[0], *halves.join(e, [e.value(f"sext i1 {value} to i16") for value in found]))
        return
    kind = llvm_type(target)
    e.write(i.operands[0], e.value(f"sext i1 {found[0]} to {kind}"), kind)


RULES: dict[str, Rule] = {"cvt": convert, "mov": move, "setp": set_predicate, "set": set_value}
