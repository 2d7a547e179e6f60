"""A session that runs a graph node by node: what `Session` is for graphs of which all is known before the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Self

import numpy as np

from kgrun.graphs.bind.dims import bind_dims, dims_from_shapes
from kgrun.graphs.bind.given import bind_given
from kgrun.graphs.bind.unsupported import RunTimeOnly, refused
from kgrun.graphs.bound import Warning
from kgrun.graphs.control import run_time_reason
from kgrun.graphs.errors import GraphError, UsageError
from kgrun.graphs.operators.base import ValueUnknown
from kgrun.runtime.checks import Watch, check_settings
from kgrun.runtime.culprit import Tell
from kgrun.runtime.devices import device_for
from kgrun.runtime.devices.base import Device, TimingMethod
from kgrun.runtime.devices.cuda_libraries import Precision
from kgrun.runtime.dump import DumpConfig
from kgrun.runtime.dump.writer import Dump
from kgrun.runtime.eager.body import Body
from kgrun.runtime.eager.dump import EagerDump
from kgrun.runtime.eager.executor import Executor
from kgrun.runtime.eager.store import Restore, Store, Tensor
from kgrun.runtime.host_data import Array, check_array, check_names, closed_session
from kgrun.runtime.host_memory import check_room
from kgrun.runtime.lower.classes import alias_classes
from kgrun.runtime.measure import Measured
from kgrun.runtime.memory.pool.live import LivePool
from kgrun.runtime.parameters import parameters_of
from kgrun.runtime.phases import Phases
from kgrun.runtime.regions import headroom, limit_memory
from kgrun.runtime.report import RunReport, Transfer
from kgrun.runtime.session import Cache
from kgrun.runtime.step_reports import run_report, run_warnings

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph


NOT_REPLAYED = "the graph runs node by node"
_WARMUP_ON_GPU = 3
# Bytes that the pool grows by: a GPU is slow to give memory, a host is not.
_GPU_UNIT, _CPU_UNIT = 64 << 20, 1 << 20


class EagerSession:
    """A graph on a device, run node by node. A context manager; `close` releases the device.

    Args:
        graph, device, dims, seed, strict, allow_empty, sync_each, tell, precision: as `Session` has them.
        values: input arrays known already.
        memory_limit: most bytes to hold at once.
        host_memory_limit: most bytes of host memory to hold for the device.
        pool_unit: bytes that the pool of memory grows by.
        schedule: order of threads and blocks of custom kernels on the CPU.
        reuse_outputs: outputs of the same size lie in the same bytes in every run (S132).
        reason: why the graph can only be run so, where that is known; None where it could be planned.

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
        memory_limit: int | None = None,
        host_memory_limit: int | None = None,
        pool_unit: int | None = None,
        seed: int = 0,
        strict: bool = False,
        allow_empty: bool = False,
        schedule: str = "forward",
        sync_each: bool = False,
        tell: Tell | None = None,
        reuse_outputs: bool = False,
        precision: Precision = "float32",
        reason: str | None = None,
    ) -> None:
        self.graph, self.seed, self._closed = graph, seed, False
        self._dims = dict(dims or {})
        self._given: dict[str, Array] = dict(values or {})
        self._phases = Phases(tell)
        self.reason = reason or run_time_reason(graph)
        with ExitStack() as undo:
            check_names(graph, self._given)
            with self._phases("bind"):
                self._warnings = self._checked(strict, allow_empty, asked=reason is None)
            with self._phases("open device"):
                self.device, self.fallback_reason = device_for(device, undo, precision=precision)
            undo.callback(limit_memory(self.device, memory_limit, host_memory_limit))
            watch = Watch(check_settings((), schedule, self.device.info.kind))
            self._body = Body(
                graph, [], bind_dims(graph, self._all_dims()), self.device.info.kind, self.device.info.arch
            )
            unit = pool_unit or (_GPU_UNIT if self.device.info.kind != "cpu" else _CPU_UNIT)
            pool = LivePool(self.device, unit=unit, limit=memory_limit, headroom=headroom(self.device))
            undo.callback(pool.close)
            self.store = Store(self.device, pool)
            self._reuse = reuse_outputs
            self._executor = Executor(self.device, self.store, watch, self._given, seed, sync_each)
            self._outputs: list[Tensor] = []
            self._parameters = parameters_of(graph)
            self._floor_ns: int | None = None
            self._told_ns = 0  # of the executor's bind_ns, already among the phases
            self._undo = undo.pop_all()

    def _all_dims(self) -> dict[str, int]:
        shapes = {name: array.shape for name, array in self._given.items()}
        return {**dims_from_shapes(self.graph, shapes), **self._dims}

    def _checked(self, strict: bool, allow_empty: bool, asked: bool) -> tuple[Warning, ...]:
        """What can be checked before the run; warnings. `asked`: nobody wanted a plan.

        A graph of which all is known is bound as ever, so that it meets the same errors in every mode.
        """
        graph = self.graph
        if graph.contiguous:
            raise GraphError(
                "contiguous tensors need a plan, and the graph runs node by node",
                code="KG356",
                where=graph.place("contiguous"),
                help=self.reason or "run it with --memory planned, pool or none",
            )
        if self.reason is None:
            try:
                bound = bind_given(graph, self._dims, self._given, strict=strict, allow_empty=allow_empty)
            except (RunTimeOnly, ValueUnknown) as error:
                self.reason = error.message
            else:
                alias_classes(bound, reuse=False)
                return bound.warnings
        for fault in refused(graph, run_time=True):
            raise fault
        text = f"nothing is planned, the graph runs node by node: {self.reason}"
        found = () if asked else (Warning("W-NODE-BY-NODE", text),)
        if strict and found:
            raise GraphError(found[0].message, code="KG399", where=graph.place(*found[0].path))
        return found

    def run(
        self,
        inputs: Mapping[str, Array] | None = None,
        *,
        iterations: int | None = None,
        warmup: int | None = None,
        duration: float | None = None,
        per_step: bool = True,
        poison: bool = False,
        timing: TimingMethod = "auto",
        cache: Cache = "hot",
        roofline: bool = False,
        first: bool = False,
        dump: DumpConfig | None = None,
    ) -> RunReport:
        """Run the graph and report; arguments as `Session.run` has them.

        Steps are timed by marks around them, in the runs that count; `first` changes nothing, for a first run binds.
        Inputs may have other shapes than in the run before: what depends on them is bound anew, once.

        Raises:
            KgrunError: for inputs that do not fit, for nodes that cannot take what they get, and faults of the device.
        """
        self._take_inputs(inputs or {})
        dumper = None
        if dump is not None:
            dumper = EagerDump(Dump(dump, self.device.info.index), self._body, self.store)
        with self._phases("run"):
            warm = (_WARMUP_ON_GPU if self._on_gpu and dump is None else 0) if warmup is None else warmup
            self._warm_up(warm)
            measured = self._measure(iterations, duration, poison, dumper)
        measured.warmup = warm
        if timing not in ("auto", "events") or cache == "cold":
            measured.notes.append("node by node, steps are timed by marks around them and no cache is emptied")
        report = self._report(measured, per_step)
        if roofline:
            report = replace(report, roofline=self.device.roofline())
        return report if dumper is None else dumper.dump.noted(report)

    @property
    def _on_gpu(self) -> bool:
        return self.device.info.kind != "cpu"

    def _warm_up(self, runs: int) -> None:
        """Runs that do not count, and leave parameters as they were."""
        restore = Restore(self.store)
        self._executor.wrote, self._executor.observe, self.store.poisoned = restore.keep, None, False
        for _ in range(runs):
            self._once()
        self._executor.wrote = None
        restore.put_back()
        self._executor.recorder.forget_times()

    def _measure(
        self, iterations: int | None, duration: float | None, poison: bool, dumper: EagerDump | None
    ) -> Measured:
        """Runs that count: 1 by default where the host runs them or parameters are updated, else 10."""
        measured, executor = Measured(), self._executor
        executor.observe = dumper
        deadline = None if duration is None else monotonic() + duration
        while True:
            done = len(measured.totals)
            count = iterations or (10 if self._on_gpu and not executor.updates else 1)
            if done and (done >= count if deadline is None else monotonic() >= deadline):
                break
            self.store.poisoned = poison and deadline is None and done == count - 1
            if dumper is not None:
                dumper.start(done)
            start, apart = self.device.record(), self._apart(dumper)
            self._once()
            took = self.device.elapsed_ns(start, self.device.record())
            executor.recorder.settle()
            # Binding is paid once, by whichever run meets new types first.
            measured.totals.append(max(took - (self._apart(dumper) - apart), 0))
        executor.observe, self.store.poisoned = None, False
        self.device.synchronize()
        return measured

    def _apart(self, dumper: EagerDump | None) -> int:
        """Nanoseconds spent so far on what is no part of a run."""
        return self._executor.bind_ns + (0 if dumper is None else dumper.spent_ns)

    def _once(self) -> None:
        self._executor.kept = {}
        for name, tensor in zip(self._body.outputs, self._outputs, strict=False):
            if self._reuse and tensor.block.refs == 1 and tensor.block.address is not None:
                self._executor.kept[name] = tensor.block
            else:
                self.store.release(tensor.block)
        self._outputs = []
        self.store.start_run()
        self._executor.recorder.start_run()
        try:
            self._outputs = self._executor.run(self._body, {})
        finally:
            for block in self._executor.kept.values():
                self.store.release(block)
            self._executor.kept = {}

    def _take_inputs(self, inputs: Mapping[str, Array]) -> None:
        """Keep what is given, bind dimensions to it, and refill the inputs that are on the device."""
        if self._closed:
            raise closed_session()
        check_names(self.graph, inputs)
        self._given.update({name: np.ascontiguousarray(array).reshape(array.shape) for name, array in inputs.items()})
        body = self._body
        dims = bind_dims(self.graph, self._all_dims())
        if dims != body.dims:
            body.set_dims(dims)
            for inner in body.inner():
                self._drop(inner, list(inner.statics))
        kinds = {name: body.external(name)[0] for name in body.statics}
        self._drop(body, [n for n, kind in kinds.items() if kind.shape != body.statics[n].type.shape])
        for name in inputs:
            if name in body.statics:
                self._refill(
                    body.statics[name], check_array(self._given[name], kinds[name].dtype, kinds[name].shape, name)
                )

    def _drop(self, body: Body, names: Iterable[str]) -> None:
        """Forget tensors from outside: they are made anew, in their new shapes, when they are read."""
        for name in names:
            tensor = body.statics.pop(name)
            tensor.block.fixed -= 1
            self.store.release(tensor.block)

    def _refill(self, tensor: Tensor, array: Array) -> None:
        tensor.host = None
        if tensor.block.address is None:
            tensor.block.content = array
        else:
            self.store.fill(tensor.block, array)

    def output(self, name: str) -> Array:
        """A graph output, a pinned tensor, or a parameter, as a host array, after a run."""
        if self._closed:
            raise closed_session()
        tensor = self._executor.pinned.get(name, self._body.statics.get(name))
        if tensor is None:
            if name in self._parameters:  # none of the nodes that ran reads it
                return self._executor.host_data(self._body, name)
            if name not in self._body.output_at:
                raise UsageError(f"{name!r} is no output of the graph", code="KG259")
            tensor = self._outputs[self._body.output_at[name]]
        check_room(tensor.type.nbytes, f"output {name!r}")
        return self.store.download(tensor).copy()

    def _report(self, measured: Measured, per_step: bool) -> RunReport:
        recorder, store = self._executor.recorder, self.store
        with self._phases("download"):
            outputs = {name: self.output(name) for name in self._body.outputs}
        warnings = run_warnings(self._warnings, self.device, self.fallback_reason)
        program = recorder.program(self._body, self.device.info.kind, self._warnings)
        if per_step:
            measured.samples = [list(row.samples) for row in recorder.rows.values()]
            measured.methods = [row.method for row in recorder.rows.values()]
            if self._floor_ns is None and measured.methods:
                self._floor_ns = self.device.marks_floor()
            measured.floors = dict.fromkeys(measured.methods, self._floor_ns or 0)
            measured.timeline = list(recorder.timeline)
        recorder.forget_times()
        self._phases.add("bind", self._executor.bind_ns - self._told_ns)
        self._told_ns = self._executor.bind_ns
        return run_report(
            program, recorder.plan(store), self.device, outputs, measured, self._phases, Transfer(*store.uploaded),
            warnings, not_replayed=NOT_REPLAYED,
        )  # fmt: skip

    def close(self) -> None:
        """Free memory and release the device; may be called twice."""
        self._closed = True
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
