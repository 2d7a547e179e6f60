"""Walks one PTX function and writes its LLVM code: blocks, guards, jumps, suspend points."""

from __future__ import annotations

from kgrun.runtime.compile.ptx import (
    atomics,
    control,
    convert,
    floats,
    halves,
    integers,
    mbarrier,
    memory,
    provenance,
    region,
    remat,
    video,
    warp,
    wmma,
)
from kgrun.runtime.compile.ptx.context import Program, llvm_type
from kgrun.runtime.compile.ptx.emit import Emitter
from kgrun.runtime.compile.ptx.flow import Flow, is_suspend, live_across
from kgrun.runtime.compile.ptx.layout import KIND_NUMBERS
from kgrun.runtime.compile.ptx.quick_values import LOOKS
from kgrun.runtime.compile.ptx.rules import Rule, class_of, value_type
from kgrun.runtime.compile.ptx.syntax import NOWHERE, Function, Instruction, Location, align_up, parse_address
from kgrun.runtime.compile.ptx.waits import Wait

RULES: dict[str, Rule] = {
    **integers.RULES,
    **floats.RULES,
    **halves.RULES,
    **convert.RULES,
    **memory.RULES,
    **atomics.RULES,
    **control.RULES,
    **mbarrier.RULES,
    **video.RULES,
    **wmma.RULES,
}
_JUMPS = frozenset(("bra", "brx", "ret", "exit"))
_SPINNING = frozenset(("volatile", "acquire", "relaxed", "mmio"))
_BUDGET = 16  # rounds of a loop that may wait for another thread, before it lets others run


