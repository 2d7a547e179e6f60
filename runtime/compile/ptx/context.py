"""What the lowering of one kernel shares: its types, hidden parameters, and what it gathers on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kgrun.runtime.compile.ptx.parse import Module
from kgrun.runtime.compile.ptx.syntax import NOWHERE, SIZES, Instruction, Location

if TYPE_CHECKING:
    from kgrun.runtime.compile.ptx.quick_values import Quick


class Unsupported(Exception):
    """An operation that does not run on the CPU; carries what and where."""

    def __init__(self, operation: str, location: Location = NOWHERE) -> None:
        super().__init__(operation)
        self.operation = operation
        self.location = location


def llvm_type(ptx: str) -> str:
    """The LLVM type that holds a PTX type's bits: floats as themselves, everything else as an integer."""
    if ptx == "pred":
        return "i1"
    if ptx in ("f32", "f64"):
        return "float" if ptx == "f32" else "double"
    return f"i{8 * SIZES[ptx]}"


WIDTHS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "i128": 128, "float": 32, "double": 64, "half": 16}

# What every device function gets beside its own parameters.
HIDDEN = (
    ("ptr", "%L"),
    ("ptr", "%B"),
    ("i32", "%t"),
    ("i32", "%tx"),
    ("i32", "%ty"),
    ("i32", "%tz"),
    ("i32", "%cx"),
    ("i32", "%cy"),
    ("i32", "%cz"),
    ("ptr", "%S"),  # the block's shared memory
    ("ptr", "%Z"),  # null, but LLVM must not know: address arithmetic stays a pointer's, which its loop passes need
)
# Functions of the runtime that kernels share, in the parts that are compiled apart: what every launch needs, what
# checked launches need, what kernels with matrix instructions need.
CORE_CODE = ("kg_run", "kg_vprintf", "kg_assert", "kg_trap")
CHECKING_CODE = ("kg_access", "kg_fence", "kg_copy_async", "kg_malloc", "kg_free")
QUICK_CODE = ("kg_suspect", "kg_quick_words", "kg_quick_access", "kg_quick_copy", "kg_look_complete")
MERGING_CODE = ("kg_merge",)
MATRIX_CODE = ("kg_collect_matrix",)
SHARED_CODE = frozenset((*CORE_CODE, *CHECKING_CODE, *QUICK_CODE, *MERGING_CODE, *MATRIX_CODE))
# Functions of the runtime whose loop iterations are independent of each other.
PARALLEL = frozenset(("kg_shuffle_all", "kg_masks_miss", "kg_any_since"))
HIDDEN_PARAMETERS = ", ".join(f"{kind} {name}" for kind, name in HIDDEN)


@dataclass
class Program:
    """What the lowering of one kernel gathers: needed functions, sites, states, module addresses."""

    module: Module
    checks: frozenset[str]
    addresses: dict[str, int]  # module variable to its offset from the module's memory
    shared: dict[str, int]  # shared variable to its offset in the block's shared memory
    runtime: Module | None  # the runtime's own functions
    quick: Quick | None = None  # of the quick pass of a checked launch
    sites: list[tuple[Location, str]] = field(default_factory=list)
    site_numbers: dict[Instruction, int] = field(default_factory=dict)
    needed: list[tuple[str, bool]] = field(default_factory=list)  # (function, is of the runtime)
    intrinsics: dict[str, str] = field(default_factory=dict)
    hoisted: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)  # values that bodies get: type, texts
    slots: dict[str, int] = field(default_factory=dict)  # origin of addresses to the record of what it points into

    def slot(self, origin: str) -> int:
        return self.slots.setdefault(origin, len(self.slots))

    def need(self, name: str, of_runtime: bool) -> None:
        if (name, of_runtime) not in self.needed:
            self.needed.append((name, of_runtime))

    def declare(self, name: str, signature: str) -> None:
        """An LLVM intrinsic or outside function: `signature` is `double(double, double)`."""
        self.intrinsics[name] = signature

    def site(self, instruction: Instruction, what: str = "") -> int:
        """The number by which a fault names an instruction."""
        if instruction not in self.site_numbers:
            self.site_numbers[instruction] = len(self.sites)
            self.sites.append((instruction.location, what or instruction.opcode))
        return self.site_numbers[instruction]


def chain(name: str, texts: Sequence[str]) -> list[str]:
    """Lines that compute `name` by `texts`, in each of which `%%` stands for the value before."""
    names = [f"{name}.{place}" for place in range(len(texts) - 1)] + [name]
    return [
        f"  {made} = {text.replace('%%', names[place - 1])}"
        for place, (made, text) in enumerate(zip(names, texts, strict=True))
    ]
