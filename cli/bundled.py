"""What a bundle keeps of the command line: settings of the session and of its run as words, and the files they name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kgrun.cli.aftermath import Work

_PROFILE = "profile.json"
_OPTION_OF = {
    "device": "--device",
    "memory": "--memory",
    "memory_limit": "--memory-limit",
    "host_memory_limit": "--host-memory-limit",
    "pool_unit": "--pool-unit",
    "offload": "--offload",
    "planner": "--planner",
    "time_limit": "--planner-time",
    "seed": "--seed",
    "schedule": "--schedule",
    "streams": "--streams",
    "precision": "--precision",
    "iterations": "--iterations",
    "warmup": "--warmup",
    "duration": "--duration",
    "timing": "--timing",
    "cache": "--cache",
}
_FLAG_OF = {
    "strict": "--strict",
    "allow_empty": "--allow-empty",
    "allow_skip": "--allow-skip",
    "sync_each": "--sync-each",
    "reuse_outputs": "--reuse-outputs",
    "fuse": "--fuse",
}


def settings_words(settings: Mapping[str, Any]) -> tuple[list[str], dict[str, Path]]:
    """Arguments of `Session` and of its `run` as words, and files to keep by the names that the words give them.

    Dimensions, given arrays and queues' data are no words: they are in the bundle's graph and its arrays.
    """
    words: list[str] = []
    for name, value in settings.items():
        if name == "checks" and value:
            words += ["--check", ",".join(value)]
        elif name in _FLAG_OF and value:
            words.append(_FLAG_OF[name])
        elif name == "graph_replay" and not value:
            words.append("--no-graph")
        elif name in _OPTION_OF and value is not None:
            words += [_OPTION_OF[name], str(value)]
    profile = settings.get("profile")
    if profile is None:
        return words, {}
    from kgrun.runtime.memory.offload.times import PROFILES

    if profile.name in PROFILES:
        return [*words, "--device-profile", profile.name], {}
    return [*words, "--device-profile", f"./{_PROFILE}"], {_PROFILE: Path(profile.name)}


def held_against(work: Work, *, whole: bool) -> tuple[list[str], dict[str, Path], list[str]]:
    """What the results were held against: words, files to keep by the names that the words give them, and notes.

    Expected outputs are those of the `whole` graph; one that is cut has others.
    """
    words: list[str] = []
    files: dict[str, Path] = {}
    notes: list[str] = []
    if whole and work.expectation.file is not None:
        name = f"expected{Path(work.expectation.file).suffix}"
        files[name] = Path(work.expectation.file)
        words += ["--expected", f"./{name}"]
    reference = work.nodes.reference if work.nodes is not None else None
    if reference == "cpu":
        words += ["--compare-with", "cpu"]
    elif reference == "onnxruntime":
        notes.append("ONNX Runtime, which the results were compared with, runs the model and not this graph")
    elif reference is not None:
        name = f"reference{Path(reference).suffix}"
        files[name] = Path(reference)
        words += ["--compare-with", f"./{name}"]
    if words:
        words += ["--rtol", str(work.expectation.rtol), "--atol", str(work.expectation.atol)]
        words += ["--equal-nan"] if work.expectation.equal_nan else []
    return words, files, notes
