"""Checks inside custom kernels on the CPU: the buffers a kernel may touch, and its faults as findings."""

from __future__ import annotations

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.errors import DeviceFault, Place
from kgrun.graphs.records import dataclass
from kgrun.runtime.checks.findings import Finding, Other
from kgrun.runtime.checks.operands import Operand, element_text, launch_operands
from kgrun.runtime.checks.places import source_place
from kgrun.runtime.checks.watch import Watch
from kgrun.runtime.compile.ptx.faults import Fault
from kgrun.runtime.compile.ptx.launch import BufferInfo
from kgrun.runtime.devices.base import Address
from kgrun.runtime.program import Program, Step

_CHECK_OF = {
    "out-of-bounds": "bounds",
    "use-after-free": "bounds",
    "bad-free": "bounds",
    "misaligned": "bounds",
    "read-only-write": "readonly",
    "race": "race",
    "block-race": "race",
    "uninitialised": "init",
    "deadlock": "barrier",
    "divergent-barrier": "barrier",
}


@dataclass(frozen=True, slots=True)
class KernelChecks:
    """What the CPU device does with custom kernels besides running them.

    Attributes:
        names: checks that follow every access; none for a plain run.
        schedule: forward, reverse or random:SEED.
        watch: takes the findings; None ends the run at the first fault.
    """

    program: Program
    names: frozenset[str] = frozenset()
    schedule: str = "forward"
    watch: Watch | None = None

    def buffers(self, step: Step, address: Address) -> list[BufferInfo]:
        """The node's tensors and workspaces; any other byte is out of bounds."""
        return [
            BufferInfo(each.name, address(each.pointer), each.nbytes, each.readonly, each.initialised)
            for each in launch_operands(self.program, step)
        ]

    def take(self, step: Step, faults: list[Fault]) -> None:
        """Keep the faults of a launch as findings; DeviceFault where nothing keeps them."""
        found = [self._finding(step, fault) for fault in faults]
        if self.watch is not None and self.names:
            self.watch.add(found)
        elif found:
            raise fault_error(found)

    def _finding(self, step: Step, fault: Fault) -> Finding:
        operands = {each.name: each for each in launch_operands(self.program, step)}
        operand = operands.get(fault.tensor)
        what, element = _target(fault, operand)
        other = None
        if fault.other is not None:
            place = self._place(fault.other.file, fault.other.line)
            other = Other(place, _verb(fault.other.operation), fault.other.block, fault.other.thread)
        return Finding(
            check=_CHECK_OF.get(fault.kind, "trap"),
            message=_message(step, fault, what, operand, other),
            where=self._place(fault.file, fault.line) or self._node_place(step),
            node=step.name,
            op=step.op,
            tensor=fault.tensor,
            element=element,
            block=fault.block,
            thread=fault.thread,
            count=fault.count,
            other=other,
        )

    def _place(self, file: str, line: int) -> Place | None:
        return source_place(self.program.graph.source, file, line or None) if file else None

    def _node_place(self, step: Step) -> Place:
        return self.program.graph.source.place("nodes", self.program.node_of(step).position)


def fault_error(found: list[Finding]) -> DeviceFault:
    """Faults that end a run without checks: deadlocks, traps, failed assertions."""
    errors = [DeviceFault(each.message, code="KG611", where=each.where) for each in found]
    errors[0].others = tuple(errors[1:])
    errors[0].help = "--check all tells more"
    return errors[0]


def _target(fault: Fault, operand: Operand | None) -> tuple[str, int | None]:
    """The element in words, and its index where it is one of the tensor's."""
    if operand is None or fault.offset is None:
        at = f" byte {fault.offset}" if fault.offset is not None else ""
        return (f"{fault.tensor}{at}" if fault.tensor else "an address of no tensor of the node"), None
    size = DTYPES[operand.dtype].itemsize
    index, inside = divmod(fault.offset, size)
    if 0 <= fault.offset < operand.nbytes:
        rest = f" (its byte {inside})" if inside else ""
        return element_text(operand.name, operand.shape, index) + rest, index
    return f"{operand.name} element {index}", None


def _message(step: Step, fault: Fault, what: str, operand: Operand | None, other: Other | None) -> str:
    who = f"{step.name!r} ({fault.kernel}), block {_dims(fault.block)}, thread {_dims(fault.thread)}"
    verb = _verb(fault.operation)
    times = f"; {fault.count:,} times" if fault.count > 1 else ""
    text = {
        "out-of-bounds": f"{who} {verb} {what}, {_outside(operand)}",
        "use-after-free": f"{who} {verb} {what} after it was freed",
        "bad-free": f"{who} frees what malloc did not give, or what was freed before",
        "misaligned": f"{who} {verb} {what} at an address that is no multiple of {fault.size} bytes",
        "read-only-write": f"{who} {verb} {what}, an input of the node that no output takes over",
        "race": f"{who} {verb} {what}, in a race with another thread of its block",
        "block-race": f"{who} {verb} {what}, in a race with another block",
        "uninitialised": f"{who} {verb} {what} before anything wrote it",
        "deadlock": f"{who} waits for threads that never come",
        "divergent-barrier": f"{who} waits at another barrier than the rest of its block",
        "trap": f"{who} trapped",
        "assertion": f"{who} failed an assertion",
    }[fault.kind]
    if other is not None:
        text += f"; the other: block {_dims(other.block)}, thread {_dims(other.thread)} {other.operation}"
        text += f" at {other.where}" if other.where else ""
    return text + times


def _outside(operand: Operand | None) -> str:
    if operand is None:
        return "out of bounds"
    count = operand.nbytes // DTYPES[operand.dtype].itemsize
    return f"out of bounds: {operand.name} has {count:,} elements"


def _verb(operation: str) -> str:
    """`reads`, `writes`, `updates` or `waits`, for a PTX operation."""
    head = operation.partition(".")[0]
    if head.startswith(("atom", "red")):
        return "updates"
    return {"ld": "reads", "ldu": "reads", "st": "writes", "wait": "waits"}.get(head, f"touches ({operation})")


def _dims(dims: tuple[int, int, int]) -> str:
    return f"({', '.join(map(str, dims))})"
