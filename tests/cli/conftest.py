"""What the tests of the command line share: a stand-in for a GPU, graphs, a report made by hand, a schema checker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.bound import BoundGraph, BoundNode, BoundTensor, Warning
from kgrun.graphs.operators.base import TensorType
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime.devices.base import DeviceInfo
from kgrun.runtime.memory.plan_types import MemoryPlan, Placement
from kgrun.runtime.program import Buffer, Clear, Decision, MemoryClass, Pointer, Program, Step
from kgrun.runtime.report import Comparison, RunReport, StepReport, TimeStats, Transfer
from tests.commands import Command, Result

RELU = {
    "kgrun": 1,
    "name": "tiny",
    "dims": {"n": {"default": 8}},
    "tensors": {"x": {"role": "input", "dtype": "float32", "shape": ["n"], "init": {"uniform": [-1, 1]}}},
    "nodes": [
        {"name": "neg", "op": "Neg", "inputs": ["x"], "outputs": ["t"]},
        {"name": "act", "op": "Relu", "inputs": ["t"], "outputs": ["y"]},
    ],
    "outputs": ["y"],
}


@pytest.fixture
def graph_file(tmp_path: Path) -> Callable[..., Path]:
    """Write a graph: RELU with top-level members replaced."""

    def write(file: str = "tiny.json", /, **changes: Any) -> Path:
        path = tmp_path / file
        path.write_text(json.dumps(RELU | changes), encoding="utf-8")
        return path

    return write


KERNELS = ("first", "second", "third")
COPY = 'extern "C" __global__ void {0}(const float* x, float* y) {{ y[threadIdx.x] = x[threadIdx.x]; }}'


@pytest.fixture
def chain(graph_file: Any) -> Path:
    """x -> first -> t0 -> second -> t1 -> third -> y."""
    names = ["x", "t0", "t1", "y"]
    tensors: dict[str, Any] = {"x": {"role": "input", "dtype": "float32", "shape": ["n"], "init": {"uniform": [-1, 1]}}}
    tensors |= {name: {"dtype": "float32", "shape": ["n"]} for name in names[1:]}
    nodes = [
        {"name": f"n{i}", "kernel": k, "inputs": [names[i]], "outputs": [names[i + 1]], "grid": [1], "block": [8]}
        for i, k in enumerate(KERNELS)
    ]
    kernels = {name: {"source": COPY.format(name), "entry": name} for name in KERNELS}
    path: Path = graph_file(tensors=tensors, nodes=nodes, kernels=kernels)
    return path


class FakeGpu:
    """`kgrun execute GRAPH --device cuda OPTIONS` on the stand-in, with faults in kernels (`stand_in/`)."""

    def __init__(self, process: Command, graph: Path, folder: Path) -> None:
        self._process, self._graph, self._folder = process, graph, folder

    def _environment(self, tell: bool, faults: Mapping[str, str]) -> dict[str, str]:
        here = Path(__file__).parent
        paths = [str(here / "stand_in"), str(here.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {
            "PYTHONPATH": os.pathsep.join(paths),
            "FAKE_FAULTS": json.dumps(faults),
            "FAKE_ONCE": str(self._folder / "once"),
            "FAKE_TELL": "1" if tell else "",
        }

    def __call__(self, *options: str | Path, graph: str | Path | None = None, stdin: str = "", **faults: str) -> Result:
        """Run to the end; `--tell` among the options makes the driver say how it is closed."""
        words = [option for option in options if option != "--tell"]
        env = self._environment("--tell" in options, faults)
        return self._process("execute", graph or self._graph, "--device", "cuda", *words, env=env, stdin=stdin)

    def start(self, *options: str, **faults: str) -> subprocess.Popen[str]:
        """Start it."""
        words = ["execute", str(self._graph), "--device", "cuda", *options]
        return subprocess.Popen(
            [sys.executable, "-m", "kgrun.cli", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | self._environment(False, faults),
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell has it ignored
        )  # fmt: skip


@pytest.fixture
def fake_gpu(process: Command, chain: Path, tmp_path: Path) -> FakeGpu:
    """A machine with one GPU whose kernels fail as told."""
    return FakeGpu(process, chain, tmp_path)


NASTY = 'a"b\\c\n<T,8> [red]é\x1b[31m'


def stats(median: int) -> TimeStats:
    """Made-up statistics."""
    return TimeStats(median - 10, median, median, median + 10, median + 20, median + 30, 0.05, 3)


@pytest.fixture
def report() -> RunReport:
    """A run of two steps on two streams, made by hand; the first step has a nasty name."""
    source = KernelGraph.model_validate(RELU)
    kind = TensorType("float32", (8,))
    nodes = tuple(
        BoundNode(
            index=index, position=index, name=name, op=op, inputs=(read,), outputs=(written,), call=None, launch=None,
            workspace=(), cleared_workspace=(), inplace={}, clear=(), predecessors=tuple(range(index)), flops=None,
            bytes=None, spec=source.nodes[index],
        )
        for index, (name, op, read, written) in enumerate([("neg", "Neg", "x", "t"), ("act", "Relu", "t", "y")])
    )  # fmt: skip
    tensors = {
        "x": BoundTensor("x", "input", kind, consumers=(0,)),
        "t": BoundTensor("t", "intermediate", kind, producer=0, consumers=(1,)),
        "y": BoundTensor("y", "output", kind, producer=1, is_output=True),
    }
    bound = BoundGraph(source, {"n": 8}, tensors, nodes, ("y",), (Warning("W-TEST", "look here", ("nodes", 0)),))
    buffers = (
        Buffer(0, "x", 32, MemoryClass.INPUT, ("x",)),
        Buffer(1, "t", 32, MemoryClass.INTERMEDIATE, ("t", "v"), shares={"v": "view of t"}),
        Buffer(2, "y", 32, MemoryClass.OUTPUT, ("y",)),
    )
    steps = (
        Step(0, NASTY, 0, "Neg", "compute", Clear(Pointer(1), 32), (0,), (1,), (), 8, 64),
        Step(1, "act", 1, "Relu", "comm", Clear(Pointer(2), 32), (1,), (2,), (0,)),
    )
    slots = {"x": Pointer(0), "t": Pointer(1), "v": Pointer(1, 16), "y": Pointer(2)}
    decisions = (Decision("act", "y", "t", False, "y is a graph output"),)
    program = Program(bound, "cpu", buffers, slots, steps, decisions)
    placements = (
        Placement(0, "x", MemoryClass.INPUT, "static", 0, 32, 512, 0, 1),
        Placement(1, "t", MemoryClass.INTERMEDIATE, "dynamic", 0, 32, 512, 0, 1),
        Placement(2, "y", MemoryClass.OUTPUT, "static", 512, 32, 512, 0, 1),
    )
    plan = MemoryPlan(placements, 1024, 512, 512, 512, True, "skyline", 1000, 0)
    rows = (
        StepReport(NASTY, "Neg", "compute", (2, 1, 1), (64, 1, 1), 0, stats(3000), "events", 8, 64, (3000,)),
        StepReport("act", "Relu", "comm", None, None, None, None, "not timed", None, None),
    )
    outputs = {"y": np.array([0, 0.1, np.nan, np.inf, 1, 2, 3, 4], dtype=np.float32)}
    device = DeviceInfo("cpu", "test cpu", 0, None, 1 << 30, {"numpy": "2"})
    comparisons = (Comparison("y", False, 2, 8, 0.5, float("inf"), "2 of 8 elements differ"),)
    return RunReport(
        program, plan, device, outputs, rows, stats(4000), 3, 1, Transfer(32, 100), Transfer(32, 0), 2048,
        ((0, 0, 3000), (1, 2500, 1000)), (), comparisons, {"plan": 5},
    )  # fmt: skip


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is taken for a terminal of 60 columns."""
    monkeypatch.setattr("kgrun.cli.render.table._is_terminal", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "60")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def faults() -> Callable[[Any, Mapping[str, Any]], list[str]]:
    """A checker of the parts of JSON Schema that kgrun's report schema uses: faults as `path: what`."""
    return lambda value, schema: list(_faults(value, schema, schema, "$"))


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: isinstance(v, int) and not isinstance(v, bool),
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "null": lambda v: v is None,
}
_KNOWN = {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "anyOf",
    "minimum",
    "$ref",
}
_ABOUT = {"$schema", "$id", "$defs", "title", "description"}


def _faults(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], path: str) -> Iterator[str]:
    assert set(schema) <= _KNOWN | _ABOUT, f"the checker does not know {set(schema) - _KNOWN - _ABOUT}"
    if "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        yield from _faults(value, target, root, path)
    if "anyOf" in schema and all(any(_faults(value, each, root, path)) for each in schema["anyOf"]):
        yield f"{path}: none of anyOf"
    if "type" in schema and not _TYPES[schema["type"]](value):
        yield f"{path}: {value!r} is no {schema['type']}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if "const" in schema and value != schema["const"]:
        yield f"{path}: {value!r} is not {schema['const']!r}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{path}: {value} < {schema['minimum']}"
    if isinstance(value, dict):
        yield from _member_faults(value, schema, root, path)
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _faults(item, schema["items"], root, f"{path}[{index}]")


def _member_faults(
    value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], path: str
) -> Iterator[str]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", []):
        if name not in value:
            yield f"{path}: {name} is missing"
    for name, item in value.items():
        if name in properties:
            yield from _faults(item, properties[name], root, f"{path}.{name}")
        elif others is False:
            yield f"{path}: {name} is unknown"
        elif isinstance(others, dict):
            yield from _faults(item, others, root, f"{path}.{name}")
