"""A program on its device: memory allocated, code loaded, arguments packed, captured where that is possible."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.errors import KgrunError
from kgrun.runtime.devices.base import Device, NotCapturable, PreparedStep, Replay
from kgrun.runtime.host_data import Array, host_array
from kgrun.runtime.host_memory import check_room
from kgrun.runtime.lower.program import pinned_name
from kgrun.runtime.measure import Runner
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.program import Buffer, MemoryClass, Pointer, Program, Step
from kgrun.runtime.report import Transfer
from kgrun.runtime.streams import dependencies, plan_streams

# What a run leaves in memory that nothing wrote: NaN in every float type, so that an unwritten element cannot pass.
POISON = 0xFF
_LOADED_ONCE = (MemoryClass.PARAMETER, MemoryClass.CONSTANT)


class LoadedProgram:
    """One program and its plan on one device, ready to run.

    Attributes:
        runner: runs and measures it.
        not_replayed: why its steps are issued one by one; None where they run as one CUDA graph.
        upload: bytes copied to the device so far, and the time that took.

    Raises:
        KgrunError: nothing stays allocated.
    """

    def __init__(self, device: Device, program: Program, plan: MemoryPlan, *, graph_replay: bool = True) -> None:
        self.device, self.program, self.plan = device, program, plan
        self.upload = Transfer(0, 0)
        self.not_replayed: str | None = None
        with ExitStack() as undo:
            self._bases = self._allocate(undo)
            self._places = {p.buffer: self._bases[p.space] + p.offset for p in plan.placements}
            device.prepare_all(program.steps)
            self.prepared: list[PreparedStep] = [self._prepare(step) for step in program.steps]
            replay = self._capture(undo) if graph_replay else None
            if not graph_replay:
                self.not_replayed = "switched off"
            snapshot = self._snapshot if self.updated else None
            self.runner = Runner(device, program.steps, self.prepared, replay, snapshot)
            self._undo = undo.pop_all()

    def _allocate(self, undo: ExitStack) -> dict[str, int]:
        bases = {}
        for space, nbytes in (("static", self.plan.static_bytes), ("dynamic", self.plan.dynamic_bytes)):
            if nbytes:
                bases[space] = self.device.allocate(nbytes)
                undo.callback(self.device.free, bases[space])
                self.device.fill(bases[space], POISON, nbytes)
        return bases

    def _address(self, pointer: Pointer) -> int:
        # A buffer of no bytes has no place; a kernel that gets its address must not touch it.
        anywhere = next(iter(self._bases.values()), 0)
        return self._places.get(pointer.buffer, anywhere) + pointer.offset

    def _prepare(self, step: Step) -> PreparedStep:
        try:
            return self.device.prepare(step, self._address)
        except KgrunError as error:
            position = self.program.node_of(step).position
            raise error.at(self.program.graph.source.place("nodes", position)) from None

    def _capture(self, undo: ExitStack) -> Replay | None:
        if not self.prepared:
            return None
        try:
            replay = self.device.capture(self.prepared, dependencies(plan_streams(self.program)))
        except NotCapturable as error:
            self.not_replayed = str(error)
            return None
        if replay is None:
            self.not_replayed = "the device has no such thing"
        else:
            undo.callback(replay.close)
        return replay

    @property
    def updated(self) -> list[Buffer]:
        """Parameter buffers that a run overwrites (S22)."""
        written = {index for step in self.program.steps for index in step.writes}
        return [b for b in self.program.buffers if b.memory_class is MemoryClass.PARAMETER and b.index in written]

    def load(self, given: Mapping[str, Array], seed: int, *, inputs: bool) -> None:
        """Fill static buffers from the host: inputs, or parameters and constants.

        Raises:
            UsageError: an input without data. GraphError: data that cannot be read or do not fit.
        """
        bound = self.program.graph
        for buffer in self.program.buffers:
            wanted = buffer.memory_class is MemoryClass.INPUT if inputs else buffer.memory_class in _LOADED_ONCE
            if buffer.nbytes == 0 or not wanted:
                continue
            check_room(buffer.nbytes, f"a copy of {buffer.name!r}")
            array = host_array(bound, bound.tensors[buffer.name], given, seed)
            started = time.perf_counter_ns()
            self.device.upload(self._address(Pointer(buffer.index)), array)
            took = time.perf_counter_ns() - started
            self.upload = Transfer(self.upload.nbytes + array.nbytes, self.upload.ns + took)

    def read(self, name: str) -> Array | None:
        """A tensor's bytes as a host array, from its pinned copy if it has one; None for one without device memory."""
        slot = self.program.slots.get(pinned_name(name), self.program.slots.get(name))
        if slot is None:
            return None
        kind = self.program.graph.tensors[name].type
        check_room(kind.nbytes, f"output {name!r}")
        array: np.ndarray[Any, Any] = np.empty(kind.shape, dtype=numpy_dtype(kind.dtype))
        if array.nbytes:
            self.device.download(self._address(slot), array)
        return array

    def poison(self) -> None:
        """Fill outputs and reusable memory, so that nothing stale can pass for a result."""
        for p in self.plan.placements:
            if p.space == "dynamic" or p.memory_class is MemoryClass.OUTPUT:
                self.device.fill(self._bases[p.space] + p.offset, POISON, p.aligned)

    def _snapshot(self) -> Callable[[], None]:
        """Copies of the updated parameters; the call returned puts them back."""
        kept = []
        for buffer in self.updated:
            copy = np.empty(buffer.nbytes, np.uint8)
            self.device.download(self._address(Pointer(buffer.index)), copy)
            kept.append((self._address(Pointer(buffer.index)), copy))

        def restore() -> None:
            for address, copy in kept:
                self.device.upload(address, copy)

        return restore

    def close(self) -> None:
        """Free what it holds; may be called twice."""
        self._undo.close()
