"""Writes dumps: which tensors, after which steps, into which files; and the runs that do so."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any

from kgrun.graphs.bound import BoundGraph, Warning
from kgrun.graphs.data import file_name, save_bytes, save_npy
from kgrun.graphs.errors import UsageError
from kgrun.graphs.operators import alias_of
from kgrun.runtime.dump.config import ALL, DumpConfig
from kgrun.runtime.execute import Observer, StepTimer, run_observed
from kgrun.runtime.measure import Measured
from kgrun.runtime.program import Program, Step
from kgrun.runtime.report import Dumped

if TYPE_CHECKING:
    import numpy as np

    from kgrun.runtime.loaded import LoadedProgram
    from kgrun.runtime.report import RunReport

    Array = np.ndarray[Any, Any]

READ_ONLY = 0o444
CONFIG_NAME = "dump_config.json"


class Dump:
    """One dump: what it wants of a graph, and what it wrote.

    Args:
        config: what to dump.
        device: index of the device that runs.

    Attributes:
        off: why nothing is dumped; None where it is on.
    """

    def __init__(self, config: DumpConfig, device: int = 0) -> None:
        self.config = config
        self.off: str | None = None
        if not config.enabled:
            self.off = "the configuration switches it off"
        elif config.devices is not None and device not in config.devices:
            self.off = f"support_device does not list device {device}"
        self._used: set[str] = set()
        self._files = self._nbytes = 0

    def wants_iteration(self, iteration: int) -> bool:
        """Whether iteration `iteration`, counted from 0, is dumped (S135)."""
        return self.off is None and iteration in self.config.iterations

    def wanted(self, program: Program) -> list[str]:
        """Names of the tensors to dump, in the graph's order."""
        graph = program.graph
        nodes = [
            (node.name, [n for n in program.inputs_in_file(node) if n is not None], node.written_names())
            for node in graph.nodes
        ]
        names = self.wanted_of(nodes, graph.tensors)
        return [n for n, t in graph.tensors.items() if n in names and (t.spec is None or t.spec.valid)]

    def wanted_of(
        self, nodes: Iterable[tuple[str, Iterable[str], Iterable[str]]], tensors: Container[str]
    ) -> frozenset[str]:
        """Names of the tensors to dump; remembers which of the config's names stand for something.

        Args:
            nodes: of each its name, what it reads, what it writes.
        """
        config = self.config
        names: set[str] = set()
        if config.everything:
            self._used.add(ALL)
        for node, read, written in nodes:
            if config.everything or node in config.names:
                self._used.add(node)
                names.update(read if config.inputs else ())
                names.update(written if config.outputs else ())
        for name in config.names:
            if name in tensors:
                self._used.add(name)
                names.add(name)
        return frozenset(names)

    def write(self, iteration: int, name: str, array: Array) -> None:
        """One tensor as a read-only file; UsageError where it cannot be written."""
        folder = self.config.folder / f"iteration_{iteration}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{file_name(name)}.npy"
        save_npy(path, array)
        path.chmod(READ_ONLY)
        self._files += 1
        self._nbytes += array.nbytes

    def noted(self, report: RunReport) -> RunReport:
        """The report with what was written, and with the warnings of the dump."""
        dumped, warnings = self.finish()
        return replace(report, dump=dumped, warnings=(*report.warnings, *warnings))

    def finish(self) -> tuple[Dumped | None, tuple[Warning, ...]]:
        """What was written, and warnings for a dump that was off and for names that stand for nothing (S138)."""
        if self.off is not None:
            return None, (Warning("W-DUMP-OFF", f"nothing is dumped: {self.off}"),)
        config = self.config
        if config.source is not None:
            config.folder.mkdir(parents=True, exist_ok=True)
            path = config.folder / CONFIG_NAME
            save_bytes(path, config.source.encode())
            path.chmod(READ_ONLY)
        unused = [name for name in config.names if name not in self._used]
        warnings = [
            Warning("W-DUMP-UNUSED", f"--dump {name!r} is no tensor and no node of the graph") for name in unused
        ]
        if not self._files:
            warnings.append(Warning("W-DUMP-EMPTY", "no iteration that ran was to be dumped, or no tensor"))
        return Dumped(str(config.folder), self._files, self._nbytes), tuple(warnings)