class Lowering(Emitter):
    """An emitter that walks a function, from its start or from one of its suspend points.

    State 0 is a kernel's start, state n its n-th suspend point: each is walked on its own, as far as the next suspend
    points, so that the code of a state holds what can run in it and nothing else.
    """

    def __init__(self, program: Program, function: Function, bare: bool, flow: Flow) -> None:
        super().__init__(program, function, bare)
        self.flow = flow
        self.labels = {block.label: number for number, block in enumerate(flow.blocks) if block.label}
        self.spins = spin_points(flow) if function.is_entry else frozenset()
        suspends = [n for n, i in enumerate(flow.instructions) if is_suspend(i)] if function.is_entry else []
        self.points = sorted({*suspends, *self.spins})
        self.states = {index: number for number, index in enumerate(self.points, 1)}
        live = live_across(flow, function.registers, self.points, self.spins) if self.points else {}
        again = remat.recomputable(function, flow) if self.points else {}
        self.recompute = {
            index: list(dict.fromkeys(place for name in names for place in again.get(name, ())))
            for index, names in live.items()
        }
        self.live = {index: [name for name in names if name not in again] for index, names in live.items()}
        self.frame, self.frame_bytes = _frame(function, self.live)
        self.kinds = [0] * (len(self.points) + 1)
        if program.quick is not None and not bare:
            self._origins = provenance.origins(function, self._symbol)
            self.groups = provenance.groups(flow)
        self._wanted: list[int] = []

    @property
    def places(self) -> list[Location]:
        """Where each state waits."""
        return [NOWHERE, *(self.flow.instructions[index].location for index in self.points)]

    def walk(self, state: int = 0) -> None:
        """Emit what can run from `state` on."""
        self._wanted = []
        if self.look in LOOKS:
            self.alloca("%look.found", "i32")
            self.entry.append("  store i32 0, ptr %look.found")
        if state == 0:
            self.jump(self._block(0))
        else:
            self._resume(self.points[state - 1])
        for number in self._wanted:  # grows on the way
            self.label(f"B{number}")
            self._rest_of(number, self.flow.blocks[number].start)
        if self.stops:
            self.label("suspect")
            self.line(f"call void @kg_suspect(i64 {self.value('ptrtoint ptr %L to i64')})")
            self.program.declare("kg_suspect", "void (i64)")
            kind = "i32" if self.function.is_entry else control.result_type(self.function.results)
            if self.function.is_entry:
                self.line("ret i32 -1")
            else:
                self.line(
                    "ret void" if kind == "void" else f"ret {kind} {'0.0' if kind in ('float', 'double') else '0'}"
                )

    def origin(self, operand: str) -> str:
        """See Emitter; an address that comes in as a function's parameter has no clear origin."""
        if not operand:
            return ""
        base = parse_address(operand)[0]
        return self._origins.get(base) or self._symbol(base)

    def _symbol(self, name: str) -> str:
        if name in self.program.shared:
            return f"shared:{name}"
        return f"global:{name}" if name in self.program.addresses and name not in self.function.registers else ""

    def _block(self, number: int) -> str:
        """The label of a block, which is emitted because of this."""
        if number not in self._wanted:
            self._wanted.append(number)
        return f"B{number}"

    def _rest_of(self, number: int, start: int) -> None:
        for index in range(start, self.flow.blocks[number].end):
            if self.instruction(index, number):
                return
        if number + 1 < len(self.flow.blocks):
            self.jump(self._block(number + 1))
        else:
            control.return_from(self, Instruction(("ret",), (), "", False, NOWHERE))

    def instruction(self, index: int, number: int) -> bool:
        """Emit one instruction; True where it ends its block."""
        i = self.here = self.flow.instructions[index]
        self.index = index
        head = i.parts[0]
        if head in _JUMPS:
            return self._jump(i, number)
        if not i.guard:
            return self._plain(i, index)
        condition = self.read(("!" if i.negated else "") + i.guard, "i1")
        then, following = self.fresh_label("do"), self.fresh_label("on")
        self.branch(condition, then, following)
        self.label(then)
        if not self._plain(i, index):
            self.jump(following)
        self.label(following)
        return False

    def _plain(self, i: Instruction, index: int) -> bool:
        """Emit an instruction without its guard; True where control does not go on behind it."""
        if is_suspend(i):
            if not self.function.is_entry:
                raise self.fail(f"{i.opcode} inside a function that is not inlined")
            if self.look in LOOKS:
                control.return_from(self, i)
                return True
            self._suspend(warp.wait_of(self, i), index)
            return True
        rule = RULES.get(i.parts[0]) or RULES.get(f"{i.parts[0]}:{class_of(value_type(i))}")
        if rule is None:
            raise self.fail(i.opcode)
        try:
            rule(self, i)
        except (KeyError, IndexError, ValueError) as error:
            raise self.fail(f"{i.opcode} {', '.join(i.operands)}") from error
        if index in self.spins:
            self._yield(index)
        return i.parts[0] == "trap"

    def _jump(self, i: Instruction, number: int) -> bool:
        condition = self.read(("!" if i.negated else "") + i.guard, "i1") if i.guard else ""
        if i.parts[0] == "bra":
            target = self._block(self._block_of(i.operands[0]))
            if condition:
                self.branch(condition, target, self._block(number + 1))
            else:
                self.jump(target)
            if self.bare and self.metadata and self._block_of(i.operands[0]) <= number:
                self.lines[-1] += region.PARALLEL_LOOP
            return True
        then = self.fresh_label("leave")
        if condition:
            self.branch(condition, then, self._block(number + 1))
            self.label(then)
        if i.parts[0] == "brx":
            places = [self._block(self._block_of(label)) for label in self.function.branch_targets[i.operands[1]]]
            cases = " ".join(f"i32 {row}, label %{place}" for row, place in enumerate(places))
            self.line(f"switch i32 {self.read(i.operands[0], 'i32')}, label %{places[-1]} [ {cases} ]")
        else:
            control.return_from(self, i)
        return True

    def _block_of(self, label: str) -> int:
        if label not in self.labels:
            raise self.fail(f"a branch to the unknown label {label}")
        return self.labels[label]

    def _suspend(self, wait: Wait, index: int) -> None:
        """Leave the operands, save what lives on, answer the number of the state in which the thread goes on."""
        state = self.states[index]
        self.kinds[state] = wait.kind
        for word, value in wait.leave:
            self.line(f"store i32 {value}, ptr {self._mail(word)}, align 4{self.metadata}")
        for name in self.live[index]:
            kind = self.register_type(name)
            value = self.read_register(name)
            if kind == "i1":
                value, kind = self.value(f"zext i1 {value} to i8"), "i8"
            self.line(f"store {kind} {value}, ptr {self._saved(name)}{self.metadata}")
        self.line(f"ret i32 {state}")

    def _resume(self, index: int) -> None:
        """Take up again behind a suspend point: saved registers, those to compute again, the operation's results."""
        i = self.here = self.flow.instructions[index]
        for name in self.live[index]:
            kind = self.register_type(name)
            stored = "i8" if kind == "i1" else kind
            value = self.value(f"load {stored}, ptr {self._saved(name)}{self.metadata}")
            self.write(name, self.value(f"trunc i8 {value} to i1") if kind == "i1" else value, kind)
        self._compute_again(self.recompute[index])
        self.here = i
        for name, word, kind in warp.wait_of(self, i).take if is_suspend(i) else ():
            if name == "_":
                continue
            stored = "i32" if kind == "i1" else kind
            value = self.value(f"load {stored}, ptr {self._mail(word)}, align 4{self.metadata}")
            self.write(name, self.value(f"trunc i32 {value} to i1") if kind == "i1" else value, kind)
        number = next(n for n, block in enumerate(self.flow.blocks) if block.start <= index < block.end)
        self._rest_of(number, index + 1)

    def _compute_again(self, indices: list[int]) -> None:
        for index in indices:
            i = self.here = self.flow.instructions[index]
            rule = RULES.get(i.parts[0]) or RULES[f"{i.parts[0]}:{class_of(value_type(i))}"]
            rule(self, i)

    def _yield(self, index: int) -> None:
        if not any("%spin =" in line for line in self.entry):
            self.alloca("%spin", "i32")
            self.entry.append("  store i32 0, ptr %spin")
        count = self.value("load i32, ptr %spin")
        self.line(f"store i32 {self.value(f'add i32 {count}, 1')}, ptr %spin")
        pause, following = self.fresh_label("pause"), self.fresh_label("on")
        self.branch(self.value(f"icmp ugt i32 {count}, {_BUDGET}"), pause, following)
        self.label(pause)
        self._suspend(Wait(KIND_NUMBERS["yield"]), index)
        self.label(following)

    def _saved(self, name: str) -> str:
        kind = self.register_type(name)
        start = self.value(f"mul i64 %T, {self.frame[name]}")
        row = self.value(f"getelementptr i8, ptr %F, i64 {start}")
        return self.value(f"getelementptr {'i8' if kind == 'i1' else kind}, ptr {row}, i64 %t64")

    def _mail(self, word: int) -> str:
        row = self.value(f"getelementptr i32, ptr %M, i64 {self.value(f'mul i64 %T, {word}')}")
        return self.value(f"getelementptr i32, ptr {row}, i64 %t64")


def spin_points(flow: Flow) -> frozenset[int]:
    """Instructions in loops that may wait for another thread's store: there a thread must let others run."""
    found = set()
    for number in flow.in_cycle:
        block = flow.blocks[number]
        for index in range(block.start, block.end):
            i = flow.instructions[index]
            is_wait = i.parts[0] == "ld" and bool(_SPINNING.intersection(i.parts))
            is_wait |= i.parts[0] == "mbarrier" and i.parts[1] in ("test_wait", "try_wait")
            is_wait |= i.parts[0] == "atom" and bool({"cas", "exch"}.intersection(i.parts[1:]))
            if is_wait:
                found.add(index)
    return frozenset(found)


def _frame(function: Function, live: dict[int, list[str]]) -> tuple[dict[str, int], int]:
    """Byte offsets (per thread) of the registers that any suspend point saves, larger ones first."""
    names = sorted({name for saved in live.values() for name in saved})
    sizes = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "float": 4, "i64": 8, "double": 8, "i128": 16}
    widths = {name: sizes[llvm_type(function.registers[name])] for name in names}
    offsets, total = {}, 0
    for name in sorted(names, key=lambda each: -widths[each]):
        offsets[name] = total
        total += widths[name]
    return offsets, align_up(total, 16)
