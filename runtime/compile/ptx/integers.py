"""Integer, bit and predicate instructions."""

from __future__ import annotations

from kgrun.runtime.compile.ptx.context import llvm_type
from kgrun.runtime.compile.ptx.emit import Emitter
from kgrun.runtime.compile.ptx.immediates import immediate
from kgrun.runtime.compile.ptx.rules import Rule, value_type
from kgrun.runtime.compile.ptx.syntax import SIZES, Instruction

CARRY = "%CC"


def _operands(e: Emitter, i: Instruction) -> tuple[str, str, list[str]]:
    """(LLVM type, destination, source values) of a plain instruction whose sources share its type."""
    kind = llvm_type(value_type(i))
    return kind, i.operands[0], [e.read(operand, kind) for operand in i.operands[1:]]


def _binary(operation: str) -> Rule:
    def rule(e: Emitter, i: Instruction) -> None:
        kind, target, (a, b) = _operands(e, i)
        e.write(target, e.value(f"{operation} {kind} {a}, {b}"), kind)

    return rule


def add_sub(e: Emitter, i: Instruction) -> None:
    kind, target, (a, b) = _operands(e, i)
    head = i.parts[0]
    if "sat" in i.parts:
        e.write(target, e.intrinsic(f"s{head}.sat.{kind}", kind, (kind, a), (kind, b)), kind)
        return
    if "cc" in i.parts or head in ("addc", "subc"):
        e.write(target, _with_carry(e, i, kind, a, b), kind)
        return
    e.write(target, e.value(f"{head} {kind} {a}, {b}"), kind)


def _with_carry(e: Emitter, i: Instruction, kind: str, a: str, b: str) -> str:
    """add/sub with carry in (`addc`, `subc`) and carry out (`.cc`); the flag of `sub` is the borrow."""
    operation = i.parts[0][:3]
    wide = f"i{int(kind[1:]) + 8}"
    left, right = (e.value(f"zext {kind} {value} to {wide}") for value in (a, b))
    total = e.value(f"{operation} {wide} {left}, {right}")
    if i.parts[0] in ("addc", "subc"):
        carry = e.value(f"load i1, ptr {_carry(e)}")
        total = e.value(f"{operation} {wide} {total}, {e.value(f'zext i1 {carry} to {wide}')}")
    if "cc" in i.parts:
        e.line(f"store i1 {_bit(e, total, wide, int(kind[1:]))}, ptr {_carry(e)}")
    return e.value(f"trunc {wide} {total} to {kind}")


def _bit(e: Emitter, value: str, kind: str, place: int) -> str:
    return e.value(f"trunc {kind} {e.value(f'lshr {kind} {value}, {place}')} to i1")


def _carry(e: Emitter) -> str:
    if not any(CARRY + " =" in line for line in e.entry):
        e.alloca(CARRY, "i1")
        e.entry.append(f"  store i1 false, ptr {CARRY}")
    return CARRY


def multiply(e: Emitter, i: Instruction) -> None:
    """mul and mad, .lo .hi .wide, with carry; `mul24` uses the low 24 bits."""
    ptx = value_type(i)
    kind, signed = llvm_type(ptx), ptx.startswith("s")
    a, b = e.read(i.operands[1], kind), e.read(i.operands[2], kind)
    target, result = i.operands[0], kind
    if i.parts[0] in ("mul24", "mad24"):
        extend = "ashr" if signed else "lshr"
        a, b = (e.value(f"{extend} i32 {e.value(f'shl i32 {value}, 8')}, 8") for value in (a, b))
    width = int(kind[1:])
    if "wide" in i.parts or "hi" in i.parts:
        wide = f"i{2 * width}"
        a, b = (e.value(f"{'sext' if signed else 'zext'} {kind} {value} to {wide}") for value in (a, b))
        product, result = e.value(f"mul {wide} {a}, {b}"), wide
        if "hi" in i.parts:
            shift = 16 if i.parts[0] in ("mul24", "mad24") else width
            product = e.value(f"trunc {wide} {e.value(f'lshr {wide} {product}, {shift}')} to {kind}")
            result = kind
    else:
        product = e.value(f"mul {kind} {a}, {b}")
    if len(i.operands) > 3:
        c = e.read(i.operands[3], result)
        if "cc" in i.parts or i.parts[0] == "madc":
            head = "addc" if i.parts[0] == "madc" else "add"
            carried = Instruction((head, *i.parts[1:]), i.operands, "", False, i.location)
            product = _with_carry(e, carried, result, product, c)
        elif "sat" in i.parts:
            product = e.intrinsic(f"sadd.sat.{result}", result, (result, product), (result, c))
        else:
            product = e.value(f"add {result} {product}, {c}")
    e.write(target, product, result)


