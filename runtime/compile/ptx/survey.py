"""What the quick pass must know of a kernel beforehand: sizes and origins of its accesses, states to look at."""

from __future__ import annotations

from kgrun.runtime.compile.ptx import provenance
from kgrun.runtime.compile.ptx.flow import Flow, is_suspend
from kgrun.runtime.compile.ptx.immediates import immediate
from kgrun.runtime.compile.ptx.inspection import Facts, Inspection, inspect_all
from kgrun.runtime.compile.ptx.lowering import Lowering
from kgrun.runtime.compile.ptx.memory import space_of
from kgrun.runtime.compile.ptx.parse import Module
from kgrun.runtime.compile.ptx.quick import known
from kgrun.runtime.compile.ptx.quick_values import MOST_GRANULES, Access, Quick
from kgrun.runtime.compile.ptx.syntax import SIZES, Function, Instruction, parse_address, vector_elements

_MOST_SHIFT = 2  # a stamp has four bytes: so a place is a place of stamps, or an even multiple of it
_LOADS, _STORES = frozenset(("ld", "ldu")), frozenset(("st", "red"))


def plain_barriers(flow: Flow) -> frozenset[int]:
    """Indices of `bar.sync 0`: barriers that all threads of a block reach before any goes on."""
    found = set()
    for index, i in enumerate(flow.instructions):
        is_barrier = i.parts[0] in ("bar", "barrier") and is_suspend(i) and not {"warp", "red", "cluster"} & {*i.parts}
        if is_barrier and not i.guard and len(i.operands) == 1 and immediate(i.operands[0], "i32") == "0":
            found.add(index)
    return frozenset(found)


def quick_settings(
    module: Module,
    function: Function,
    flow: Flow,
    checks: frozenset[str],
    shared: dict[str, int],
    sizes: dict[str, int],
    addresses: dict[str, int],
) -> Quick:
    """The settings of a kernel's quick pass; `sizes` are the shared variables' bytes, 0 for the dynamic one."""

    def symbol(name: str) -> str:
        return f"shared:{name}" if name in shared else f"global:{name}" if name in addresses else ""

    origins = provenance.origins(function, symbol)
    called = [name for name, other in module.signatures.items() if not other.is_entry and module.has_body(name)]
    others = [item for name in called for item in module.function(name).body if isinstance(item, Instruction)]
    written: set[str] = set()
    anywhere = False
    shifts = {"global": _MOST_SHIFT, "shared": _MOST_SHIFT}
    for place, i in enumerate((*flow.instructions, *others)):
        size = element_size(i)
        if not size:
            continue
        space = access_space(i)
        for kind in ("global", "shared") if space == "generic" else (space,):
            if kind in shifts:
                shifts[kind] = min(shifts[kind], size.bit_length() - 1)
        if is_write(i) and space in ("global", "generic"):
            base = (
                "" if place >= len(flow.instructions) or i.parts[0] == "wmma" else parse_address(address_operand(i))[0]
            )
            origin = origins.get(base) or symbol(base)
            anywhere |= not origin
            written |= {origin} - {""}
    ends = {f"shared:{name}": (begin, begin + sizes[name] if sizes[name] else None) for name, begin in shared.items()}
    return Quick(
        stamps=bool(checks & {"race", "init"}),
        init="init" in checks,
        shift=shifts["global"],
        shared_shift=shifts["shared"],
        written=frozenset(written),
        anywhere=anywhere,
        waits=any(is_suspend(i) for i in flow.instructions),
        ends=ends,
    )


def inspections_of(lowering: Lowering, settings: Quick) -> list[Inspection | None]:
    """How each state of a kernel is looked at before it runs; None for those that are tested as they run."""
    if lowering.spins:
        return [None] * len(lowering.kinds)
    flow = lowering.flow
    clear: set[int] = set()
    shared: set[int] = set()
    written: dict[int, str] = {}
    for index, i in enumerate(flow.instructions):
        if i.parts[0] not in (*_LOADS, *_STORES, "atom") or not element_size(i):
            continue
        space, operand = access_space(i), address_operand(i)
        origin = lowering.origin(operand)
        total = element_size(i) * len(vector_elements(_values(i)))
        granules = total >> (settings.shared_shift if space == "shared" else settings.shift)
        access = Access(space, "", "", total, 0, origin)
        if known(lowering, access) and granules <= MOST_GRANULES:
            clear.add(index)
        if space == "shared":
            shared.add(index)
        if origin in settings.written:
            written[index] = origin
    facts = Facts(clear, shared, written, plain_barriers(flow), settings.stamps, settings.init)
    return inspect_all(flow, (None, *lowering.points), facts)


def element_size(i: Instruction) -> int:
    """Bytes of one element that an instruction loads, stores or updates; 0 for other instructions."""
    head = i.parts[0]
    if head in (*_LOADS, *_STORES, "atom"):
        if len(i.parts) > 1 and i.parts[1].startswith(("param", "const")):
            return 0
        return next((SIZES[part] for part in reversed(i.parts) if part in SIZES), 0)
    if head == "wmma" and i.parts[1] in ("load", "store"):
        return next((SIZES[part] for part in reversed(i.parts) if part in SIZES), 0)
    if (
        head == "cp"
        and len(i.parts) > 2
        and i.parts[1] == "async"
        and "group" not in i.parts[2]
        and len(i.operands) > 2
    ):
        return 4
    return 8 if head == "mbarrier" or (head == "cp" and "mbarrier" in i.parts) else 0


def access_space(i: Instruction) -> str:
    """`space_of`, for mbarriers and asynchronous copies as well: what these may touch."""
    if "mbarrier" in i.parts:
        return "shared"
    return "generic" if i.parts[0] == "cp" else space_of(i)


def is_write(i: Instruction) -> bool:
    """Whether it writes global memory, or may."""
    return i.parts[0] in (*_STORES, "atom") or (i.parts[0] == "wmma" and i.parts[1] == "store")


def address_operand(i: Instruction) -> str:
    """The operand `[address]` of a load, store or atomic."""
    return i.operands[0] if i.parts[0] in _STORES else i.operands[1]


def _values(i: Instruction) -> str:
    """The operand with the values, one or a vector."""
    if i.parts[0] in _LOADS:
        return i.operands[0]
    return i.operands[1] if i.parts[0] in _STORES else i.operands[2]
