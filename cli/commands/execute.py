"""`kgrun execute`: run a graph on a device, report what each kernel and each byte cost, compare the outputs."""

from __future__ import annotations

import time
from typing import Any

from kgrun.cli import interrupts
from kgrun.cli import options as opt
from kgrun.cli import timeout as watchdog
from kgrun.cli.aftermath import Aftermath, tracing
from kgrun.cli.boundary import command_line
from kgrun.cli.checks import check_options
from kgrun.cli.dump import dump_options
from kgrun.cli.entry import STARTED
from kgrun.cli.execution import Saving, Work
from kgrun.cli.judging import Expectation, NodeComparison
from kgrun.cli.load import GraphOptions, dims_to_bind, model_file
from kgrun.cli.offload import read_profile
from kgrun.cli.output import Output
from kgrun.cli.parameters import ParameterFiles
from kgrun.cli.queues import read_queues
from kgrun.cli.ranks import find_team, launched_here
from kgrun.cli.show import show_run
from kgrun.cli.values import check_number, optional_size, parse_device, parse_dims, refuse
from kgrun.graphs.errors import UsageError
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
    started = time.perf_counter_ns()
    output = Output(json, csv if not tracing() else None, quiet, verbose, no_color)
    limit = check_number(timeout, "--timeout", positive=True)
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
        "memory_limit": optional_size(memory_limit, "--memory-limit"),
        "host_memory_limit": optional_size(host_memory_limit, "--host-memory-limit"),
        "pool_unit": optional_size(pool_unit, "--pool-unit"),
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
    if more or sweep:
        refuse({
            "--csv": csv, "--trace": trace, "--check": check, "--allow-skip": allow_skip, "--expected": expected,
            "--dump": dumping, "--repro": repro, "--cold-report": cold_report, "--compare-with": compare_with,
        }, "one graph" if more else "a run at one size")  # fmt: skip
    if more:
        from kgrun.cli import several

        refuse({
            "--reuse-outputs": reuse_outputs, "--sweep": sweep, "--queue": queue, "--load-parameters": load_parameters,
            "--save-parameters": save_parameters,
        }, "one graph")  # fmt: skip
        watchdog.supervise(limit, json=json, crashes=_on_cpu(device))
        files = [file, *more]
        graphs = several.SeveralWork(files, allow_external_data, input or (), inputs, settings, loop)
        several.execute(graphs, output, output_dir, save_outputs, samples)
        return
    if sweep:
        from kgrun.cli import sweep as sweeping

        refuse({"--output-dir": output_dir, "--save-outputs": save_outputs}, "a run at one size")
        sizes, whole = sweeping.parse_sweep(sweep), GraphOptions(file, allow_external_data=allow_external_data)
        watchdog.supervise(limit, json=json, crashes=_on_cpu(device))
        swept = sweeping.SweepWork(whole, input or (), inputs, sizes, settings, loop)
        sweeping.execute(swept, output, samples, verbose)
        return
    launched_here(ranks, limit, _on_cpu(device))
    team = find_team(timeout)
    if team is not None:
        settings["device"] = team.device(settings["device"], _on_cpu(settings["device"]))
        loop = team.loop(loop, settings["device"] == "cpu")
    first = team is None or team.first  # of the ranks: it compares and writes
    expectation = Expectation(expected if first else None, rtol, atol, equal_nan)
    nodes = NodeComparison(compare_with, expectation, model_file(options))
    nodes.check()
    work = Work(
        options,
        input or () if team is None else team.words(input or ()),
        inputs if team is None or inputs is None else team.path(inputs),
        settings | {"dims": dims_to_bind(options)},
        loop,
        expectation,
        ParameterFiles(load_parameters, save_parameters if first else None),
        nodes,
        team,
    )
    after = Aftermath(work, command_line(), repro, limit, always=repro_always)
    if tracing():
        after.trace_here(output)
    if team is None:
        watchdog.supervise(timeout, json=json, expired=after.at_time_limit, crashes=_on_cpu(device))
        open_context_early(device)
    else:
        team.enter()
    with interrupts.bounded():
        report, error = after.run(output)
    cold = None
    if cold_report:
        from kgrun.cli.cold import cold_report as make_cold_report

        cold = make_cold_report(report, after.phases.spent, started - STARTED)
    if team is None:
        Saving(output_dir, save_outputs, trace).write(report)
    else:
        report = team.report(report)
        written = (save_outputs, trace) if first else (None, None)
        Saving(team.folder(output_dir), *written).write(report)
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