def dump_points(program: Program, names: Iterable[str]) -> tuple[list[str], dict[int, list[str]]]:
    """Tensors that are there before the first step, and those that are there after a step, by its index.

    A view is there when what it views is. A tensor whose producer has several steps is there after the last.
    """
    last: dict[int, int] = {step.node: step.index for step in program.steps}
    before: list[str] = []
    after: dict[int, list[str]] = {}
    for name in names:
        made = _made_by(program.graph, name, last)
        if made is None:
            before.append(name)
        else:
            after.setdefault(made, []).append(name)
    return before, after


def _made_by(graph: BoundGraph, name: str, last: dict[int, int]) -> int | None:
    tensor = graph.tensors[name]
    while tensor.producer is not None and tensor.producer not in last:
        node = graph.nodes[tensor.producer]
        alias = alias_of(node.call)
        source = node.inputs[alias or 0] if node.inputs else None
        if source is None or source not in graph.tensors:
            return None
        tensor = graph.tensors[source]
    return None if tensor.producer is None else last[tensor.producer]


class _Before:
    """Writes what is there before a run's first step. Implements `execute.Observer`."""

    def __init__(self, write: Callable[[], None]) -> None:
        self._write: Callable[[], None] | None = write

    def before(self, step: Step) -> None:
        """Write, once a run."""
        if self._write is not None:
            self._write()
        self._write = None

    def after(self, step: Step) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""


class After:
    """Hands over tensors after the step that made them, before another may take their bytes. An `execute.Observer`."""

    def __init__(self, after: dict[int, list[str]], write: Callable[[Sequence[str]], None]) -> None:
        self._after, self._write = after, write

    def before(self, step: Step) -> None:
        """Nothing."""

    def after(self, step: Step) -> None:
        """Write what is complete now."""
        if step.index in self._after:
            self._write(self._after[step.index])

    def finish(self) -> None:
        """Nothing."""


def run_dumped(
    loaded: LoadedProgram, iterations: int, duration: float | None, dump: Dump, host: Callable[[str], Array]
) -> Measured:
    """`iterations` runs in a row, those that are wanted dumped. Times are those of the steps, without the writing.

    The plan is the one that runs anyway: a tensor is read when its step has ended and no later one was issued.

    Args:
        duration: run for at least so many seconds instead, writing included.
        host: makes the array of a tensor that has no memory on the device.

    Raises:
        UsageError: KG270 for a file that cannot be written, KG240 where kernels are fused.
    """
    if loaded.program.fused:
        raise UsageError("--dump is for every tensor, and --fuse leaves some out", code="KG240")
    device, steps = loaded.device, loaded.program.steps
    measured = Measured(methods=[step.method for step in loaded.prepared])
    timer = StepTimer(device, len(steps))
    before, after = dump_points(loaded.program, dump.wanted(loaded.program))
    deadline = None if duration is None else monotonic() + duration
    for iteration in count():
        enough = iteration >= iterations if deadline is None else iteration > 0 and monotonic() >= deadline
        if enough or (iteration and not loaded.feed.more()):
            break
        loaded.feed.next()

        def write(names: Sequence[str], iteration: int = iteration) -> None:
            for name in names:
                array = loaded.read(name, pinned=False)
                dump.write(iteration, name, host(name) if array is None else array)

        observers: list[Observer] = [timer]
        if dump.wants_iteration(iteration):
            observers = [_Before(lambda write=write: write(before)), timer, After(after, write)]  # type: ignore[misc]
            if not steps:
                write(before)
        run_observed(device, steps, loaded.prepared, observers)
        measured.totals.append(sum(samples[-1] for samples in timer.samples))
    measured.samples, measured.timeline = timer.samples, timer.timeline
    measured.floors = dict.fromkeys(measured.methods, device.marks_floor()) if measured.methods else {}
    return measured
