"""Checks from outside, the same on every device: observers that look at memory before and after each step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.bound import BoundGraph
from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.dtypes import DTYPES
from kgrun.runtime.checks.names import CHECKS, CheckSettings
from kgrun.runtime.checks.operands import Operand, element_text, launch_operands
from kgrun.runtime.checks.poison import poison, unwritten
from kgrun.runtime.devices.base import Device
from kgrun.runtime.execute import Observer, StepTimer, SyncEach, run_observed
from kgrun.runtime.measure import Measured
from kgrun.runtime.program import Launch, Program, Step

if TYPE_CHECKING:
    from kgrun.runtime.checks.findings import Finding
    from kgrun.runtime.checks.redzones import Redzones
    from kgrun.runtime.loaded import LoadedProgram

Array = np.ndarray[Any, Any]


class Watch:
    """The checks of one session; collects what they find, each distinct fault once.

    Attributes:
        findings: so far, by key, in the order they were found.
    """

    def __init__(self, settings: CheckSettings) -> None:
        self.settings = settings
        self.findings: dict[tuple[object, ...], Finding] = {}

    @property
    def checked(self) -> tuple[str, ...]:
        """Names of the checks, in the order of `CHECKS`."""
        return tuple(name for name in CHECKS if name in self.settings.names)

    def check_arguments(self, bound: BoundGraph, arch: str | None) -> None:
        """With checks on, GraphError for launches that contradict their kernel's signature, type by type."""
        if self.settings.names and bound.source.kernels:
            from kgrun.runtime.checks.target import check_arguments_of

            check_arguments_of(bound, arch or "sm_80")

    def attach(self, device: Device, program: Program) -> None:
        """Tell a CPU device, before it prepares the program's steps, what to follow in custom kernels."""
        if device.info.kind == "cpu" and any(isinstance(step.work, Launch) for step in program.steps):
            from kgrun.runtime.checks.followed import KernelChecks
            from kgrun.runtime.devices.cpu import CpuDevice

            if isinstance(device, CpuDevice):
                device.check_kernels(KernelChecks(program, self.settings.followed, self.settings.schedule, self))

    def add(self, findings: Iterable[Finding]) -> None:
        """Keep those that are new."""
        for finding in findings:
            self.findings.setdefault(finding.key, finding)

    def run(self, loaded: LoadedProgram, iterations: int) -> Measured:
        """`iterations` checked runs. Times are those of the steps alone, without the looking."""
        self.findings.clear()
        device, steps = loaded.device, loaded.program.steps
        measured = Measured(methods=[step.method for step in loaded.prepared])
        timer = StepTimer(device, len(steps))
        looking = _Looking(self, loaded)
        observers: list[Observer] = [_Preparing(looking), timer, SyncEach(device), _Inspecting(looking)]
        for _ in range(iterations):
            looking.start()
            loaded.feed.next()
            run_observed(device, steps, loaded.prepared, observers)
            measured.totals.append(sum(samples[-1] for samples in timer.samples))
        measured.samples, measured.timeline = timer.samples, timer.timeline
        return measured


