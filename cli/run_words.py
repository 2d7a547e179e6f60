"""The words of `kgrun execute` as arguments of a session and of its run, and what must not be asked for together."""

from __future__ import annotations

from typing import Any

from kgrun.cli.checks import check_options
from kgrun.cli.dump import dump_options
from kgrun.cli.offload import read_profile
from kgrun.cli.queues import read_queues
from kgrun.cli.values import check_number, optional_size, parse_device, parse_dims, refuse
from kgrun.graphs.errors import UsageError

Words = Any  # the parameters of `commands.execute.command`, as attributes

# Endings of files that hold arrays in another form than `--save-outputs` writes.
_OTHER_ARRAYS = (".npy", ".safetensors")


def check_words(words: Words) -> None:
    """UsageError for numbers that are none, and for options without those that they add to."""
    if words.samples and not words.json:
        raise UsageError("--samples adds to the JSON document", code="KG240", help="give --json too")
    if words.fuse and words.compare_with is not None:
        raise UsageError("--compare-with looks at every tensor, and --fuse leaves some out", code="KG240")
    if words.repro_always and words.repro is None:
        raise UsageError("--repro-always writes what --repro names", code="KG240", help="give --repro DIR too")
    if words.save_outputs is not None and words.save_outputs.lower().endswith(_OTHER_ARRAYS):
        raise UsageError(f"--save-outputs: {words.save_outputs!r} is no .npz", code="KG253", help="name it FILE.npz")
    numbers = (("--rtol", words.rtol), ("--atol", words.atol), ("--planner-time", words.planner_time))
    for name, value in numbers:
        check_number(value, name)


def session_settings(words: Words) -> dict[str, Any]:
    """Arguments of `Session`, and of the sessions beside it."""
    return {
        "device": parse_device(words.device),
        "dims": parse_dims(words.dim or ()),
        "memory": words.memory.value,
        "memory_limit": optional_size(words.memory_limit, "--memory-limit"),
        "host_memory_limit": optional_size(words.host_memory_limit, "--host-memory-limit"),
        "pool_unit": optional_size(words.pool_unit, "--pool-unit"),
        "offload": words.offload.value,
        "profile": read_profile(words.device_profile),
        "planner": words.planner,
        "time_limit": words.planner_time,
        "seed": words.seed,
        "strict": words.strict,
        "allow_empty": words.allow_empty,
        "sync_each": words.sync_each,
        "graph_replay": words.graph,
        "streams": words.streams.value,
        "precision": words.precision.value,
        "reuse_outputs": words.reuse_outputs,
        "fuse": words.fuse,
        "queues": read_queues(words.queue or ()),
    } | check_options(words.check, words.schedule, words.allow_skip)


def run_settings(words: Words) -> dict[str, Any]:
    """Arguments of `Session.run`."""
    loop: dict[str, Any] = {
        "iterations": words.iterations,
        "warmup": words.warmup,
        "duration": check_number(words.duration, "--duration", positive=True),
        "timing": words.timing.value,
        "cache": words.cache.value,
        "roofline": words.roofline,
    }
    if words.cold_report:
        loop["first"] = True
    dumping = dump_options(words.dump, words.dump_dir, words.dump_iterations, words.dump_config)
    if dumping is not None and words.check:
        raise UsageError("--check and --dump exclude each other: each watches runs of its own", code="KG240")
    return loop if dumping is None else loop | {"dump": dumping}


def refuse_for_several(words: Words, loop: dict[str, Any]) -> None:
    """UsageError for what is for one graph at one size, where more are asked for."""
    refuse({
        "--csv": words.csv, "--trace": words.trace, "--check": words.check, "--allow-skip": words.allow_skip,
        "--expected": words.expected, "--dump": "dump" in loop, "--repro": words.repro,
        "--cold-report": words.cold_report, "--compare-with": words.compare_with, "--ranks": words.ranks,
        "--load-parameters": words.load_parameters, "--save-parameters": words.save_parameters,
        "--reuse-outputs": words.reuse_outputs, "--streams auto": words.streams.value == "auto",
    }, "one graph" if words.more else "a run at one size")  # fmt: skip
    if words.more:
        refuse({
            "--sweep": words.sweep, "--queue": words.queue, "--schedule": words.schedule != "forward",
        }, "one graph")  # fmt: skip
    else:
        refuse({"--output-dir": words.output_dir, "--save-outputs": words.save_outputs}, "a run at one size")
