"""Control flow of one function: what an instruction reads and writes, basic blocks, liveness at suspend points."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kgrun.runtime.compile.ptx.syntax import Function, Instruction, identifiers

# Opcodes whose first operand is no destination. (`atom` and `ld` write theirs; `red` and `st` do not.)
_NO_DESTINATION = frozenset(
    (
        *("st", "red", "bra", "brx", "bar", "barrier", "ret", "exit", "trap", "brkpt", "membar", "fence", "call", "cp"),
        *("prefetch", "prefetchu", "discard", "applypriority", "pmevent", "nanosleep", "stmatrix", "setmaxnreg"),
        *("griddepcontrol", "mbarrier", "stackrestore", "wmma"),
    )
)
_BLOCK_ENDS = frozenset(("bra", "brx", "ret", "exit", "trap"))


def is_suspend(instruction: Instruction) -> bool:
    """Whether other threads must run before this one goes on: barriers and warp-wide operations."""
    parts = instruction.parts
    match parts[0]:
        case "bar":
            return not (len(parts) > 1 and parts[1] == "arrive")
        case "barrier":
            return "arrive" not in parts
        case "shfl" | "vote" | "match" | "redux" | "activemask" | "ldmatrix" | "stmatrix" | "mma" | "movmatrix":
            return True
        case "wmma":
            return parts[1] == "mma"
    return False


def definitions(instruction: Instruction) -> tuple[str, ...]:
    """The registers that `instruction` writes."""
    head = instruction.parts[0]
    if head == "call":
        return ()
    if head in _NO_DESTINATION and not _writes_after_all(instruction):
        return ()
    return tuple(name for name in identifiers(instruction.operands[0]) if name != "_") if instruction.operands else ()


def uses(instruction: Instruction) -> tuple[str, ...]:
    """The names that `instruction` reads: registers, and symbols that the caller ignores."""
    skip = 1 if definitions(instruction) or _discards(instruction) else 0
    names = [name for operand in instruction.operands[skip:] for name in identifiers(operand)]
    return (*names, instruction.guard) if instruction.guard else tuple(names)


def _writes_after_all(instruction: Instruction) -> bool:
    parts = instruction.parts
    if parts[0] in ("bar", "barrier"):
        return "red" in parts
    if parts[0] == "wmma":
        return parts[1] != "store"
    return parts[0] == "mbarrier" and parts[1] in ("arrive", "test_wait", "try_wait", "arrive_drop", "pending_count")


def _discards(instruction: Instruction) -> bool:
    return bool(instruction.operands) and instruction.operands[0] == "_" and instruction.parts[0] != "st"


@dataclass
class Block:
    """A basic block: instructions [start, end) of the flat list, and the blocks that may follow it."""

    label: str
    start: int
    end: int
    successors: list[int] = field(default_factory=list)


@dataclass
class Flow:
    """A function as a flat list of instructions, cut into blocks."""

    instructions: list[Instruction]
    blocks: list[Block]
    in_cycle: frozenset[int]


def build_flow(function: Function) -> Flow:
    """Blocks start at labels and after branches; a guarded `ret` or `bra` falls through as well."""
    instructions: list[Instruction] = []
    blocks: list[Block] = [Block("", 0, 0)]
    names: dict[str, int] = {}
    open_block = True
    for item in function.body:
        if isinstance(item, str):
            if not open_block or blocks[-1].start != len(instructions) or blocks[-1].label:
                blocks[-1].end = len(instructions)
                blocks.append(Block(item, len(instructions), 0))
            else:
                blocks[-1].label = item
            names[item] = len(blocks) - 1
            open_block = True
            continue
        if not open_block:
            blocks[-1].end = len(instructions)
            blocks.append(Block("", len(instructions), 0))
        instructions.append(item)
        open_block = item.parts[0] not in _BLOCK_ENDS
    blocks[-1].end = len(instructions)
    for place, block in enumerate(blocks):
        _link(block, place, instructions, names, function, len(blocks))
    return Flow(instructions, blocks, _cyclic(blocks))


def _link(
    block: Block,
    place: int,
    instructions: list[Instruction],
    names: dict[str, int],
    function: Function,
    count: int,
) -> None:
    last = instructions[block.end - 1] if block.end > block.start else None
    following = [place + 1] if place + 1 < count else []
    if last is None or last.parts[0] not in _BLOCK_ENDS:
        block.successors = following
        return
    targets: list[int] = []
    if last.parts[0] == "bra":
        targets = [names[last.operands[0]]]
    elif last.parts[0] == "brx":
        targets = [names[label] for label in function.branch_targets[last.operands[1]]]
    block.successors = list(dict.fromkeys(targets + (following if last.guard else [])))


def _cyclic(blocks: list[Block]) -> frozenset[int]:
    """The blocks that lie on a cycle, by Tarjan's strongly connected components (1972), without recursion."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    cyclic: set[int] = set()
    for root in range(len(blocks)):
        if root in order:
            continue
        work = [(root, 0)]
        while work:
            node, child = work.pop()
            if child == 0:
                order[node] = low[node] = len(order)
                stack.append(node)
            followers = blocks[node].successors
            if child < len(followers):
                work.append((node, child + 1))
                if followers[child] not in order:
                    work.append((followers[child], 0))
                continue
            for follower in followers:
                if follower in low:
                    low[node] = min(low[node], low[follower])
            if low[node] == order[node]:
                component = stack[stack.index(node) :]
                del stack[stack.index(node) :]
                for member in component:
                    low[member] = len(blocks) + len(order)  # done: must not lower anyone any more
                if len(component) > 1 or node in followers:
                    cyclic.update(component)
    return frozenset(cyclic)


def live_across(
    flow: Flow, registers: Iterable[str], suspends: Iterable[int], done: frozenset[int] = frozenset()
) -> dict[int, list[str]]:
    """For the index of each suspend point, the registers alive just after it.

    Its own results are left out: they arrive when it goes on. Those `done` have them already and keep them.
    """
    numbers = {name: place for place, name in enumerate(registers)}
    names = list(numbers)
    reads: list[int] = []
    writes: list[int] = []
    kills: list[int] = []
    for instruction in flow.instructions:
        reads.append(_mask(uses(instruction), numbers))
        writes.append(_mask(definitions(instruction), numbers))
        kills.append(0 if instruction.guard else writes[-1])
    live_in = [0] * len(flow.blocks)
    changed = True
    while changed:
        changed = False
        for place in range(len(flow.blocks) - 1, -1, -1):
            block = flow.blocks[place]
            live = 0
            for follower in block.successors:
                live |= live_in[follower]
            for index in range(block.end - 1, block.start - 1, -1):
                live = (live & ~kills[index]) | reads[index]
            if live != live_in[place]:
                live_in[place] = live
                changed = True
    wanted = set(suspends)
    result: dict[int, list[str]] = {}
    for block in flow.blocks:
        live = 0
        for follower in block.successors:
            live |= live_in[follower]
        for index in range(block.end - 1, block.start - 1, -1):
            if index in wanted:
                kept = live if index in done else live & ~kills[index]
                result[index] = [names[bit] for bit in _bits(kept)]
            live = (live & ~kills[index]) | reads[index]
    return result


def _mask(words: Iterable[str], numbers: dict[str, int]) -> int:
    mask = 0
    for word in words:
        if (number := numbers.get(word)) is not None:
            mask |= 1 << number
    return mask


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found
