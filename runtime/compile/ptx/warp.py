"""Suspend points: what a thread leaves in its mailbox when it waits, and takes out when it goes on."""

from __future__ import annotations

from kgrun.runtime.compile.ptx import wmma
from kgrun.runtime.compile.ptx.emit import Emitter
from kgrun.runtime.compile.ptx.immediates import immediate
from kgrun.runtime.compile.ptx.layout import KIND_NUMBERS
from kgrun.runtime.compile.ptx.memory import address
from kgrun.runtime.compile.ptx.rules import value_type
from kgrun.runtime.compile.ptx.syntax import SIZES, Instruction, vector_elements
from kgrun.runtime.compile.ptx.waits import DYNAMIC_BARRIER, MASK_WORD, RESULT_WORD, Wait, mail_words


def wait_of(e: Emitter, i: Instruction) -> Wait:
    """The wait that `i` stands for; its operands are read here, before the thread suspends."""
    head = i.parts[0]
    if head in ("bar", "barrier"):
        return _barrier(e, i)
    name = f"_{head}"
    return {
        "_shfl": _shuffle,
        "_vote": _vote,
        "_match": _match,
        "_redux": _redux,
        "_activemask": lambda e, i: Wait(KIND_NUMBERS["activemask"], (), ((i.operands[0], RESULT_WORD, "i32"),)),
        "_ldmatrix": _load_matrix,
        "_mma": _multiply_matrices,
        "_wmma": wmma.multiply,
    }.get(name, _unknown)(e, i)


def _unknown(e: Emitter, i: Instruction) -> Wait:
    raise e.fail(i.opcode)


def _barrier(e: Emitter, i: Instruction) -> Wait:
    if "warp" in i.parts:
        return Wait(KIND_NUMBERS["syncwarp"], ((MASK_WORD, e.read(i.operands[0], "i32")),))
    if "cluster" in i.parts:
        raise e.fail(i.opcode)
    kind = KIND_NUMBERS["barrier"]
    if "red" not in i.parts:
        if len(i.operands) == 1 and immediate(i.operands[0], "i32") == "0":
            return Wait(kind)
        count = e.read(i.operands[1], "i32") if len(i.operands) > 1 else "0"
        return Wait(kind | DYNAMIC_BARRIER, ((0, e.read(i.operands[0], "i32")), (1, count), (2, "0")))
    target, identifier, *rest = i.operands
    predicate = e.value(f"zext i1 {e.read(rest[-1], 'i1')} to i32")
    count = e.read(rest[0], "i32") if len(rest) > 1 else "0"
    word = RESULT_WORD + {"popc": 0, "and": 1, "or": 2}[next(p for p in i.parts if p in ("popc", "and", "or"))]
    leave = ((0, e.read(identifier, "i32")), (1, count), (2, predicate))
    return Wait(kind | DYNAMIC_BARRIER, leave, ((target, word, "i32" if "popc" in i.parts else "i1"),))


def _shuffle(e: Emitter, i: Instruction) -> Wait:
    mode = next(part for part in i.parts if part in ("up", "down", "bfly", "idx"))
    target, _, predicate = i.operands[0].partition("|")
    leave = [(word, e.read(operand, "i32")) for word, operand in enumerate(i.operands[1:4])]
    leave.append((MASK_WORD, e.read(i.operands[4], "i32") if len(i.operands) > 4 else "-1"))
    take = [(target.strip(), RESULT_WORD, "i32")]
    if predicate:
        take.append((predicate.strip(), RESULT_WORD + 1, "i1"))
    return Wait(KIND_NUMBERS[f"shfl_{mode}"], tuple(leave), tuple(take))


def _vote(e: Emitter, i: Instruction) -> Wait:
    mode = next(part for part in i.parts if part in ("all", "any", "uni", "ballot"))
    predicate = e.value(f"zext i1 {e.read(i.operands[1], 'i1')} to i32")
    mask = e.read(i.operands[2], "i32") if len(i.operands) > 2 else "-1"
    kind = "i32" if mode == "ballot" else "i1"
    return Wait(
        KIND_NUMBERS[f"vote_{mode}"], ((0, predicate), (MASK_WORD, mask)), ((i.operands[0], RESULT_WORD, kind),)
    )


