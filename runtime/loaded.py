"""A program on its device: memory allocated, code loaded, arguments packed, captured where that is possible."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.errors import KgrunError, UsageError
from kgrun.runtime.checks.places import in_users_files
from kgrun.runtime.checks.skipped import POISON, SkippedStep, cannot_run
from kgrun.runtime.culprit import Tell, blaming
from kgrun.runtime.devices.base import Device, NotCapturable, PreparedStep, Replay
from kgrun.runtime.drawn_ahead import in_order, is_drawn
from kgrun.runtime.host_data import Array, closed_session, host_array
from kgrun.runtime.lower.program import pinned_name
from kgrun.runtime.measure import Runner
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.offloaded import HostHomes
from kgrun.runtime.phases import Phases
from kgrun.runtime.program import Buffer, MemoryClass, Pointer, Program, Step
from kgrun.runtime.program import Transfer as TransferWork
from kgrun.runtime.queues.base import Feed
from kgrun.runtime.regions import Regions
from kgrun.runtime.repeats import repeats
from kgrun.runtime.report import Skipped, Transfer
from kgrun.runtime.stepwise import told_steps
from kgrun.runtime.streams import dependencies, plan_streams

_LOADED_ONCE = (MemoryClass.PARAMETER, MemoryClass.CONSTANT)


class LoadedProgram:
    """One program and its plan on one device, ready to run.

    Args:
        arena: dynamic memory that others use too, in turn; None takes its own.
        places: addresses of buffers that lie elsewhere, by index.
        early: arrays that are being made already, by name; those that are taken are removed.

    Attributes:
        runner: runs and measures it.
        skipped: steps that do not run here, by index, with the reason (`allow_skip`).
        not_replayed: why its steps are issued one by one; None where they run as one CUDA graph.
        upload: bytes copied to the device so far, and the time that took.
        feed: fills what data queues feed.

    Raises:
        KgrunError: nothing stays allocated.
    """

    def __init__(
        self,
        device: Device,
        program: Program,
        plan: MemoryPlan,
        *,
        graph_replay: bool = True,
        allow_skip: bool = False,
        phases: Phases | None = None,
        tell: Tell | None = None,
        arena: int | None = None,
        places: Mapping[int, int] | None = None,
        feed: Feed | None = None,
        early: dict[str, Callable[[], Array]] | None = None,
    ) -> None:
        self.device, self.program, self.plan = device, program, plan
        self._closed = False
        self.feed = feed or Feed()
        self._early = early if early is not None else {}
        self.upload = Transfer(0, 0)
        self.not_replayed: str | None = None
        self.prepared: list[PreparedStep] = []
        with ExitStack() as undo:
            # Transfers hold pinned memory, which only the context's own thread can give back: not the collector's.
            undo.callback(self.prepared.clear)
            spend = phases or Phases()
            with spend("allocate"):
                self._regions = Regions(device, plan, undo, arena)
                self._places = {p.buffer: self._regions.address(p) for p in plan.placements} | dict(places or {})
                self.host = HostHomes(device, program.offload, self.address)
                undo.callback(self.host.close)
            self.skipped: dict[int, Skipped] = {}
            with spend("compile"):
                self._prepare_all(allow_skip)
            with spend("load"):
                self.prepared.extend(self._prepare(step, allow_skip) for step in program.steps)
                if tell is not None and device.info.kind == "cpu":
                    self.prepared[:] = told_steps(program, self.prepared, tell)
            with spend("capture"):
                replay, in_a_row = self._capture(undo) if graph_replay else (None, False)
            if not graph_replay:
                self.not_replayed = "switched off"
            snapshot = self.snapshot if self.updated else None
            again, once = repeats(program)
            self.feed.attach(program, self.address, self.host.writer)
            self.runner = Runner(
                device, program.steps, self.prepared, replay, snapshot, again, once, self.feed, in_a_row
            )
            undo.callback(self.runner.close)
            self._undo = undo.pop_all()

    def address(self, pointer: Pointer) -> int:
        """Where a pointer leads."""
        # A buffer of no bytes has no place; a kernel that gets its address must not touch it.
        return self._places.get(pointer.buffer, self._regions.anywhere) + pointer.offset

    def _prepare_all(self, allow_skip: bool) -> None:
        try:
            self.device.prepare_all(self.program.steps)
        except KgrunError as error:
            # What can be prepared is prepared one by one.
            if not (allow_skip and cannot_run(error)):
                raise in_users_files(self.program.graph.source, error) from None

    def _prepare(self, step: Step, allow_skip: bool) -> PreparedStep:
        missing = self._not_made(step) if self.skipped else None
        if missing is not None:
            reason = f"it reads {missing!r}, which a skipped kernel was to make"
            return self._skip(Skipped(step.name, step.op, reason, None), step)
        try:
            return self.device.prepare(step, self.address)
        except KgrunError as error:
            graph = self.program.graph.source
            in_users_files(graph, error)
            if allow_skip and cannot_run(error):
                return self._skip(Skipped(step.name, step.op, error.message, error.where), step)
            raise error.at(graph.place("nodes", self.program.node_of(step).position)) from None

    def _not_made(self, step: Step) -> str | None:
        """A buffer that the step reads although what was to write it is skipped."""
        made = {index for i in self.skipped for index in self.program.steps[i].writes}
        return next((self.program.buffers[index].name for index in step.reads if index in made), None)

    def _skip(self, skipped: Skipped, step: Step) -> PreparedStep:
        self.skipped[step.index] = skipped
        buffers = (self.program.buffers[index] for index in step.writes)
        return SkippedStep(self.device, [(self.address(Pointer(b.index)), b.nbytes) for b in buffers if b.nbytes])

    @property
    def uncomputed(self) -> tuple[str, ...]:
        """Graph outputs that hold no result, because a step was skipped."""
        lost = {index for i in self.skipped for index in self.program.steps[i].writes}
        slots = self.program.slots
        return tuple(name for name in self.program.graph.outputs if name in slots and slots[name].buffer in lost)

    def _capture(self, undo: ExitStack) -> tuple[Replay | None, bool]:
        """The run as one unit, where the device makes one, and whether its steps follow each other one by one."""
        if not self.prepared:
            return None, False
        after = dependencies(plan_streams(self.program))
        try:
            with blaming(lambda: self.program):
                replay = self.device.capture(self.prepared, after)
        except NotCapturable as error:
            self.not_replayed = str(error)
            return None, False
        if replay is None:
            self.not_replayed = "the device has no such thing"
        else:
            undo.callback(replay.close)
        return replay, all(index - 1 in before for index, before in enumerate(after) if index)

    @property
    def updated(self) -> list[Buffer]:
        """Parameter buffers that the steps of a run overwrite, save those of nodes with `update_async` (S22)."""
        graph = self.program.graph
        steps = (step for step in self.program.steps if not isinstance(step.work, TransferWork))
        kept = (step for step in steps if not graph.source.nodes[graph.nodes[step.node].position].update_async)
        written = {index for step in kept for index in step.writes}
        return [b for b in self.program.buffers if b.memory_class is MemoryClass.PARAMETER and b.index in written]

    def load(self, given: Mapping[str, Array], seed: int, *, inputs: bool, anew: Collection[str] = frozenset()) -> None:
        """Fill static buffers from the host: inputs, or parameters and constants; those named `anew` in any case.

        Raises:
            UsageError: an input without data; KG200 where it is closed.
            GraphError: data that cannot be read or do not fit.
        """
        self._check_open()
        elsewhere = self.program.graph.fed | self.program.graph.cached
        if not inputs:
            self.feed.reload()
        kinds = (MemoryClass.INPUT,) if inputs else _LOADED_ONCE

        fills: list[tuple[str, int, Callable[[Array], None]]] = []
        for buffer in self.program.buffers:
            here = buffer.index not in self.host.buffers and buffer.name not in elsewhere
            wanted = buffer.memory_class in kinds or buffer.name in anew
            if buffer.nbytes and wanted and here:
                put = partial(self.device.upload, self.address(Pointer(buffer.index)))
                fills.append((buffer.name, buffer.nbytes, put))
        fills += [
            (home.name, home.nbytes, partial(self.host.put, home))
            for home in self.host.homes
            if (home.memory_class in kinds or home.name in anew) and home.name not in elsewhere
        ]
        self._fill(fills, given, seed)

    def _fill(
        self, fills: Sequence[tuple[str, int, Callable[[Array], None]]], given: Mapping[str, Array], seed: int
    ) -> None:
        """Make the array of each name, and put it where it goes."""
        graph, host = self.program.graph, self.device.host
        early = {name: self._early.pop(name) for name, _, _ in fills if name in self._early and name not in given}
        makes = [early.get(n) or partial(host_array, graph, graph.tensors[n], given, seed) for n, _, _ in fills]
        drawn = [n not in early and is_drawn(graph.tensors[n], n in given) for n, _, _ in fills]
        arrays = in_order(makes, [nbytes for _, nbytes, _ in fills], drawn, host.ahead())
        for name, nbytes, put in fills:
            copy = f"a copy of {name!r}"
            host.hold(copy, nbytes)
            array = next(arrays)
            started = time.perf_counter_ns()
            put(array)
            took = time.perf_counter_ns() - started
            host.drop(copy)
            self.upload = Transfer(self.upload.nbytes + array.nbytes, self.upload.ns + took)

    def read(self, name: str, *, pinned: bool = True) -> Array | None:
        """A tensor's bytes as a host array; None for one without device memory.

        With `pinned`, from the copy that outlives the run, where there is one. A tensor that no step makes is what its
        readers read in its place.

        Raises:
            UsageError: KG200 where it is closed, KG240 for a tensor that is computed inside a kernel and not stored.
        """
        self._check_open()
        if name in self.program.fused:
            inside = self.program.graph.nodes[self.program.fused[name]].name
            raise UsageError(f"{name!r} is computed inside {inside!r}", code="KG240", help="run without fuse")
        if name in self.program.turned:
            lying = self.read(self.program.turned[name].source, pinned=pinned)
            return None if lying is None else np.ascontiguousarray(lying.swapaxes(-1, -2))
        table = self.feed.table(name)
        if table is not None:
            return table
        slot = self.program.slots.get(name)
        if pinned:
            slot = self.program.slots.get(pinned_name(name), slot)
        if slot is None:
            return None
        kind = self.program.graph.tensors[name].type
        self.device.host.hold(f"output {name!r}", kind.nbytes)
        array: np.ndarray[Any, Any] = np.empty(kind.shape, dtype=numpy_dtype(kind.dtype))
        if array.nbytes and not self.host.get(slot.buffer, slot.offset, array):
            self.device.download(self.address(slot), array)
        return array

    def poison(self) -> None:
        """Fill outputs and reusable memory, so that nothing stale can pass for a result."""
        restore = self.host.saved()
        for p in self.plan.placements:
            if p.space == "dynamic" or p.memory_class is MemoryClass.OUTPUT:
                self.device.fill(self._regions.address(p), POISON, p.aligned)
        restore()

    def snapshot(self) -> Callable[[], None]:
        """Copies of the updated parameters; the call returned puts them back."""
        kept = []
        for buffer in (b for b in self.updated if b.index not in self.host.buffers):
            self.device.host.hold(f"the snapshot of {buffer.name!r}", buffer.nbytes)
            copy = np.empty(buffer.nbytes, np.uint8)
            self.device.download(self.address(Pointer(buffer.index)), copy)
            kept.append((self.address(Pointer(buffer.index)), copy))
        restore_host = self.host.snapshot()

        def restore() -> None:
            restore_host()
            for address, copy in kept:
                self.device.upload(address, copy)

        return restore

    def _check_open(self) -> None:
        """The memory of one that is closed is another's, or nobody's."""
        if self._closed:
            raise closed_session()

    def close(self) -> None:
        """Free what it holds; may be called twice."""
        self._closed = True
        self._undo.close()