class _Looking:
    """What is known of memory during one run."""

    def __init__(self, watch: Watch, loaded: LoadedProgram) -> None:
        self.watch, self.loaded, self.program = watch, loaded, loaded.program
        self.names = watch.settings.names
        self._operands: dict[int, tuple[Operand, ...]] = {}
        self._inputs: dict[int, list[tuple[Operand, Array]]] = {}
        self._tainted: set[int] = set()  # buffers that hold NaN or infinity which was reported, or came from outside
        self._incomplete: set[int] = set()  # buffers with elements that nothing wrote
        self._redzones: Redzones | None = None
        if "redzone" in self.names:
            from kgrun.runtime.checks.redzones import Redzones

            self._redzones = Redzones(loaded)

    def start(self) -> None:
        self._tainted.clear()
        self._incomplete.clear()
        if self._redzones is not None:
            self._redzones.start()

    def before(self, step: Step) -> None:
        if self._redzones is not None:
            self._redzones.before(step)
        operands = () if step.index in self.loaded.skipped else launch_operands(self.program, step)
        self._operands[step.index] = operands
        device, address = self.loaded.device, self.loaded.address
        if "init" in self.names:
            for each in operands:
                if not each.initialised:
                    device.upload(address(each.pointer), poison(each.dtype, each.nbytes, each.pointer.buffer))
        if "readonly" in self.names and "bounds" not in self.names:  # which suppresses and reports such writes
            self._inputs[step.index] = [(each, self._bytes(each)) for each in operands if each.readonly]

    def after(self, step: Step) -> None:
        if step.index in self.loaded.skipped:
            self._tainted.update(step.writes)
            return
        fresh: dict[str, Array] = {}
        if "init" in self.names:
            self.watch.add(self._unwritten(step, fresh))
        if "readonly" in self.names:
            self.watch.add(self._changed(step))
        if "nan" in self.names:
            self.watch.add(self._not_finite(step, fresh))
        if self._redzones is not None:
            self.watch.add(self._redzones.after(step))

    def _bytes(self, operand: Operand) -> Array:
        content = np.empty(operand.nbytes, np.uint8)
        self.loaded.device.download(self.loaded.address(operand.pointer), content)
        return content

    def _finding(self, check: str, message: str, step: Step, tensor: str, element: int, count: int) -> Finding:
        from kgrun.runtime.checks.findings import Finding

        where = self.program.graph.source.place("nodes", self.program.node_of(step).position)
        return Finding(check, message, where, step.name, step.op, tensor, element, count=count)

    def _unwritten(self, step: Step, fresh: dict[str, Array]) -> Iterator[Finding]:
        """Outputs with elements that still hold their poison; `fresh` gets which, by tensor.

        Of a kernel that ended itself half-way, which is reported, the rest is no fault of its own.
        """
        ended = any(each.check == "trap" and each.node == step.name for each in self.watch.findings.values())
        for each in self._operands[step.index]:
            if not each.output or each.initialised:
                continue
            if DTYPES[each.dtype].itemsize <= 2 and not self._incomplete.isdisjoint(step.reads):
                # Poison of so few bits, copied from an input, may look like the output's own.
                self._incomplete.add(each.pointer.buffer)
                continue
            left = unwritten(self._bytes(each), each.dtype, each.pointer.buffer)
            count = int(np.count_nonzero(left))
            if count:
                fresh[each.name] = left
                self._incomplete.add(each.pointer.buffer)
                if ended:
                    continue
                first = int(np.argmax(left))
                what = element_text(each.name, each.shape, first)
                message = f"{step.name!r} ({step.op}) never wrote {what}: {count:,} of {left.size:,} elements"
                yield self._finding("init", message, step, each.name, first, count)

    def _changed(self, step: Step) -> Iterator[Finding]:
        for each, before in self._inputs.pop(step.index, ()):
            size = DTYPES[each.dtype].itemsize
            differs = (self._bytes(each) != before).reshape(-1, size).any(axis=1)
            if differs.any():
                first, count = int(np.argmax(differs)), int(np.count_nonzero(differs))
                what = element_text(each.name, each.shape, first)
                message = f"{step.name!r} ({step.op}) changed its input {what}: {count:,} elements"
                yield self._finding("readonly", message, step, each.name, first, count)

    def _not_finite(self, step: Step, fresh: dict[str, Array]) -> Iterator[Finding]:
        """Float results that are not finite although all inputs are; elements that nothing wrote do not count."""
        for name in self._results(step):
            slot, kind = self.program.slots[name], self.program.graph.tensors[name].type
            content = self._floats(name)
            bad = ~np.isfinite(content)
            if not bad.any():
                self._tainted.discard(slot.buffer)
                continue
            inherited = any(self._holds_bad(index, step) for index in step.reads)
            self._tainted.add(slot.buffer)
            if name in fresh:
                bad &= ~fresh[name]
            if inherited or not bad.any():
                continue
            first, count = int(np.argmax(bad)), int(np.count_nonzero(bad))
            what = element_text(name, kind.shape, first)
            value = "NaN" if np.isnan(content[first]) else "infinite"
            message = (
                f"{step.name!r} ({step.op}) made {what} {value}: {count:,} of {bad.size:,} elements are not finite"
            )
            yield self._finding("nan", message, step, name, first, count)

    def _results(self, step: Step) -> list[str]:
        """Float tensors whose value is complete once `step` has run: results of the last step of a node."""
        node, steps = self.program.node_of(step), self.program.steps
        if step.index + 1 < len(steps) and steps[step.index + 1].node == step.node:
            return []
        tensors, slots = self.program.graph.tensors, self.program.slots
        return [
            name
            for name in node.written_names()
            if name in slots and DTYPES[tensors[name].type.dtype].kind == "float" and tensors[name].nbytes
        ]

    def _holds_bad(self, buffer: int, step: Step) -> bool:
        """Whether a buffer that `step` read holds NaN or infinity: known of results, looked up of outside data."""
        if buffer in self._tainted:
            return True
        name = self.program.buffers[buffer].name
        tensor = self.program.graph.tensors.get(name)
        outside = tensor is not None and (tensor.producer is None or self._runs_nothing(tensor.producer))
        if not outside or buffer in step.writes or tensor is None or DTYPES[tensor.type.dtype].kind != "float":
            return False
        if tensor.nbytes and not np.isfinite(self._floats(name)).all():
            self._tainted.add(buffer)
        return buffer in self._tainted

    def _runs_nothing(self, node: int) -> bool:
        return all(step.node != node for step in self.program.steps)

    def _floats(self, name: str) -> Array:
        """A float tensor's elements, flat, in a type that numpy knows NaN of."""
        kind = self.program.graph.tensors[name].type
        content = np.empty(kind.nbytes, np.uint8)
        self.loaded.device.download(self.loaded.address(self.program.slots[name]), content)
        array = content.view(numpy_dtype(kind.dtype))
        return array if kind.dtype in ("float64", "float32", "float16") else array.astype(np.float32)


class _Preparing:
    """The observer before the timer: poison and canaries."""

    def __init__(self, looking: _Looking) -> None:
        self._looking = looking

    def before(self, step: Step) -> None:
        """Poison what is to be written."""
        self._looking.before(step)

    def after(self, step: Step) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""


class _Inspecting(_Preparing):
    """The observer after the timer: looks at what the step left."""

    def before(self, step: Step) -> None:
        """Nothing."""

    def after(self, step: Step) -> None:
        """Look."""
        self._looking.after(step)
