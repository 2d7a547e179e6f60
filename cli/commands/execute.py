"""`kgrun execute`: run a graph on a device, report what each kernel and each byte cost, compare the outputs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgrun.cli import interrupts
from kgrun.cli import options as opt
from kgrun.cli import timeout as watchdog
from kgrun.cli.aftermath import Aftermath, tracing
from kgrun.cli.boundary import command_line
from kgrun.cli.checks import check_options, judge_checks
from kgrun.cli.cold import cold_report as make_cold_report
from kgrun.cli.dump import dump_options
from kgrun.cli.entry import STARTED
from kgrun.cli.judging import Expectation, NodeComparison
from kgrun.cli.load import GraphOptions, dims_to_bind, model_file, read_graph, read_graph_for
from kgrun.cli.offload import read_profile
from kgrun.cli.output import Output
from kgrun.cli.parameters import NO_FILES, ParameterFiles
from kgrun.cli.queues import read_queues
from kgrun.cli.ranks import Team, at_rank, find_team, launched_here
from kgrun.cli.several import SeveralWork, refuse
from kgrun.cli.several import save as save_several
from kgrun.cli.several import show as show_several
from kgrun.cli.show import show_run
from kgrun.cli.sweep import SweepWork, parse_sweep
from kgrun.cli.sweep import show as show_sweep
from kgrun.cli.values import check_number, parse_device, parse_dims, parse_size
from kgrun.graphs.errors import KgrunError, UsageError
from kgrun.runtime.devices.cuda_early import open_context_early

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime.report import RunReport


@dataclass(frozen=True, slots=True)
class Saving:
    """Files to write after the run."""

    folder: str | None = None
    bundle: str | None = None
    trace: str | None = None

    def write(self, report: RunReport) -> None:
        """Write what was asked for; each file is complete or absent."""
        from kgrun.cli import arrays

        watchdog.commit()
        if self.folder is not None:
            arrays.write_folder(Path(self.folder), report.outputs)
        if self.bundle is not None:
            arrays.write_bundle(Path(self.bundle), report.outputs)
        if self.trace is not None:
            from kgrun.cli.render.trace import write_trace

            write_trace(Path(self.trace), report)


def command(
    file: opt.GraphFile,
    more: opt.MoreGraphs = None,
    json: opt.Json = False,
    csv: opt.Csv = None,
    trace: opt.Trace = None,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    no_color: opt.NoColor = False,
    device: opt.Device = "auto",
    dim: opt.Dims = None,
    sweep: opt.Sweep = None,
    strict: opt.Strict = False,
    allow_external_data: opt.ExternalData = False,
    allow_empty: opt.AllowEmpty = False,
    input: opt.Inputs = None,
    inputs: opt.InputsFile = None,
    queue: opt.Queues = None,
    load_parameters: opt.LoadParameters = None,
    seed: opt.Seed = 0,
    iterations: opt.Iterations = None,
    warmup: opt.Warmup = None,
    duration: opt.Duration = None,
    samples: opt.Samples = False,
    graph: opt.GraphReplay = True,
    streams: opt.Streams = opt.StreamChoice.file,
    cache: opt.Cache = opt.CacheState.hot,
    timing: opt.TimingMethod = opt.TimingChoice.auto,
    roofline: opt.Roofline = True,
    precision: opt.Precision = opt.PrecisionChoice.float32,
    memory: opt.RunMemoryMode = opt.RunMemory.planned,
    memory_limit: opt.MemoryLimit = None,
    host_memory_limit: opt.HostMemoryLimit = None,
    pool_unit: opt.PoolUnit = None,
    offload: opt.OffloadMode = opt.Offload.auto,
    device_profile: opt.DeviceProfile = None,
    reuse_outputs: opt.ReuseOutputs = False,
    planner: opt.Planner = "auto",
    planner_time: opt.PlannerTime = 2.0,
    check: opt.Check = None,
    schedule: opt.Schedule = "forward",
    allow_skip: opt.AllowSkip = False,
    expected: opt.Expected = None,
    rtol: opt.Rtol = 1e-4,
    atol: opt.Atol = 1e-5,
    equal_nan: opt.EqualNan = False,
    compare_with: opt.CompareWith = None,
    output_dir: opt.OutputDir = None,
    save_outputs: opt.SaveOutputs = None,
    dump: opt.DumpNames = None,
    dump_dir: opt.DumpDir = None,
    dump_iterations: opt.DumpIterations = None,
    dump_config: opt.DumpConfigFile = None,
    save_parameters: opt.SaveParameters = None,
    sync_each: opt.SyncEach = False,
    repro: opt.Repro = None,
    repro_always: opt.ReproAlways = False,
    cold_report: opt.ColdReport = False,
    ranks: opt.Ranks = None,
    timeout: opt.Timeout = None,
    help_metrics: opt.HelpMetrics = False,
) -> None:
    """Run a graph, or several in one session; print the time of each kernel and the memory it took."""
    started = time.perf_counter_ns()
    output = Output(json, csv if not tracing() else None, quiet, verbose, no_color)
    if samples and not json:
        raise UsageError("--samples adds to the JSON document", code="KG240", help="give --json too")
    if repro_always and repro is None:
        raise UsageError("--repro-always writes what --repro names", code="KG240", help="give --repro DIR too")
    for name, value in (("--rtol", rtol), ("--atol", atol), ("--planner-time", planner_time)):
        check_number(value, name)
    options = GraphOptions(file, dim, allow_external_data=allow_external_data)
    settings = {
        "device": parse_device(device),
        "dims": parse_dims(dim or ()),
        "memory": memory.value,
        "memory_limit": parse_size(memory_limit, "--memory-limit") if memory_limit is not None else None,
        "host_memory_limit": (
            parse_size(host_memory_limit, "--host-memory-limit") if host_memory_limit is not None else None
        ),
        "pool_unit": parse_size(pool_unit, "--pool-unit") if pool_unit is not None else None,
        "offload": offload.value,
        "profile": read_profile(device_profile),
        "planner": planner,
        "time_limit": planner_time,
        "seed": seed,
        "strict": strict,
        "allow_empty": allow_empty,
        "sync_each": sync_each,
        "graph_replay": graph,
        "streams": streams.value,
        "precision": precision.value,
        "reuse_outputs": reuse_outputs,
        "queues": read_queues(queue or ()),
    } | check_options(check, schedule, allow_skip)
    loop: dict[str, Any] = {
        "iterations": iterations,
        "warmup": warmup,
        "duration": check_number(duration, "--duration", positive=True),
        "timing": timing.value,
        "cache": cache.value,
        "roofline": roofline,
    }
    loop |= {"first": True} if cold_report else {}
    dumping = dump_options(dump, dump_dir, dump_iterations, dump_config)
    if dumping is not None and check:
        raise UsageError("--check and --dump exclude each other: each watches runs of its own", code="KG240")
    if dumping is not None:
        loop["dump"] = dumping
    if more:
        refuse({
            "--csv": csv, "--trace": trace, "--check": check, "--allow-skip": allow_skip, "--expected": expected,
            "--dump": dumping, "--repro": repro, "--cold-report": cold_report, "--reuse-outputs": reuse_outputs,
            "--sweep": sweep, "--compare-with": compare_with, "--queue": queue, "--load-parameters": load_parameters,
            "--save-parameters": save_parameters,
        }, "one graph")  # fmt: skip
        watchdog.supervise(check_number(timeout, "--timeout", positive=True), json=json, crashes=_on_cpu(device))
        with interrupts.bounded():
            several = SeveralWork([file, *more], allow_external_data, input or (), inputs, settings, loop)
            reports, together = several.run(output)
        save_several(reports, output_dir, save_outputs)
        show_several(output, reports, together, samples)
        return
    if sweep:
        refuse({
            "--csv": csv, "--trace": trace, "--check": check, "--allow-skip": allow_skip, "--expected": expected,
            "--dump": dumping, "--repro": repro, "--cold-report": cold_report, "--output-dir": output_dir,
            "--save-outputs": save_outputs, "--compare-with": compare_with,
        }, "a run at one size")  # fmt: skip
        sizes = parse_sweep(sweep)
        watchdog.supervise(check_number(timeout, "--timeout", positive=True), json=json, crashes=_on_cpu(device))
        with interrupts.bounded():
            swept = SweepWork(
                GraphOptions(file, allow_external_data=allow_external_data), input or (), inputs, sizes, settings, loop
            )
            rows, kept = swept.run(output)
        show_sweep(output, rows, kept, samples, verbose)
        return
    launched_here(ranks, check_number(timeout, "--timeout", positive=True), _on_cpu(device))
    team = find_team(timeout)
    if team is not None:
        settings["device"] = team.device(settings["device"], _on_cpu(settings["device"]))
        loop = team.loop(loop, settings["device"] == "cpu")
    expectation = Expectation(expected if team is None or team.first else None, rtol, atol, equal_nan)
    nodes = NodeComparison(compare_with, expectation, model_file(options))
    nodes.check()
    work = Work(
        options,
        input or () if team is None else team.words(input or ()),
        inputs if team is None or inputs is None else team.path(inputs),
        settings | {"dims": dims_to_bind(options)},
        loop,
        expectation,
        ParameterFiles(load_parameters, save_parameters if team is None or team.first else None),
        nodes,
        team,
    )
    after = Aftermath(work, command_line(), repro, check_number(timeout, "--timeout", positive=True),
                      always=repro_always)  # fmt: skip
    if tracing():
        after.trace_here(output)
    if team is None:
        watchdog.supervise(timeout, json=json, expired=after.at_time_limit, crashes=_on_cpu(device))
        open_context_early(device)
    else:
        team.enter()
    with interrupts.bounded():
        report, error = after.run(output)
    cold = make_cold_report(report, after.phases.spent, started - STARTED) if cold_report else None
    if team is not None:
        report = team.report(report)
        output_dir = team.folder(output_dir)
        save_outputs, trace = (save_outputs, trace) if team.first else (None, None)
    Saving(output_dir, save_outputs, trace).write(report)
    if team is not None:
        team.leave()
    show_run(output, report, error, samples, cold)


def _on_cpu(device: str) -> bool:
    """Whether `device` will surely be the CPU, where a kernel's stray pointer ends the process.

    Only looks whether there is a driver: CUDA must not be initialised before a fork.
    """
    if device != "auto":
        return device == "cpu"
    import ctypes

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return True
    return False


@dataclass(frozen=True, slots=True)
class Work:
    """What to run: `settings` are Session's arguments, `loop` those of its `run`."""

    graph: GraphOptions
    pairs: Sequence[str]
    bundle: str | None
    settings: dict[str, Any]
    loop: dict[str, Any]
    expectation: Expectation
    parameters: ParameterFiles = NO_FILES
    nodes: NodeComparison | None = None
    team: Team | None = None

    def load(self, output: Output) -> tuple[KernelGraph, Mapping[str, Any]]:
        """Graph and given arrays."""
        from kgrun.cli.arrays import read_inputs
        from kgrun.cli.progress import phase

        with phase(f"loading {self.graph.file}", output):
            graph = read_graph(self.graph)
            given = self.parameters.read(graph) | read_inputs(graph, self.pairs, self.bundle)
            graph = at_rank(read_graph_for(self.graph, graph, given), self.team)
            self.expectation.check(graph)
        return graph, given

    def run(self, output: Output, graph: KernelGraph, given: Mapping[str, Any]) -> tuple[RunReport, KgrunError | None]:
        """The report, and the error that ends the command after it where outputs differ."""
        from kgrun.cli.progress import phase
        from kgrun.runtime.sessions import open_session

        with phase("preparing", output):
            tell = watchdog.tell if watchdog.supervised() else None
            settings = dict(self.settings)
            if self.team is not None:
                self.team.greet(graph, settings, self.loop)
                settings["dims"] = self.team.dims(graph) | settings["dims"]
            session = open_session(graph, values=given, tell=tell, **settings)
        with session, phase("running", output):
            if self.team is not None:
                self.team.settle()
            # Nothing that an earlier run left may pass for what is compared.
            restart = self.nodes.start(session) if self.nodes is not None else None
            report = session.run(given, poison=self.expectation.file is not None, **self.loop)
            if self.team is not None:
                self.team.ran()
            wanted = self.expectation.read(report.program.graph)
            report = self.parameters.write(session, report)
            problem: KgrunError | None = None
            if self.nodes is not None and restart is not None:
                report, problem = self.nodes.judge(session, given, self.settings, report, restart)
        report, error = judge_checks(*self.expectation.judge(report, wanted))
        return report, error or problem
