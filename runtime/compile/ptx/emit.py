"""LLVM IR text for one function: registers, immediates, temporaries, labels; what every opcode family builds on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgrun.runtime.compile.ptx.context import SHARED_CODE, WIDTHS, Program, Unsupported, chain, llvm_type
from kgrun.runtime.compile.ptx.immediates import immediate
from kgrun.runtime.compile.ptx.layout import BLOCK, LAUNCH, offset_of
from kgrun.runtime.compile.ptx.syntax import NOWHERE, Function, Instruction

if TYPE_CHECKING:
    from kgrun.runtime.compile.ptx.inspection import Inspection
    from kgrun.runtime.compile.ptx.provenance import Group


class Emitter:
    """Writes one LLVM function; each PTX register is an `alloca` that mem2reg turns into values."""

    def __init__(self, program: Program, function: Function, bare: bool) -> None:
        self.program = program
        self.function = function
        self.bare = bare  # a function of the runtime: no hidden parameters, no checks
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.counter = 0
        self.known: dict[str, str] = {}  # register to its value in this basic block
        self.here: Instruction | None = None
        self.metadata = ""  # appended to accesses of memory that other threads may see
        self.look = "run" if program.quick and not bare else "plain"  # see quick.py
        self.lean = False  # whether accesses are tested out of line: for bodies that seldom run
        self.inspection: Inspection | None = None  # of the state at hand
        self.stops = False  # whether a thread may end at a suspected fault
        self.index = -1  # of the instruction at hand
        self.displacement = 0  # of the address at hand
        self.groups: dict[int, Group | None] = {}  # accesses whose bounds are tested together
        self.fresh = False  # whether the state at hand begins with all threads behind one barrier
        self._declared: set[str] = set()
        self._at_entry: set[str] = set()

    @property
    def exact(self) -> bool:
        """Whether the runtime follows every access."""
        return bool(self.program.checks) and self.program.quick is None and not self.bare

    def origin(self, operand: str) -> str:
        """What the address `[register+n]` or `[symbol+n]` is made from, as far as that is clear; else empty."""
        return ""

    # -- text ----------------------------------------------------------------------------------------------------
    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def value(self, text: str) -> str:
        """Emit `text` as a new value and return its name."""
        self.counter += 1
        name = f"%v{self.counter}"
        self.lines.append(f"  {name} = {text}")
        return name

    def label(self, name: str) -> None:
        self.known.clear()
        self.lines.append(f"{name}:")

    def keep_label(self, name: str) -> None:
        """A label that is reached from the code above it alone: what was read there is still known."""
        self.lines.append(f"{name}:")

    def fresh_label(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch(self, condition: str, then: str, otherwise: str) -> None:
        self.line(f"br i1 {condition}, label %{then}, label %{otherwise}")

    def restart(self) -> None:
        """Forget the text, for another function over the same registers."""
        self.lines, self.entry, self.known, self._declared, self.stops = [], [], {}, set(), False
        self._at_entry = set()

    def fail(self, operation: str) -> Unsupported:
        return Unsupported(operation, self.here.location if self.here else NOWHERE)

    def at_entry(self, name: str, *texts: str) -> str:
        """A value computed on entry to the body: `texts` in their order, in which `%%` stands for the one before."""
        if name not in self._at_entry:
            self._at_entry.add(name)
            self.entry += chain(name, texts)
        return name

    def hoisted(self, name: str, kind: str, *texts: str) -> str:
        """`at_entry` for a value of the block or the launch, which a kernel's bodies get as a parameter."""
        if not self.function.is_entry:
            return self.at_entry(name, *texts)
        self.program.hoisted[name] = kind, texts
        return name

    def alloca(self, name: str, kind: str, align: int = 0) -> None:
        self.entry.append(f"  {name} = alloca {kind}" + (f", align {align}" if align else ""))

    # -- calls ---------------------------------------------------------------------------------------------------
    def intrinsic(self, name: str, result: str, *arguments: tuple[str, str]) -> str:
        """Call an LLVM intrinsic (without its `llvm.`); `arguments` are (type, value)."""
        return self.outside(f"llvm.{name}", result, *arguments)

    def outside(self, name: str, result: str, *arguments: tuple[str, str]) -> str:
        self.program.declare(name, f"{result} ({', '.join(kind for kind, _ in arguments)})")
        text = f"call {result} @{name}({', '.join(f'{kind} {value}' for kind, value in arguments)})"
        if result == "void":
            self.line(text)
            return ""
        return self.value(text)

    def runtime(self, name: str, result: str, *arguments: tuple[str, str]) -> str:
        """Call a function of the runtime, adapting types of other widths.

        Small ones are lowered into the same module on demand, so that they are inlined; the others are shared.
        """
        assert self.program.runtime is not None
        signature = self.program.runtime.signatures.get(name)
        if signature is None:
            raise self.fail(self.here.opcode if self.here else name)
        passed = []
        for param, (kind, value) in zip(signature.params, arguments, strict=True):
            want = llvm_type(param.type)
            passed.append(f"{want} {self.convert_bits(value, kind, want)}")
        returned = llvm_type(signature.results[0].type) if signature.results else "void"
        if name in SHARED_CODE:
            self.program.declare(name, f"{returned} ({', '.join(llvm_type(p.type) for p in signature.params)})")
        else:
            self.program.need(name, True)
        text = f"call {returned} @{name}({', '.join(passed)})"
        if returned == "void":
            self.line(text)
            return ""
        return self.convert_bits(self.value(text), returned, result)

    # -- types ---------------------------------------------------------------------------------------------------
    def convert_bits(self, value: str, have: str, want: str) -> str:
        """The same bits as another type: bitcast, zero-extend or truncate."""
        if have == want:
            return value
        if have == "ptr":
            return self.value(f"ptrtoint ptr {value} to {want}")
        before, after = WIDTHS[have], WIDTHS[want]
        if have in ("float", "double", "half"):
            value, have = self.value(f"bitcast {have} {value} to i{before}"), f"i{before}"
        if before != after:
            step = "zext" if before < after else "trunc"
            value = self.value(f"{step} {have} {value} to i{after}")
        if want in ("float", "double", "half"):
            value = self.value(f"bitcast i{after} {value} to {want}")
        return value

    # -- registers and operands ----------------------------------------------------------------------------------
    def register_type(self, name: str) -> str:
        return llvm_type(self.function.registers[name])

    def slot(self, name: str) -> str:
        if name not in self._declared:
            self._declared.add(name)
            kind = self.register_type(name)
            self.entry.append(f'  %"R{name}" = alloca {kind}')
            self.entry.append(f'  store {kind} {"0.0" if kind in ("float", "double") else "0"}, ptr %"R{name}"')
        return f'%"R{name}"'

    def read_register(self, name: str) -> str:
        if name not in self.known:
            kind = self.register_type(name)
            self.known[name] = self.value(f"load {kind}, ptr {self.slot(name)}")
        return self.known[name]

    def read(self, operand: str, kind: str) -> str:
        """`operand` as a value of the LLVM type `kind`: a register, an immediate, a special register, an address."""
        negate = operand.startswith("!")
        if negate:
            operand = operand[1:]
        if operand in self.function.registers:
            value = self.convert_bits(self.read_register(operand), self.register_type(operand), kind)
            return self.value(f"xor i1 {value}, true") if negate else value
        if (constant := immediate(operand, kind)) is not None:
            return constant
        return self.convert_bits(*self.symbol(operand), kind)

    def write(self, name: str, value: str, have: str) -> None:
        """Store `value` of LLVM type `have` in a register; `_` discards it."""
        if name == "_":
            return
        kind = self.register_type(name)
        value = self.convert_bits(value, have, kind)
        self.line(f"store {kind} {value}, ptr {self.slot(name)}")
        self.known[name] = value

    def symbol(self, name: str) -> tuple[str, str]:
        """A special register, or the address of a variable or function: (value, LLVM type)."""
        if name.startswith("%"):
            return self.special(name), "i64" if name in _WIDE_SPECIALS else "i32"
        base, _, displacement = name.partition("+")
        if displacement:
            address = self.address_of(base.strip())
            return self.value(f"add i64 {address}, {int(displacement, 0)}"), "i64"
        return self.address_of(name), "i64"

    def address_of(self, name: str) -> str:
        """A variable's address in its own space: shared ones are offsets, all others host addresses."""
        if name in self.program.shared and not self.bare:
            return str(self.program.shared[name])
        for param in self.function.params if self.function.is_entry else ():
            if param.name == name:
                return self.value(f"ptrtoint ptr {self.value(f'getelementptr i8, ptr %P, i64 {param.offset}')} to i64")
        if name in self.function.variables:
            return self.value(f'ptrtoint ptr %"V{name}" to i64')
        if name in self.program.addresses and not self.bare:
            base = self.launch_field("module")
            return self.value(f"add i64 {base}, {self.program.addresses[name]}")
        module = self.program.runtime if self.bare else self.program.module
        if module and name in module.signatures and module.has_body(name):
            return str(module.pointer_targets()[name])
        raise self.fail(f"the symbol {name}")

    def launch_field(self, name: str) -> str:
        kind = {"u32": "i32", "u64": "i64"}[dict(LAUNCH)[name]]
        place = self.value(f"getelementptr i8, ptr %L, i64 {offset_of(LAUNCH, name)}")
        limits = ", !range !9" if name.startswith(("block_x", "block_y", "block_z", "threads")) else ""
        return self.value(f"load {kind}, ptr {place}, !invariant.load !0{limits}")

    def block_pointer_value(self, name: str, kind: str = "i64") -> str:
        place = self.value(f"getelementptr i8, ptr %B, i64 {offset_of(BLOCK, name)}")
        return self.value(f"load {kind}, ptr {place}, !invariant.load !0")

    def special(self, name: str) -> str:
        """The value of a special register."""
        if name in _HIDDEN_SPECIALS:
            return _HIDDEN_SPECIALS[name]
        if name in _LAUNCH_SPECIALS:
            return self.launch_field(_LAUNCH_SPECIALS[name])
        if name.startswith("%lanemask_"):
            return self._lane_mask(name.removeprefix("%lanemask_"))
        match name:
            case "%laneid":
                return self.value("and i32 %t, 31")
            case "%warpid":
                return self.value("lshr i32 %t, 5")
            case "%nwarpid":
                return self.launch_field("warps")
            case "%clock" | "%clock_hi":
                value = self.intrinsic("readcyclecounter", "i64")
                shifted = self.value(f"lshr i64 {value}, 32") if name.endswith("hi") else value
                return self.value(f"trunc i64 {shifted} to i32")
            case "%envreg1" | "%envreg2":  # where cooperative groups look for the grid's barrier
                place = self.launch_field("grid_barrier")
                half = self.value(f"lshr i64 {place}, 32") if name.endswith("1") else place
                return self.value(f"trunc i64 {half} to i32")
            case "%clock64" | "%globaltimer":
                return self.intrinsic("readcyclecounter", "i64")
            case "%smid" | "%gridid" | "%dynamic_smem_size_hi" | "%cluster_ctarank" | "%clusterid.x":
                return "0"
            case "%nsmid" | "%cluster_nctarank" | "%nclusterid.x":
                return "1"
            case "%dynamic_smem_size" | "%total_smem_size":
                total = self.launch_field("shared_bytes")
                static = self.launch_field("shared_static") if name.startswith("%dyn") else "0"
                size = self.value(f"sub i64 {total}, {static}")
                return self.value(f"trunc i64 {size} to i32")
        raise self.fail(f"the special register {name}")

    def _lane_mask(self, which: str) -> str:
        lane = self.value("and i32 %t, 31")
        bit = self.value(f"shl i32 1, {lane}")
        below = self.value(f"sub i32 {bit}, 1")
        upto = self.value(f"or i32 {bit}, {below}")
        match which:
            case "eq":
                return bit
            case "lt":
                return below
            case "le":
                return upto
            case "gt":
                return self.value(f"xor i32 {upto}, -1")
        return self.value(f"xor i32 {below}, -1")


_WIDE_SPECIALS = frozenset(("%clock64", "%globaltimer"))
_HIDDEN_SPECIALS = {
    "%tid.x": "%tx",
    "%tid.y": "%ty",
    "%tid.z": "%tz",
    "%ctaid.x": "%cx",
    "%ctaid.y": "%cy",
    "%ctaid.z": "%cz",
}
_LAUNCH_SPECIALS = {
    "%ntid.x": "block_x",
    "%ntid.y": "block_y",
    "%ntid.z": "block_z",
    "%nctaid.x": "grid_x",
    "%nctaid.y": "grid_y",
    "%nctaid.z": "grid_z",
}