def divide(e: Emitter, i: Instruction) -> None:
    """div and rem: a zero divisor or an overflow must give some value, not stop the process."""
    ptx = value_type(i)
    kind, target, (a, b) = _operands(e, i)
    signed, is_rem = ptx.startswith("s"), i.parts[0] == "rem"
    operation = f"{'s' if signed else 'u'}{'rem' if is_rem else 'div'}"
    constant = immediate(i.operands[2], kind)
    if constant is not None and int(constant) not in (0, -1):
        e.write(target, e.value(f"{operation} {kind} {a}, {b}"), kind)
        return
    zero = e.value(f"icmp eq {kind} {b}, 0")
    special = zero
    if signed:
        minus = e.value(f"icmp eq {kind} {b}, -1")
        special = e.value(f"or i1 {zero}, {minus}")
    safe = e.value(f"select i1 {special}, {kind} 1, {kind} {b}")
    result = e.value(f"{operation} {kind} {a}, {safe}")
    if signed:
        negated = "0" if is_rem else e.value(f"sub {kind} 0, {a}")
        result = e.value(f"select i1 {minus}, {kind} {negated}, {kind} {result}")
    result = e.value(f"select i1 {zero}, {kind} {a if is_rem else '-1'}, {kind} {result}")
    e.write(target, result, kind)


def extremum(e: Emitter, i: Instruction) -> None:
    ptx = value_type(i)
    if ptx in ("u16x2", "s16x2"):
        raise e.fail(i.opcode)
    kind, target, (a, b) = _operands(e, i)
    name = f"{'s' if ptx.startswith('s') else 'u'}{i.parts[0]}"
    value = e.intrinsic(f"{name}.{kind}", kind, (kind, a), (kind, b))
    if "relu" in i.parts:
        value = e.intrinsic(f"smax.{kind}", kind, (kind, value), (kind, "0"))
    e.write(target, value, kind)


def unary(e: Emitter, i: Instruction) -> None:
    kind, target, (a,) = _operands(e, i)
    match i.parts[0]:
        case "abs":
            value = e.intrinsic(f"abs.{kind}", kind, (kind, a), ("i1", "false"))
        case "neg":
            value = e.value(f"sub {kind} 0, {a}")
        case "not":
            value = e.value(f"xor {kind} {a}, {'true' if kind == 'i1' else -1}")
        case "cnot":
            value = e.value(f"zext i1 {e.value(f'icmp eq {kind} {a}, 0')} to {kind}")
        case _:
            value = e.intrinsic(f"bitreverse.{kind}", kind, (kind, a))
    e.write(target, value, kind)


def count_bits(e: Emitter, i: Instruction) -> None:
    """popc and clz give a 32-bit count."""
    kind, target, (a,) = _operands(e, i)
    if i.parts[0] == "popc":
        value = e.intrinsic(f"ctpop.{kind}", kind, (kind, a))
    else:
        value = e.intrinsic(f"ctlz.{kind}", kind, (kind, a), ("i1", "false"))
    e.write(target, e.convert_bits(value, kind, "i32"), "i32")


def shift(e: Emitter, i: Instruction) -> None:
    """shl and shr; PTX clamps the amount at the width, LLVM leaves a larger one undefined."""
    ptx = value_type(i)
    kind = llvm_type(ptx)
    width = int(kind[1:])
    a = e.read(i.operands[1], kind)
    operation = "shl" if i.parts[0] == "shl" else "ashr" if ptx.startswith("s") else "lshr"
    constant = immediate(i.operands[2], "i32")
    if constant is not None and 0 <= int(constant) < width:
        e.write(i.operands[0], e.value(f"{operation} {kind} {a}, {constant}"), kind)
        return
    amount = e.read(i.operands[2], "i32")
    large = e.value(f"icmp uge i32 {amount}, {width}")
    fallback = str(width - 1) if operation == "ashr" else "0"
    bounded = e.value(f"select i1 {large}, i32 {fallback}, i32 {amount}")
    value = e.value(f"{operation} {kind} {a}, {e.convert_bits(bounded, 'i32', kind)}")
    if operation != "ashr":
        value = e.value(f"select i1 {large}, {kind} 0, {kind} {value}")
    e.write(i.operands[0], value, kind)


def funnel_shift(e: Emitter, i: Instruction) -> None:
    low, high, amount = (e.read(operand, "i32") for operand in i.operands[1:])
    if "wrap" in i.parts:
        amount = e.value(f"and i32 {amount}, 31")
    else:
        amount = e.intrinsic("umin.i32", "i32", ("i32", amount), ("i32", "32"))
    wide = e.value(f"shl i64 {e.value(f'zext i32 {high} to i64')}, 32")
    both = e.value(f"or i64 {wide}, {e.value(f'zext i32 {low} to i64')}")
    count = e.value(f"zext i32 {amount} to i64")
    if "l" in i.parts:
        both = e.value(f"lshr i64 {e.value(f'shl i64 {both}, {count}')}, 32")
    else:
        both = e.value(f"lshr i64 {both}, {count}")
    e.write(i.operands[0], e.value(f"trunc i64 {both} to i32"), "i32")


