"""What a bundle keeps of the command line: each option of `execute` is in its command, or has a reason not to be."""

from __future__ import annotations

import json
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.cli.commands.execute import command
from tests.cli.test_repro import CHAIN, command_of, run_twice

# Parameter of the command: its option with a value that is not the default.
CARRIED = {
    "device": ["--device", "cpu"],
    "strict": ["--strict"],
    "allow_empty": ["--allow-empty"],
    "seed": ["--seed", "7"],
    "iterations": ["--iterations", "3"],
    "warmup": ["--warmup", "2"],
    "duration": ["--duration", "0.01"],
    "graph": ["--no-graph"],
    "streams": ["--streams", "auto"],
    "cache": ["--cache", "cold"],
    "timing": ["--timing", "events"],
    "precision": ["--precision", "tf32"],
    "fuse": ["--fuse"],
    "memory": ["--memory", "none"],
    "memory_limit": ["--memory-limit", "1048576"],
    "host_memory_limit": ["--host-memory-limit", "16777216"],
    "pool_unit": ["--memory", "pool", "--pool-unit", "4194304"],
    "offload": ["--offload", "off"],
    "device_profile": ["--device-profile", "h200"],
    "reuse_outputs": ["--reuse-outputs"],
    "planner": ["--planner", "skyline"],
    "planner_time": ["--planner-time", "0.5"],
    "check": ["--check", "nan"],
    "schedule": ["--schedule", "reverse"],
    "allow_skip": ["--allow-skip"],
    "sync_each": ["--sync-each"],
    "rtol": ["--rtol", "0.125"],
    "atol": ["--atol", "0.0625"],
    "equal_nan": ["--equal-nan"],
}
_ARRAYS = "its arrays are in the bundle"
_SHOWN = "shows or writes results, which the run does not depend on"
_ALONE = "refused beside --repro"
# Others, and why the command does not have them as they were given.
LEFT_OUT = {
    "file": "the graph is in the bundle",
    "dim": "dimensions are written into the bundle's graph",
    "input": _ARRAYS,
    "inputs": _ARRAYS,
    "load_parameters": _ARRAYS,
    "queue": "the first batches are in the bundle, as inputs",
    "allow_external_data": "given only where the bundle leaves data outside",
    "expected": "a copy is in the bundle, where outputs were held against it",
    "compare_with": "a copy is in the bundle, or `cpu` in its command, where nodes were held against it",
    "timeout": "given where it ended the run",
    "more": _ALONE,
    "sweep": _ALONE,
    "ranks": "each rank's bundle runs its part alone, which a note says",
    "roofline": "measures the device, after the run",
    "cold_report": "adds a run that does not count",
    **dict.fromkeys(("json", "csv", "trace", "quiet", "verbose", "no_color", "samples", "help_metrics"), _SHOWN),
    **dict.fromkeys(("output_dir", "save_outputs", "save_parameters"), _SHOWN),
    **dict.fromkeys(("dump", "dump_dir", "dump_iterations", "dump_config"), _SHOWN),
    **dict.fromkeys(("repro", "repro_always"), "asks for the bundle"),
}


def test_every_option_is_carried_or_has_a_reason_not_to_be() -> None:
    """A new option belongs to one of the two tables; where the run depends on it, to `cli/bundled.py` too."""
    assert not CARRIED.keys() & LEFT_OUT.keys()
    assert set(signature(command).parameters) == CARRIED.keys() | LEFT_OUT.keys()


@pytest.mark.parametrize("words", CARRIED.values(), ids=CARRIED.keys())
def test_an_option_is_in_the_command_of_the_bundle(
    kgrun: Any, graph_file: Any, tmp_path: Path, words: list[str]
) -> None:
    np.savez(tmp_path / "e.npz", y=np.full(256, 7, np.float32))
    expected = ["--device", "cpu", "--expected", tmp_path / "e.npz"]
    done = kgrun("execute", graph_file(**CHAIN), *expected, *words, "--json", "--repro", tmp_path / "b").json()
    assert done["error"]["code"] == "KG801"
    options = command_of(done["error"])
    assert any(options[at : at + len(words)] == words for at in range(len(options))), options


def test_times_from_a_report_go_with_the_bundle(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    file, profile = graph_file(**CHAIN), tmp_path / "report.json"
    profile.write_text(kgrun("execute", file, "--device", "cpu", "--json").out, encoding="utf-8")
    words = [file, "--device-profile", profile, "--memory-limit", 3_072, "--host-memory-limit", 16]
    first, again = run_twice(kgrun, words, tmp_path / "b")
    assert (first["exit"], again["message"]) == (4, first["message"])
    assert json.loads((tmp_path / "b" / "profile.json").read_text(encoding="utf-8"))["kernels"]
    profile.unlink()
    options = command_of(first)
    assert options[options.index("--device-profile") + 1] == str(tmp_path / "b" / "profile.json")
