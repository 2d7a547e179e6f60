"""`kgrun execute`: run a graph on a device, report what each kernel and each byte cost, compare the outputs."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from kgrun.cli import interrupts
from kgrun.cli import options as opt
from kgrun.cli import timeout as watchdog
from kgrun.cli.aftermath import Aftermath, tracing
from kgrun.cli.boundary import command_line
from kgrun.cli.entry import STARTED
from kgrun.cli.execution import Saving, Work
from kgrun.cli.judging import Expectation, NodeComparison
from kgrun.cli.load import GraphOptions, dims_to_bind, model_file
from kgrun.cli.output import Output
from kgrun.cli.parameters import ParameterFiles
from kgrun.cli.ranks import Team, find_team, launched_here
from kgrun.cli.run_words import Words, check_words, refuse_for_several, run_settings, session_settings
from kgrun.cli.show import show_run
from kgrun.cli.values import check_number, refuse
from kgrun.runtime.devices.cuda_early import open_context_early


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
    words: Words = SimpleNamespace(**locals())
    words.started = time.perf_counter_ns()
    output = Output(json, csv if not tracing() else None, quiet, verbose, no_color)
    limit = check_number(timeout, "--timeout", positive=True)
    check_words(words)
    settings, loop = session_settings(words), run_settings(words)
    if not more and not sweep:
        _one(words, output, limit, settings, loop)
        return
    refuse_for_several(words, loop)
    if more:
        _several(words, output, limit, settings, loop)
    else:
        _sweep(words, output, limit, settings, loop)


def _one(words: Words, output: Output, limit: float | None, settings: dict[str, Any], loop: dict[str, Any]) -> None:
    """One graph at one size, alone or as a rank of a job."""
    _refuse_bundle(words, words.ranks or 1)  # said once, before any rank is started
    launched_here(words.ranks, limit, _on_cpu(words.device))
    team = find_team(words.timeout)
    if team is not None:
        _refuse_bundle(words, team.info.size)
        settings["device"] = team.device(settings["device"], _on_cpu(settings["device"]))
        loop = team.loop(loop, settings["device"] == "cpu")
    after = Aftermath(_work(words, settings, loop, team), command_line(), words.repro, limit, always=words.repro_always)
    if tracing():
        after.trace_here(output)
    if team is None:
        watchdog.supervise(limit, json=words.json, expired=after.at_time_limit, crashes=_on_cpu(words.device))
        open_context_early(words.device)
    else:
        team.enter()
    with interrupts.bounded():
        report, error = after.run(output)
    cold = None
    if words.cold_report:
        from kgrun.cli.cold import cold_report

        cold = cold_report(report, after.phases.spent, words.started - STARTED)
    if team is None:
        Saving(words.output_dir, words.save_outputs, words.trace).write(report)
    else:
        report = team.report(report)
        written = (words.save_outputs, words.trace) if team.first else (None, None)
        Saving(team.folder(words.output_dir), *written).write(report)
        team.leave()
    show_run(output, report, error, words.samples, cold)


def _refuse_bundle(words: Words, ranks: int) -> None:
    """UsageError where one rank of several is to leave a bundle: its data alone do not fail again."""
    if ranks > 1:
        refuse({"--repro": words.repro}, "a run of one rank")


def _work(words: Words, settings: dict[str, Any], loop: dict[str, Any], team: Team | None) -> Work:
    """What is to run, and what its results are held against; of the ranks the first compares and writes."""
    options = GraphOptions(words.file, words.dim, allow_external_data=words.allow_external_data)
    first, pairs, bundle = team is None or team.first, words.input or (), words.inputs
    if team is not None:
        pairs, bundle = team.words(pairs), None if bundle is None else team.path(bundle)
    expectation = Expectation(words.expected if first else None, words.rtol, words.atol, words.equal_nan)
    nodes = NodeComparison(words.compare_with, expectation, model_file(options))
    nodes.check()
    parameters = ParameterFiles(words.load_parameters, words.save_parameters if first else None)
    settings = settings | {"dims": dims_to_bind(options)}
    return Work(options, pairs, bundle, settings, loop, expectation, parameters, nodes, team)


def _several(words: Words, output: Output, limit: float | None, settings: dict[str, Any], loop: dict[str, Any]) -> None:
    """Several graphs in one session."""
    from kgrun.cli import several

    watchdog.supervise(limit, json=words.json, crashes=_on_cpu(words.device))
    files = [words.file, *words.more]
    work = several.SeveralWork(files, words.allow_external_data, words.input or (), words.inputs, settings, loop)
    several.execute(work, output, words.output_dir, words.save_outputs, words.samples)


def _sweep(words: Words, output: Output, limit: float | None, settings: dict[str, Any], loop: dict[str, Any]) -> None:
    """One graph at several sizes."""
    from kgrun.cli import sweep

    sizes = sweep.parse_sweep(words.sweep)
    watchdog.supervise(limit, json=words.json, crashes=_on_cpu(words.device))
    graph = GraphOptions(words.file, allow_external_data=words.allow_external_data)
    work = sweep.SweepWork(graph, words.input or (), words.inputs, sizes, settings, loop)
    sweep.execute(work, output, words.samples, words.verbose)


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