def logic3(e: Emitter, i: Instruction) -> None:
    """lop3: the table's bit (a<<2 | b<<1 | c) says the result of each triple."""
    a, b, c = (e.read(operand, "i32") for operand in i.operands[1:4])
    table = int(i.operands[4], 0)
    terms = {0: a, 1: b, 2: c}
    inverses = {place: e.value(f"xor i32 {value}, -1") for place, value in terms.items()}
    total = "0"
    for row in range(8):
        if table >> row & 1:
            picked = [terms[place] if row >> (2 - place) & 1 else inverses[place] for place in range(3)]
            term = e.value(f"and i32 {e.value(f'and i32 {picked[0]}, {picked[1]}')}, {picked[2]}")
            total = e.value(f"or i32 {total}, {term}")
    target, _, predicate = i.operands[0].partition("|")
    e.write(target, total, "i32")
    if predicate:
        condition = e.value(f"icmp ne i32 {total}, 0")
        e.write(predicate, e.value(f"{i.parts[1]} i1 {condition}, {e.read(i.operands[5], 'i1')}"), "i1")


def helper(e: Emitter, i: Instruction) -> None:
    """Instructions whose semantics the runtime has as a function of the same name and type."""
    ptx = value_type(i)
    name = "kg_" + "_".join(part for part in i.parts if part not in ("sync",))
    kind = llvm_type(ptx)
    wide_sources = {"bfi": (kind, kind, "i32", "i32"), "bfe": (kind, "i32", "i32")}
    kinds = wide_sources.get(i.parts[0], (kind,) * (len(i.operands) - 1))
    arguments = [(want, e.read(operand, want)) for want, operand in zip(kinds, i.operands[1:], strict=True)]
    result = "i32" if i.parts[0] == "bfind" else kind
    e.write(i.operands[0], e.runtime(name, result, *arguments), result)


def compare(e: Emitter, i: Instruction) -> str:
    """The i1 of `setp`/`set` on integers, before it is combined with a further predicate."""
    ptx = value_type(i)
    kind = llvm_type(ptx)
    a, b = e.read(i.operands[1], kind), e.read(i.operands[2], kind)
    word = i.parts[1]
    aliases = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}
    signed = "" if word in ("eq", "ne") else "s" if ptx.startswith("s") else "u"
    condition = aliases.get(word) or signed + word
    return e.value(f"icmp {condition} {kind} {a}, {b}")


def select(e: Emitter, i: Instruction) -> None:
    ptx = value_type(i)
    kind = llvm_type(ptx)
    a, b = e.read(i.operands[1], kind), e.read(i.operands[2], kind)
    condition = e.read(i.operands[3], "i1")
    e.write(i.operands[0], e.value(f"select i1 {condition}, {kind} {a}, {kind} {b}"), kind)


def select_by_sign(e: Emitter, i: Instruction) -> None:
    """slct: a where the third operand is not negative, else b."""
    kind = llvm_type(i.parts[-2] if i.parts[-2] in SIZES else value_type(i))
    a, b = e.read(i.operands[1], kind), e.read(i.operands[2], kind)
    if i.parts[-1] == "f32":
        condition = e.value(f"fcmp oge float {e.read(i.operands[3], 'float')}, 0.0")
    else:
        condition = e.value(f"icmp sge i32 {e.read(i.operands[3], 'i32')}, 0")
    e.write(i.operands[0], e.value(f"select i1 {condition}, {kind} {a}, {kind} {b}"), kind)


def absolute_difference(e: Emitter, i: Instruction) -> None:
    """sad: |a - b| + c."""
    kind, target, (a, b, c) = _operands(e, i)
    sign = "s" if value_type(i).startswith("s") else "u"
    larger = e.intrinsic(f"{sign}max.{kind}", kind, (kind, a), (kind, b))
    smaller = e.intrinsic(f"{sign}min.{kind}", kind, (kind, a), (kind, b))
    e.write(target, e.value(f"add {kind} {e.value(f'sub {kind} {larger}, {smaller}')}, {c}"), kind)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("add:int", "sub:int", "addc:int", "subc:int"), add_sub),
    **dict.fromkeys(("mul:int", "mad:int", "madc:int", "mul24:int", "mad24:int"), multiply),
    **dict.fromkeys(("div:int", "rem:int"), divide),
    **dict.fromkeys(("min:int", "max:int"), extremum),
    **dict.fromkeys(("abs:int", "neg:int", "not:int", "cnot:int", "brev:int"), unary),
    **dict.fromkeys(("popc:int", "clz:int"), count_bits),
    **dict.fromkeys(("shl:int", "shr:int"), shift),
    **dict.fromkeys(("bfe:int", "bfi:int", "bfind:int", "prmt:int", "dp4a:int", "dp2a:int"), helper),
    **dict.fromkeys(("bmsk:int", "szext:int", "fns:int"), helper),
    "and:int": _binary("and"),
    "or:int": _binary("or"),
    "xor:int": _binary("xor"),
    "shf:int": funnel_shift,
    "lop3:int": logic3,
    "sad:int": absolute_difference,
    "selp": select,
    "slct": select_by_sign,
}
