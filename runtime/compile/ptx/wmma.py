"""wmma: fragments whose layout only wmma itself knows; here a lane holds consecutive elements of the matrix."""

from __future__ import annotations

from kgrun.runtime.compile.ptx.context import llvm_type
from kgrun.runtime.compile.ptx.emit import Emitter
from kgrun.runtime.compile.ptx.layout import KIND_NUMBERS
from kgrun.runtime.compile.ptx.memory import WRITE, address, pointer_to, space_of
from kgrun.runtime.compile.ptx.rules import Rule
from kgrun.runtime.compile.ptx.syntax import SIZES, Instruction, vector_elements
from kgrun.runtime.compile.ptx.waits import MASK_WORD, RESULT_WORD, Wait, mail_words

_SHAPES = {"m16n16k16": (16, 16, 16), "m32n8k16": (32, 8, 16), "m8n32k16": (8, 32, 16), "m16n16k8": (16, 16, 8)}
_INPUTS = ("f16", "bf16", "tf32", "s8", "u8")


def _extent(e: Emitter, i: Instruction, which: str) -> tuple[int, int]:
    """(rows, columns) of matrix a, b, c or d."""
    shape = next((part for part in i.parts if part in _SHAPES), "")
    if not shape:
        raise e.fail(i.opcode)
    m, n, k = _SHAPES[shape]
    return {"a": (m, k), "b": (k, n)}.get(which, (m, n))


def move(e: Emitter, i: Instruction) -> None:
    """wmma.load and wmma.store: element by element, each lane its own run of the matrix's rows."""
    loads = i.parts[1] == "load"
    rows, columns = _extent(e, i, i.parts[2])
    ptx = next(part for part in reversed(i.parts) if part in SIZES)
    kind, size = llvm_type("b16" if SIZES[ptx] == 2 else ptx), SIZES[ptx]
    if ptx not in (*_INPUTS, "f32", "s32"):
        raise e.fail(i.opcode)
    fragment, place = (i.operands[0], i.operands[1]) if loads else (i.operands[1], i.operands[0])
    registers = vector_elements(fragment)
    by_rows = "row" in i.parts
    default = str(columns if by_rows else rows)
    stride = e.read(i.operands[2], "i32") if len(i.operands) > 2 else default
    base, offset = address(e, place, space_of(i))
    count = rows * columns // 32
    first = e.value(f"mul i32 {e.value('and i32 %t, 31')}, {count}")
    words: list[str] = []
    for number in range(count):
        flat = e.value(f"add i32 {first}, {number}")
        row, column = e.value(f"udiv i32 {flat}, {columns}"), e.value(f"urem i32 {flat}, {columns}")
        outer, inner = (row, column) if by_rows else (column, row)
        index = e.value(f"add i32 {e.value(f'mul i32 {outer}, {stride}')}, {inner}")
        distance = e.value(f"mul i64 {e.value(f'sext i32 {index} to i64')}, {size}")
        at = e.value(f"add i64 {offset}, {distance}")
        target = pointer_to(e, i, base, at, space_of(i), size, 0 if loads else WRITE)
        if loads:
            words.append(e.value(f"load {kind}, ptr {target}, align {size}{e.metadata}"))
        else:
            value = _element(e, registers, number, size, kind)
            e.line(f"store {kind} {value}, ptr {target}, align {size}{e.metadata}")
    if loads:
        _fill(e, registers, words, kind)


def _element(e: Emitter, registers: tuple[str, ...], number: int, size: int, kind: str) -> str:
    if size == 4:
        return e.read(registers[number], kind)
    each = 4 // size
    word = e.read(registers[number // each], "i32")
    return e.value(f"trunc i32 {e.value(f'lshr i32 {word}, {number % each * 8 * size}')} to {kind}")


def _fill(e: Emitter, registers: tuple[str, ...], words: list[str], kind: str) -> None:
    """Elements into registers, as many as go into one; registers beyond hold copies on the hardware, zeros here."""
    if kind in ("i8", "i16"):
        bits = int(kind[1:])
        each = 32 // bits
        wide = [e.value(f"zext {kind} {word} to i32") for word in words]
        parts = [e.value(f"shl i32 {word}, {place % each * bits}") for place, word in enumerate(wide)]
        words, kind = parts[::each], "i32"
        for place in range(1, each):
            words = [e.value(f"or i32 {a}, {b}") for a, b in zip(words, parts[place::each], strict=True)]
    for number, register in enumerate(registers):
        if number < len(words):
            e.write(register, words[number], kind)
        else:
            e.write(register, "0", "i32")


def multiply(e: Emitter, i: Instruction) -> Wait:
    """wmma.mma: D = A B + C, all lanes' fragments through the mailbox."""
    shape = next((part for part in i.parts if part in _SHAPES), "")
    types = [part for part in i.parts if part in SIZES]
    inputs = types[1] if len(types) == 4 else "f16"
    if not shape or inputs not in _INPUTS:
        raise e.fail(i.opcode)
    m, n, k = _SHAPES[shape]
    per = 4 // SIZES[inputs]
    used = (m * k // 32 // per, k * n // 32 // per, m * n // 32 // (2 if types[-1] == "f16" else 1))
    words = []
    for operand, count in zip(i.operands[1:4], used, strict=True):
        words += [e.read(element, "i32") for element in vector_elements(operand)[:count]]
    flags = list(_SHAPES).index(shape) | _INPUTS.index(inputs) << 2
    flags |= (types[-1] == "f16") << 5 | (types[0] == "f16") << 6
    targets = vector_elements(i.operands[0])
    kind = e.register_type(targets[0])
    take = tuple((target, RESULT_WORD + place, kind) for place, target in enumerate(targets))
    leave = (*zip(mail_words(), words, strict=False), (MASK_WORD, "-1"))
    return Wait(KIND_NUMBERS["wmma"] | flags << 8, leave, take)


RULES: dict[str, Rule] = {"wmma": move}
