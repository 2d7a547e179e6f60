"""What the cases share: ways to call kgrun, graphs around one piece of CUDA C, and where GPU cases run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kgrun.cli.entry import main
from kgrun.runtime.devices.cuda import gpu_status


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """What was wrong, in words: the messages of all errors of a JSON document with their places and help."""
        rows = self.json()["errors"]
        return "\n".join(f"{row['code']} {row['message']} | {row['where']} | {row['help']}" for row in rows)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    status = None
    for item in items:
        if "tests/cases" in item.path.as_posix() and item.get_closest_marker("gpu"):
            status = status or gpu_status()
            if not status.usable:
                item.add_marker(pytest.mark.skip(reason=str(status.reason)))


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("KGRUN_")}


@pytest.fixture
def kgrun(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run `kgrun ARGUMENTS` in this process, its output piped."""
    for name in set(os.environ) - set(_environment()):
        monkeypatch.delenv(name)

    def call(*arguments: str | Path) -> Result:
        capfd.readouterr()
        code = main([str(each) for each in arguments])
        return Result(code, *capfd.readouterr())

    return call


@pytest.fixture
def process() -> Callable[..., Result]:
    """Run `kgrun ARGUMENTS` in a process of its own; `env` adds to the environment, `code` is Python to run instead."""

    def call(*arguments: str | Path, env: Mapping[str, str] = {}, code: str | None = None) -> Result:
        start = ["-m", "kgrun.cli"] if code is None else ["-c", code]
        done = subprocess.run(
            [sys.executable, *start, *map(str, arguments)],
            capture_output=True, encoding="utf-8", env=_environment() | dict(env), timeout=100, check=False,
        )  # fmt: skip
        return Result(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a graph (a mapping, or text as it stands) to a file and return its path."""

    def call(graph: Mapping[str, Any] | str, name: str = "graph.json") -> Path:
        path = tmp_path / name
        path.write_text(graph if isinstance(graph, str) else json.dumps(graph), encoding="utf-8")
        return path

    return call


def relu(**changes: Any) -> dict[str, Any]:
    """y = relu(-x) on `n` = 8 floats, with top-level members replaced."""
    x = {"role": "input", "dtype": "float32", "shape": ["n"], "init": {"uniform": [-1, 1]}}
    nodes = [
        {"name": "neg", "op": "Neg", "inputs": ["x"], "outputs": ["t"]},
        {"name": "act", "op": "Relu", "inputs": ["t"], "outputs": ["y"]},
    ]
    top = {"kgrun": 1, "name": "tiny", "dims": {"n": {"default": 8}}, "tensors": {"x": x}, "nodes": nodes}
    return {**top, "outputs": ["y"], **changes}


def launch(
    source: str,
    *,
    args: Sequence[Any] = ("y",),
    out: tuple[str, Sequence[int]] = ("float32", (4,)),
    kernel: Mapping[str, Any] = {},
    **node: Any,
) -> dict[str, Any]:
    """A graph of the node `k0` that launches `source`'s kernel `k` with one output `y`."""
    row = {"name": "k0", "kernel": "k", "outputs": ["y"], "args": list(args), "grid": [1], "block": [1], **node}
    return {
        "kgrun": 1,
        "kernels": {"k": {"source": source, "entry": "k", **kernel}},
        "tensors": {"y": {"dtype": out[0], "shape": list(out[1])}},
        "nodes": [row],
        "outputs": ["y"],
    }


def value(result: Result, name: str) -> Any:
    """The elements of an output in a report."""
    assert result.code == 0, result.out + result.err
    return next(row["value"] for row in result.json()["outputs"] if row["name"] == name)


IN = {"role": "input", "dtype": "float32", "shape": ["n"], "init": {"uniform": [-1, 1]}}


def op(name: str, op: str, inputs: Any, output: str, **more: Any) -> dict[str, Any]:
    """A node with one output."""
    return {"name": name, "op": op, "inputs": list(inputs), "outputs": [output], **more}


def plan(done: Result) -> dict[str, Any]:
    """The rows of a plan by name."""
    assert done.code == 0, done.out + done.err
    return {row["name"]: row for row in done.json()["tensors"]}


def together(a: Any, b: Any) -> bool:
    """Whether two rows of a plan share bytes while both live."""
    lives = a["first_step"] <= b["last_step"] and b["first_step"] <= a["last_step"]
    spans = a["offset"] < b["offset"] + b["aligned_bytes"] and b["offset"] < a["offset"] + a["aligned_bytes"]
    return bool(a["space"] == b["space"] and lives and spans)


ON_EACH_DEVICE = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
