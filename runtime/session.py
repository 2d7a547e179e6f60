"""A session: one graph planned, loaded and ready on one device; run it as often as you like.

graph = load_graph("saxpy.yaml")
with Session(graph, device="auto") as session:
    report = session.run({"x": x, "y": y}, iterations=100)
print(report.outputs["z"], report.total)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self

import numpy as np

from kgrun.graphs.bind import bind
from kgrun.graphs.bind.dims import dims_from_shapes
from kgrun.graphs.bound import BoundGraph, Warning
from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.errors import InternalError, KgrunError
from kgrun.graphs.operators.base import ValueUnknown
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime.devices import open_device
from kgrun.runtime.devices.base import Device, NotCapturable, PreparedStep, Replay
from kgrun.runtime.execute import Observer
from kgrun.runtime.host_data import Array, check_array, check_names, host_array
from kgrun.runtime.host_memory import check_room
from kgrun.runtime.lower import lower
from kgrun.runtime.lower.program import pinned_name
from kgrun.runtime.measure import Measured, Plan, Runner
from kgrun.runtime.memory.plan import MemoryMode, plan_memory
from kgrun.runtime.program import Buffer, MemoryClass, Pointer, Step
from kgrun.runtime.report import RunReport, StepReport, Transfer
from kgrun.runtime.statistics import time_stats
from kgrun.runtime.step_reports import step_reports
from kgrun.runtime.streams import dependencies, plan_streams

# What a run leaves in memory that nothing wrote: NaN in every float type, so that an unwritten element cannot pass.
POISON = 0xFF


class Session:
    """A graph on a device, from bind to the last report. A context manager; `close` releases the device.

    Args:
        graph: what `load_graph` returned.
        device: "auto", "cpu", "cuda", "cuda:N", or a Device (which then stays open).
        dims: values of dimensions; shapes of `values` tell the rest.
        values: input arrays known already; they bind dimensions and, where an operator needs it, shapes.
        memory: "planned" or "none" (every tensor its own bytes).
        planner, memory_limit, time_limit, max_chunk: see `plan_memory`.
        seed: of inputs and parameters that have an `init` without a seed of their own.
        strict: warnings of the checks are errors.
        allow_empty: accept a graph without nodes.
        graph_replay: run as one CUDA graph where the device can.

    Attributes:
        not_replayed: why the steps are issued one by one; None where they run as one CUDA graph.

    Raises:
        KgrunError: any of its kinds; nothing stays allocated.
    """

    def __init__(
        self,
        graph: KernelGraph,
        *,
        device: str | Device = "auto",
        dims: Mapping[str, int] | None = None,
        values: Mapping[str, Array] | None = None,
        memory: MemoryMode = "planned",
        planner: str = "auto",
        memory_limit: int | None = None,
        time_limit: float = 2.0,
        max_chunk: int | None = None,
        seed: int = 0,
        strict: bool = False,
        allow_empty: bool = False,
        graph_replay: bool = True,
    ) -> None:
        self.seed = seed
        self._given: dict[str, Array] = dict(values or {})
        self._clock = _Phases()
        with ExitStack() as undo:
            check_names(graph, self._given)
            told = dims_from_shapes(graph, {name: a.shape for name, a in self._given.items()})
            with self._clock("bind"):
                self.bound = _bind(graph, {**told, **(dims or {})}, self._given, seed, strict, allow_empty)
            with self._clock("open device"):
                self.device, self.fallback_reason = open_device(device) if isinstance(device, str) else (device, None)
            if isinstance(device, str):
                undo.callback(self.device.close)
            with self._clock("lower"):
                self.program = lower(self.bound, self.device.info.kind, reuse=memory != "none")
            with self._clock("plan"):
                self.plan = plan_memory(
                    self.program, mode=memory, planner=planner, memory_limit=memory_limit,
                    time_limit=time_limit, max_chunk=max_chunk,
                )  # fmt: skip
            with self._clock("allocate"):
                self._bases = self._allocate(undo)
            with self._clock("compile and load"):
                self._prepared: list[PreparedStep] = self._prepare()
            with self._clock("capture"):
                self._runner = self._make_runner(undo, graph_replay)
            self._upload = Transfer(0, 0)
            with self._clock("upload"):
                self._upload_external(parameters=True, inputs=False)
            self._undo = undo.pop_all()

    def _allocate(self, undo: ExitStack) -> dict[str, int]:
        bases = {}
        for space, nbytes in (("static", self.plan.static_bytes), ("dynamic", self.plan.dynamic_bytes)):
            if nbytes:
                bases[space] = self.device.allocate(nbytes)
                undo.callback(self.device.free, bases[space])
                self.device.fill(bases[space], POISON, nbytes)
        return bases

    def _prepare(self) -> list[PreparedStep]:
        places = {p.buffer: self._bases[p.space] + p.offset for p in self.plan.placements}
        anywhere = next(iter(self._bases.values()), 0)

        def address(pointer: Pointer) -> int:
            # A buffer of no bytes has no place; a kernel that gets its address must not touch it.
            return places.get(pointer.buffer, anywhere) + pointer.offset

        self._address = address
        self.device.prepare_all(self.program.steps)
        return [self._prepare_step(step) for step in self.program.steps]

    def _prepare_step(self, step: Step) -> PreparedStep:
        try:
            return self.device.prepare(step, self._address)
        except KgrunError as error:
            raise error.at(self.bound.source.place("nodes", self.program.node_of(step).position)) from None

    def _make_runner(self, undo: ExitStack, graph_replay: bool) -> Runner:
        replay: Replay | None = None
        self.not_replayed: str | None = "switched off" if not graph_replay else None
        if graph_replay and self._prepared:
            order = dependencies(plan_streams(self.program))
            try:
                replay = self.device.capture(self._prepared, order)
                self.not_replayed = None if replay is not None else "the device has no such thing"
            except NotCapturable as error:
                self.not_replayed = str(error)
        if replay is not None:
            undo.callback(replay.close)
        snapshot = self._snapshot if self._updated else None
        return Runner(self.device, self.program.steps, self._prepared, replay, snapshot)

    def _upload_external(self, *, parameters: bool, inputs: bool) -> None:
        """Fill static buffers from the host: parameters and constants, or inputs."""
        for buffer in self.program.buffers:
            is_input = buffer.memory_class is MemoryClass.INPUT
            constant = buffer.memory_class in (MemoryClass.PARAMETER, MemoryClass.CONSTANT)
            if buffer.nbytes == 0 or not ((is_input and inputs) or (constant and parameters)):
                continue
            check_room(buffer.nbytes, f"a copy of {buffer.name!r}")
            array = host_array(self.bound, self.bound.tensors[buffer.name], self._given, self.seed)
            started = time.perf_counter_ns()
            self.device.upload(self._address(Pointer(buffer.index)), array)
            took = time.perf_counter_ns() - started
            self._upload = Transfer(self._upload.nbytes + array.nbytes, self._upload.ns + took)

    @property
    def _updated(self) -> list[Buffer]:
        """Parameter buffers that a run overwrites (S22)."""
        written = {index for step in self.program.steps for index in step.writes}
        return [b for b in self.program.buffers if b.memory_class is MemoryClass.PARAMETER and b.index in written]

    def run(
        self,
        inputs: Mapping[str, Array] | None = None,
        *,
        iterations: int | None = None,
        warmup: int | None = None,
        duration: float | None = None,
        per_step: bool = True,
        poison: bool = False,
        observers: Sequence[Observer] = (),
    ) -> RunReport:
        """Run the graph and report.

        Args:
            inputs: arrays by name; those left out keep their last value, their data or their init.
            iterations: measured runs; default 10 on CUDA and 1 on the CPU, 1 where parameters are updated.
            warmup: runs before, not measured; default 2 on CUDA, none on the CPU.
            duration: run for at least so many seconds instead.
            per_step: also time every step, in runs of their own.
            poison: fill outputs and reusable memory before the last run, so that nothing stale can pass for a result.
            observers: called around every step of one further run.

        Raises:
            KgrunError: for inputs that do not fit and for faults of the device.
        """
        self._take_inputs(inputs or {})
        with self._clock("upload"):
            self._upload_external(parameters=False, inputs=True)
        default = 1 if self.device.info.kind == "cpu" or self._updated else 10
        plan = Plan(default if iterations is None else iterations, warmup, duration, per_step)
        with self._clock("run"):
            measured = self._runner.measure(plan, observers, self._poison if poison else None)
        return self._report(measured)

    def _take_inputs(self, inputs: Mapping[str, Array]) -> None:
        check_names(self.bound.source, inputs)
        for name, array in inputs.items():
            kind = self.bound.tensors[name].type if name in self.bound.tensors else None
            if kind is None:
                continue  # used by no node: it has no memory
            checked = check_array(array, kind.dtype, kind.shape, name)
            if name in self.bound.values and not np.array_equal(checked, self.bound.values[name]):
                raise InternalError(
                    f"input {name!r} decides shapes and changed; open a new Session for it", code="KG213"
                )
            self._given[name] = checked

    def _snapshot(self) -> Callable[[], None]:
        """Copies of the updated parameters; the call returned puts them back."""
        kept = []
        for buffer in self._updated:
            copy = np.empty(buffer.nbytes, np.uint8)
            self.device.download(self._address(Pointer(buffer.index)), copy)
            kept.append((self._address(Pointer(buffer.index)), copy))

        def restore() -> None:
            for address, copy in kept:
                self.device.upload(address, copy)

        return restore

    def _poison(self) -> None:
        for p in self.plan.placements:
            if p.space == "dynamic" or p.memory_class is MemoryClass.OUTPUT:
                self.device.fill(self._bases[p.space] + p.offset, POISON, p.aligned)

    def output(self, name: str) -> Array:
        """A graph output or a pinned tensor as a host array, after a run."""
        tensor = self.bound.tensors[name]
        slot = self.program.slots.get(pinned_name(name), self.program.slots.get(name))
        if slot is None:
            return host_array(self.bound, tensor, self._given, self.seed)
        check_room(tensor.nbytes, f"output {name!r}")
        array = np.empty(tensor.type.shape, dtype=numpy_dtype(tensor.type.dtype))
        if array.nbytes:
            self.device.download(self._address(slot), array)
        return array

    def _report(self, measured: Measured) -> RunReport:
        started = time.perf_counter_ns()
        outputs = {name: self.output(name) for name in self.bound.outputs}
        download = Transfer(sum(a.nbytes for a in outputs.values()), time.perf_counter_ns() - started)
        steps: tuple[StepReport, ...] = step_reports(self.program, measured.samples, measured.methods)
        warnings = list(self.bound.warnings)
        if self.fallback_reason:
            warnings.append(Warning("W-CPU", f"running on the CPU: {self.fallback_reason}"))
        return RunReport(
            program=self.program, plan=self.plan, device=self.device.info, outputs=outputs, steps=steps,
            total=time_stats(measured.totals), iterations=len(measured.totals), warmup=measured.warmup,
            upload=self._upload, download=download, measured_peak_bytes=self.device.peak_memory(),
            timeline=tuple(measured.timeline), warnings=tuple(warnings), phases_ns=dict(self._clock.spent),
            total_samples=tuple(measured.totals),
        )  # fmt: skip

    def close(self) -> None:
        """Free memory and release the device; may be called twice."""
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _bind(
    graph: KernelGraph, dims: Mapping[str, int], given: Mapping[str, Array], seed: int, strict: bool, allow_empty: bool
) -> BoundGraph:
    """Bind; where an operator must know an input's value, bind again with the values of small integer inputs."""
    try:
        return bind(graph, dims=dims, strict=strict, allow_empty=allow_empty)
    except ValueUnknown:
        values = {n: a for n, a in given.items() if a.dtype.kind in "iub"}
        if not values:
            raise
        return bind(graph, dims=dims, values=values, strict=strict, allow_empty=allow_empty)


class _Phases:
    """Adds up the time spent in named phases."""

    def __init__(self) -> None:
        self.spent: dict[str, int] = {}

    def __call__(self, name: str) -> _Phase:
        return _Phase(self.spent, name)


class _Phase:
    def __init__(self, spent: dict[str, int], name: str) -> None:
        self._spent, self._name = spent, name

    def __enter__(self) -> None:
        self._started = time.perf_counter_ns()

    def __exit__(self, *_: Any) -> None:
        self._spent[self._name] = self._spent.get(self._name, 0) + time.perf_counter_ns() - self._started