def _match(e: Emitter, i: Instruction) -> Wait:
    mode = "any" if "any" in i.parts else "all"
    wide = SIZES[value_type(i)] == 8
    leave = [(MASK_WORD, e.read(i.operands[2], "i32"))]
    if wide:
        value = e.read(i.operands[1], "i64")
        leave.append((0, e.value(f"trunc i64 {value} to i32")))
        leave.append((1, e.value(f"trunc i64 {e.value(f'lshr i64 {value}, 32')} to i32")))
    else:
        leave.append((0, e.read(i.operands[1], "i32")))
        leave.append((1, "0"))
    target, _, predicate = i.operands[0].partition("|")
    take = [(target.strip(), RESULT_WORD, "i32")]
    if predicate:
        take.append((predicate.strip(), RESULT_WORD + 1, "i1"))
    return Wait(KIND_NUMBERS[f"match_{mode}"], tuple(leave), tuple(take))


def _redux(e: Emitter, i: Instruction) -> Wait:
    operation = next(part for part in i.parts if part in ("add", "min", "max", "and", "or", "xor"))
    if value_type(i) == "f32":
        raise e.fail(i.opcode)
    if operation in ("min", "max") and value_type(i) == "u32":
        operation = f"u{operation}"
    leave = ((0, e.read(i.operands[1], "i32")), (MASK_WORD, e.read(i.operands[2], "i32")))
    return Wait(KIND_NUMBERS[f"redux_{operation}"], leave, ((i.operands[0], RESULT_WORD, "i32"),))


def _load_matrix(e: Emitter, i: Instruction) -> Wait:
    if "m8n8" not in i.parts:
        raise e.fail(i.opcode)
    targets = vector_elements(i.operands[0])
    base, offset = address(e, i.operands[1], "shared")
    number = e.value(f"ptrtoint ptr {e.value(f'getelementptr i8, ptr {base}, i64 {offset}')} to i64")
    leave = (
        (0, e.value(f"trunc i64 {number} to i32")),
        (1, e.value(f"trunc i64 {e.value(f'lshr i64 {number}, 32')} to i32")),
        (MASK_WORD, "-1"),
    )
    flags = len(targets) << 8 | ("trans" in i.parts) << 12
    take = tuple((target, RESULT_WORD + place, "i32") for place, target in enumerate(targets))
    return Wait(KIND_NUMBERS["ldmatrix"] | flags, leave, take)


_FRAGMENTS = {  # kind by (shape, input type); words of A, B; the accumulator's follow from its type
    ("m16n8k16", "f16"): ("mma_f16", 4, 2),
    ("m16n8k8", "f16"): ("mma_f16", 2, 1),
    ("m16n8k16", "bf16"): ("mma_bf16", 4, 2),
    ("m16n8k8", "bf16"): ("mma_bf16", 2, 1),
    ("m16n8k8", "tf32"): ("mma_tf32", 4, 2),
    ("m16n8k4", "tf32"): ("mma_tf32", 2, 1),
    ("m16n8k16", "s8"): ("mma_s8", 2, 1),
    ("m16n8k32", "s8"): ("mma_s8", 4, 2),
}


def _multiply_matrices(e: Emitter, i: Instruction) -> Wait:
    """mma.sync.aligned.SHAPE.row.col.D.A.B.C: the lanes' fragments go to the mailbox, A then B then C."""
    shape = next(part for part in i.parts if part.startswith(("m16n8", "m8n8")))
    types = [part for part in i.parts if part in SIZES or part == "tf32"]
    if len(types) != 4 or (shape, types[1]) not in _FRAGMENTS or types[1] != types[2]:
        raise e.fail(i.opcode)
    name, a_words, b_words = _FRAGMENTS[shape, types[1]]
    is_half = types[0] == "f16"
    name = "mma_f16_f16" if is_half else name
    words: list[str] = []
    for operand in i.operands[1:4]:
        words += [e.read(element, "i32") for element in vector_elements(operand)]
    if len(words) != a_words + b_words + (2 if is_half else 4):
        raise e.fail(i.opcode)
    leave = [*zip(mail_words(), words, strict=False), (MASK_WORD, "-1")]
    targets = vector_elements(i.operands[0])
    kind = e.register_type(targets[0])
    take = tuple((target, RESULT_WORD + place, kind) for place, target in enumerate(targets))
    return Wait(KIND_NUMBERS[name] | a_words << 8 | b_words << 12, tuple(leave), take)
