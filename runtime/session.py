"""A session: one graph planned, loaded and ready on one device; run it as often as you like.

graph = load_graph("saxpy.yaml")
with Session(graph, device="auto") as session:
    report = session.run({"x": x, "y": y}, iterations=100)
print(report.outputs["z"], report.total)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

from kgrun.graphs.bind.given import bind_given
from kgrun.graphs.errors import UsageError
from kgrun.runtime.checks.names import check_settings
from kgrun.runtime.checks.watch import Watch
from kgrun.runtime.culprit import blaming
from kgrun.runtime.devices import device_for
from kgrun.runtime.devices.base import Device, TimingMethod
from kgrun.runtime.devices.cuda_libraries import Precision
from kgrun.runtime.drawn_ahead import early_draws
from kgrun.runtime.execute import Observer
from kgrun.runtime.host_data import Array, check_names, checked_inputs, host_array
from kgrun.runtime.loaded import LoadedProgram
from kgrun.runtime.lower import lower
from kgrun.runtime.measure import Amount, Measured, Runner
from kgrun.runtime.nvtx_ranges import nvtx_observers
from kgrun.runtime.phases import Phases
from kgrun.runtime.planning import Planning, check_fusable, why_all_stay
from kgrun.runtime.program import Program
from kgrun.runtime.queues.base import open_feed
from kgrun.runtime.regions import limit_memory, plan_limit
from kgrun.runtime.report import RunReport, StreamChoice
from kgrun.runtime.step_reports import run_report, run_warnings

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime.culprit import Tell
    from kgrun.runtime.dump import DumpConfig
    from kgrun.runtime.memory.offload.records import OffloadMode
    from kgrun.runtime.memory.offload.times import DeviceProfile
    from kgrun.runtime.memory.plan_types import MemoryMode, MemoryPlan
    from kgrun.runtime.sharing import Sharing

Streams = Literal["file", "auto"]
Cache = Literal["hot", "cold"]


class Session:
    """A graph on a device, from bind to the last report. A context manager; `close` releases the device.

    Args:
        graph: what `load_graph` returned.
        device: "auto", "cpu", "cuda", "cuda:N", or a Device (which then stays open).
        dims: values of dimensions; shapes of `values` tell the rest.
        values: input arrays known already; they bind dimensions and, where an operator needs it, shapes.
        memory: "planned", "pool" or "none" (every tensor its own bytes).
        planner, memory_limit, time_limit, max_chunk, pool_unit: see `plan_memory`. The device, too, keeps the limit.
        host_memory_limit: most bytes of host memory to hold for the device, see `HostMemory`.
        offload: "auto" moves tensors to the host and back where the plan does not fit `memory_limit`, "manual" only
            those that the file marks, "seeds" by the older runtimes' rule, "off" none. Checks and `allow_skip` run
            without.
        profile: times that offload reckons with, by default the device's.
        seed: of inputs and parameters that have an `init` without a seed of their own.
        strict: warnings of the checks are errors.
        allow_empty: accept a graph without nodes.
        graph_replay: run as one CUDA graph where the device can.
        streams: "file" runs what the file puts on one stream in order; "auto" also tries independent branches side by
            side, and keeps that where it is faster.
        checks: names of `runtime.checks.CHECKS`, or "all"; each run is then watched instead of measured, see `run`.
        fuse: on a GPU, compute elementwise calls in a row in one kernel (`lower.fused`); not with checks or dumps.
        schedule: order of threads and blocks of custom kernels on the CPU: "forward", "reverse" or "random:SEED".
        allow_skip: leave out kernels that cannot run on the device, and what needs their results.
        sync_each: wait after each step, so that a fault names its kernel (S139).
        precision: of products of float32 on a GPU: "float32", or "tf32" for tensor cores that round their inputs.
        tell: called with what goes on (`runtime.culprit`), so that whoever ends the process can say what it was. On a
            GPU the first run then waits after each step and does not count.
        share: what it shares with others (`runtime.several`, `runtime.shapes`); it is then loaded by `start`.
        queues: what feeds the graph's data queues, by name: a `runtime.queues.QueueFeed`, or its source alone.

    Attributes:
        planned, planned_memory: the program and its plan, also before they are `loaded`.
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
        host_memory_limit: int | None = None,
        max_chunk: int | None = None,
        pool_unit: int | None = None,
        offload: OffloadMode = "auto",
        profile: DeviceProfile | None = None,
        seed: int = 0,
        strict: bool = False,
        allow_empty: bool = False,
        graph_replay: bool = True,
        streams: Streams = "file",
        checks: Sequence[str] = (),
        fuse: bool = False,
        schedule: str = "forward",
        allow_skip: bool = False,
        sync_each: bool = False,
        precision: Precision = "float32",
        tell: Tell | None = None,
        share: Sharing | None = None,
        queues: Mapping[str, Any] | None = None,
    ) -> None:
        self.seed, self._given = seed, dict(values or {})
        self._sync_each, self._tell, self._phases = sync_each, tell, Phases(tell)
        self._graph_replay, self._allow_skip = graph_replay and not checks and not sync_each, allow_skip
        with ExitStack() as undo:
            check_names(graph, self._given)
            check_fusable(fuse, checks, allow_skip)
            with self._phases("bind"):
                self.bound = bind_given(graph, dims or {}, self._given, strict=strict, allow_empty=allow_empty)
            self._early = early_draws(self.bound, self._given, seed) if host_memory_limit is None else {}
            with self._phases("open device"):
                self.device, self.fallback_reason = device_for(device, undo, precision=precision)
            undo.callback(limit_memory(self.device, memory_limit, host_memory_limit))
            self._watch = Watch(check_settings(checks, schedule, self.device.info.kind))
            self._watch.check_arguments(self.bound, self.device.info.arch)
            with self._phases("lower"):
                program = lower(self.bound, self.device.info.kind, reuse=memory != "none", fuse=fuse)
                program = program if share is None else share.adopted(program)
            planning = Planning(
                memory, planner, plan_limit(self.device, memory, memory_limit), time_limit, max_chunk,
                self._watch.settings.guard, pool_unit, offload, profile,
                why_all_stay(checks, allow_skip, share is not None),
            )  # fmt: skip
            with self._phases("plan"):
                fitted, plan = planning.plan(program)
            self.planned, self.planned_memory, self._share = fitted, plan, share
            self._feed = open_feed(self.bound, self.device, queues or {}, self._given, seed)
            undo.push(self._feed.ended)
            self.stream_choice: StreamChoice | None = None
            if share is None:
                self.loaded = self._load(fitted, plan)
                undo.push(self._end_loaded)
                if self.device.info.kind != "cpu" and fitted.offload is not None:
                    self._plan_again(program, planning)
            if streams == "auto" and not checks and share is None and fitted.offload is None:
                from kgrun.runtime.try_streams import spread_plan, try_streams

                if (spread := spread_plan(program, planning)) is not None:
                    with blaming(lambda: self.program):
                        tried = try_streams(self.loaded, spread, self._load, self._given, self.seed)
                    self.loaded, self.stream_choice = tried
            self._undo = undo.pop_all()

    def start(self) -> None:
        """Load what was planned; for a session that shares a device with others, once these are loaded."""
        self.loaded = self._load(self.planned, self.planned_memory)
        self._undo.push(self._end_loaded)

    def _load(self, program: Program, plan: MemoryPlan) -> LoadedProgram:
        self._watch.attach(self.device, program)
        loaded = LoadedProgram(
            self.device, program, plan, graph_replay=self._graph_replay, allow_skip=self._allow_skip,
            phases=self._phases, tell=self._tell, arena=self._share.arena if self._share else None,
            places=self._share.places() if self._share else {}, feed=self._feed, early=self._early,
        )  # fmt: skip
        with ExitStack() as undo:
            undo.callback(loaded.close)
            with self._phases("upload"):
                loaded.load(self._given, self.seed, inputs=False)
            undo.pop_all()
        return loaded

    def _plan_again(self, program: Program, planning: Planning) -> None:
        """Go on with the transfers that measured times suggest."""
        from kgrun.runtime.refine import refined, same_steps

        if (found := refined(self.loaded, program, planning, self._given, self.seed)) is None:
            return
        if same_steps(found[0], self.program):
            self.loaded.program = replace(self.program, offload=found[0].offload)
            self.loaded.load(self._given, self.seed, inputs=False)
            return
        self.loaded.close()
        self.loaded = self._load(*found)

    @property
    def program(self) -> Program:
        """The program that runs."""
        return self.loaded.program

    @property
    def plan(self) -> MemoryPlan:
        """Its memory plan."""
        return self.loaded.plan

    @property
    def runner(self) -> Runner:
        """Starts single runs, for those who time them otherwise."""
        return self.loaded.runner

    @property
    def not_replayed(self) -> str | None:
        """Why steps are issued one by one; None where they run as one CUDA graph."""
        return self.loaded.not_replayed

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
        observers: Sequence[Observer] = (),
        first: bool = False,
        dump: DumpConfig | None = None,
    ) -> RunReport:
        """Run the graph and report.

        With checks, `iterations` runs (default 1) are watched to their end; the report's `findings` say what was found,
        and its times are of little worth.

        Args:
            inputs: arrays by name; those left out keep their last value, their data or their init.
            iterations: measured runs; default as many as the data queues have batches, else 10 on CUDA and 1 on the
                CPU, 1 where parameters are updated.
            warmup: runs before, not measured; default until times are stable on CUDA, none on the CPU.
            duration: run for at least so many seconds instead.
            per_step: also time every step, in runs of their own.
            poison: fill outputs and reusable memory before the last run, so that nothing stale can pass for a result.
            timing: how steps are timed: "auto" takes the best for each.
            cache: "cold" empties the device's cache before every run and every step that is timed.
            roofline: also measure the device's peak rates, once a device.
            observers: called around every step of one further run.
            first: time one run before all others, which does not count, as the phase "first run".
            dump: write tensors to files; times are then those of the steps alone, and there is no warm-up.

        Raises:
            KgrunError: for inputs that do not fit and for faults of the device.
        """
        self.take_inputs(inputs or {})
        default = 1 if self.device.info.kind == "cpu" or self.loaded.updated else 10
        count, to_end = self._feed.amount(iterations, default, duration)
        amount = Amount(count, warmup, duration, per_step, timing, cache == "cold", to_end)
        with self._phases("run"), blaming(lambda: self.program):
            if self._watch.settings.names:
                return self._report(self._watch.run(self.loaded, iterations or 1))
            if dump is not None:
                return self._dumped(dump, count, duration)
            measured = self._measure(amount, observers, poison, first)
        report = self._report(measured)
        return replace(report, roofline=self.device.roofline()) if roofline else report

    def _dumped(self, config: DumpConfig, iterations: int, duration: float | None) -> RunReport:
        from kgrun.runtime.dump.writer import Dump, run_dumped

        if self.program.offload is not None:
            raise UsageError("tensors that wait on the host cannot be dumped", code="KG240", help="use --offload off")
        dump, bound = Dump(config, self.device.info.index), self.bound
        host = lambda name: host_array(bound, bound.tensors[name], self._given, self.seed)  # noqa: E731
        return dump.noted(self._report(run_dumped(self.loaded, iterations, duration, dump, host)))

    def _measure(self, amount: Amount, observers: Sequence[Observer], poison: bool, first: bool) -> Measured:
        from kgrun.runtime.stepwise import first_run, run_stepwise

        loaded, before_last = self.loaded, self.loaded.poison if poison else None
        tell = self._tell if self.device.info.kind != "cpu" else None
        self._feed.prime()
        if self._sync_each and not observers:
            return run_stepwise(loaded, amount, tell, before_last)
        if first or tell is not None:
            with self._phases.within("run", "first run"):
                first_run(loaded, tell)
        named = nvtx_observers() if self.device.info.kind == "cuda" else ()
        return loaded.runner.measure(amount, [*observers, *named], before_last)

    def take_inputs(self, inputs: Mapping[str, Array]) -> None:
        """Keep the arrays, and fill the inputs and the parameters among them on the device. Raises as `run`."""
        taken = checked_inputs(self.bound, inputs, self._given)
        self._given |= taken
        with self._phases("upload"):
            self.loaded.load(self._given, self.seed, inputs=True, anew=taken.keys())

    def output(self, name: str) -> Array:
        """A graph output or a pinned tensor as a host array, after a run."""
        found = self.loaded.read(name)
        return host_array(self.bound, self.bound.tensors[name], self._given, self.seed) if found is None else found

    def _report(self, measured: Measured) -> RunReport:
        loaded = self.loaded
        with self._phases("download"):
            outputs = {name: self.output(name) for name in self.bound.outputs}
        return run_report(
            loaded.program, loaded.plan, self.device, outputs, measured, self._phases, loaded.upload,
            run_warnings(self.bound.warnings, self.device, self.fallback_reason, loaded.host.pageable),
            not_replayed=loaded.not_replayed,
            streams=self.stream_choice,
            checked=self._watch.checked,
            findings=tuple(self._watch.findings.values()),
            skipped=tuple(loaded.skipped.values()),
            uncomputed=loaded.uncomputed,
            queues=self._feed.reports(),
            embeddings=self._feed.cache_reports(),
        )  # fmt: skip

    def _end_loaded(self, kind: object, *_: object) -> None:
        try:
            self._feed.close(failed=kind is not None)  # queues go before the memory that they fill (S146)
        finally:
            self.loaded.close()

    def close(self) -> None:
        """Free memory and release the device; may be called twice."""
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self._undo.__exit__(*error)
