"""States that can be looked at before they run: their addresses and branches depend on no data that they load."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from kgrun.graphs.records import dataclass
from kgrun.runtime.compile.ptx.flow import Flow, definitions, is_suspend, uses
from kgrun.runtime.compile.ptx.quick_values import BOUNDS, CLAIM, CONFIRM, READERS
from kgrun.runtime.compile.ptx.syntax import Instruction, parse_address

_ACCESSES = frozenset(("ld", "ldu", "st", "atom", "red"))
_ORDERED = frozenset(("volatile", "acquire", "release", "relaxed", "mmio"))
_UNFIT = frozenset(("call", "mbarrier", "wmma", "brx", "trap", "stackrestore", "mapa"))
_CLOCKS = ("%clock", "%globaltimer")
_MOST_INSTRUCTIONS = 2500
_MANY_READS = 16


@dataclass(frozen=True, slots=True)
class Inspection:
    """How a state is looked at.

    Attributes:
        looks: in their order.
        writes: whether it writes at all.
        fills_shared: whether it may write the last of shared memory that nothing wrote yet, where that matters.
        quiet: whether no look need ask who wrote the shared memory that it reads: a barrier lies between.
        assumes_complete: whether it is only looked at once all of shared memory was written, because it reads many.
    """

    looks: tuple[str, ...]
    writes: bool
    fills_shared: bool
    quiet: bool = False
    assumes_complete: bool = False

    @property
    def unread(self) -> bool:
        """Whether it must not be looked at once readers have left stamps, because no look asks for them."""
        return self.writes and READERS not in self.looks

    def condition(self, look: str) -> str:
        """The flag of a block that decides on a look: `noted` asks for it, `complete` does away with it."""
        if look == READERS:
            return "noted"
        return "complete" if look == CLAIM and not self.writes else ""


@dataclass(frozen=True)
class Facts:
    """What is known of a kernel: the accesses that can be tested in place, those that only a barrier orders.

    Attributes:
        known: indices of accesses whose address has a clear origin.
        shared: of these, those of shared memory.
        written: of accesses through an origin that the kernel also writes through, the origin by index.
        barriers: indices of suspend points that every thread of a block reaches before any goes on.
        stamps, init: as `quick.Quick` has them.
    """

    known: Collection[int]
    shared: Collection[int]
    written: Mapping[int, str]
    barriers: Collection[int]
    stamps: bool
    init: bool


def inspect_all(flow: Flow, starts: Sequence[int | None], facts: Facts) -> list[Inspection | None]:
    """`inspect` for every state. Where all can be looked at, readers leave no stamps but in exceptions."""
    found = [inspect(flow, start, facts) for start in starts]
    if None in found:
        return found
    return [each and replace(each, looks=tuple(look for look in each.looks if look != READERS)) for each in found]


def inspect(flow: Flow, start: int | None, facts: Facts) -> Inspection | None:
    """How the state behind the suspend point `start` (None: at the kernel's start) is looked at; None: not at all."""
    indices, exits = _reachable(flow, start)
    if len(indices) > _MOST_INSTRUCTIONS:
        return None
    instructions = {index: flow.instructions[index] for index in sorted(indices)}
    accesses = {index: i for index, i in instructions.items() if _is_access(i)}
    if not all(_fits(i) for i in instructions.values()) or not all(index in facts.known for index in accesses):
        return None
    if any(flow.instructions[index].guard for index in exits):
        return None
    if not accesses or _depends_on_data(instructions, accesses):
        return None
    fresh = start is None or start in facts.barriers
    closed = all(index in facts.barriers for index in exits)
    writes = {index for index, i in accesses.items() if i.parts[0] not in ("ld", "ldu")}
    shared_reads = {index for index in accesses if index in facts.shared and index not in writes}
    if facts.stamps and shared_reads and not closed:
        return None  # later writes before the next barrier must find the readers' stamps
    if not facts.stamps:
        return Inspection((BOUNDS,), bool(writes), fills_shared=False)
    looks = [BOUNDS]
    quiet = fresh and not any(index in facts.shared for index in writes)
    assumes = facts.init and quiet and len(shared_reads) > _MANY_READS
    if writes or (facts.init and shared_reads and not assumes):
        looks.append(CLAIM)
    reads = {index for index in accesses if index not in writes}
    both = {facts.written[index] for index in writes if index in facts.written}
    if any(facts.written[index] not in both for index in reads if index in facts.written):
        return None  # their stamps must be left, for blocks and states that write there
    if writes or (shared_reads and not fresh):
        looks.append(CONFIRM)
    if writes:
        looks.append(READERS)
    fills = facts.init and any(index in facts.shared for index in writes)
    return Inspection(tuple(looks), bool(writes), fills, quiet, assumes)


def _reachable(flow: Flow, start: int | None) -> tuple[set[int], set[int]]:
    """Indices of the instructions that can run before the next suspend point, and of those suspend points."""
    numbers = range(len(flow.blocks))
    if start is None:
        work = [(0, flow.blocks[0].start)]
    else:
        work = [(next(n for n in numbers if flow.blocks[n].start <= start < flow.blocks[n].end), start + 1)]
    seen: set[int] = set()
    exits: set[int] = set()
    entered: set[int] = set()
    while work:
        number, first = work.pop()
        block = flow.blocks[number]
        for index in range(first, block.end):
            i = flow.instructions[index]
            if is_suspend(i):
                exits.add(index)
                if not i.guard:
                    break
            seen.add(index)
        else:
            work += [(n, flow.blocks[n].start) for n in block.successors if n not in entered]
            entered.update(block.successors)
    return seen, exits


def _is_access(i: Instruction) -> bool:
    return i.parts[0] in _ACCESSES and len(i.parts) > 1 and not i.parts[1].startswith(("param", "const"))


def _fits(i: Instruction) -> bool:
    head = i.parts[0]
    if head in _UNFIT or (head == "cp" and i.parts[2] not in ("commit_group", "wait_group", "wait_all")):
        return False
    if head in ("ld", "st") and _ORDERED.intersection(i.parts):
        return False
    if head in ("atom", "red") and "cas" in i.parts:
        return False
    return "local" not in i.parts and not any(operand.startswith(_CLOCKS) for operand in i.operands)


def _depends_on_data(instructions: dict[int, Instruction], accesses: dict[int, Instruction]) -> bool:
    """Whether a loaded value decides on an address, a branch, or whether an access happens."""
    data: set[str] = set()
    for index, i in accesses.items():
        if i.parts[0] in ("ld", "ldu", "atom"):
            data.update(definitions(instructions[index]))
    changed = True
    while changed:
        changed = False
        for i in instructions.values():
            if not data.isdisjoint(uses(i)):
                made = set(definitions(i)) - data
                if made:
                    data |= made
                    changed = True
    for i in instructions.values():
        if i.guard in data and (i.parts[0] in ("bra", "ret", "exit", "bar", "barrier") or _is_access(i)):
            return True
    for i in accesses.values():
        place = i.operands[0] if i.parts[0] in ("st", "red") else i.operands[1]
        if parse_address(place)[0] in data:
            return True
    return False
