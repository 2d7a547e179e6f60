"""The cases of the command-line fuzz: broken files of every kind, each with the command line that reads it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kgrun.graphs.load.yaml_text import read_yaml
from kgrun.graphs.operators import all_schemas
from kgrun.graphs.operators.base import OpCall, TensorType
from tests.fuzz.mutate import mutations
from tests.fuzz.mutate_csv import csv_mutants
from tests.fuzz.mutate_structure import structural_mutants
from tests.runtime.kernels.cuda.operator_calls import calls_of

ROOT = Path(__file__).parents[2]
SEEDS = Path(__file__).parent / "seeds"
EXAMPLES = ("digits", "encoder_ops", "saxpy", "edges", "encoder")
# A mutant of a hand-written kernel may read or write anywhere, as any program in C may; those are not run here.
OPERATORS_ONLY = ("digits", "encoder_ops", "operators", "small")
COMMANDS = (
    ["execute", "--device", "cpu"], ["execute", "--device", "cpu"], ["execute", "--device", "cpu", "--memory", "none"],
    ["execute", "--device", "cpu", "--memory-limit", "1MiB", "--iterations", "2"],
    ["validate"], ["validate", "--strict"],
    ["plan-memory"], ["plan-memory", "--target", "cpu", "--memory", "none"], ["plan-memory", "--limit", "10kB"],
    ["explain", "NAME"],
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A file to write, and the words of the command that reads it; the word FILE stands for its path."""

    name: str
    data: bytes
    words: tuple[str, ...]


def prepare(folder: Path) -> None:
    """Put what the mutants refer to beside them."""
    shutil.copytree(ROOT / "examples" / "data", folder / "data")
    for path in (ROOT / "examples").glob("*.cu"):
        shutil.copy(path, folder)


def cases(scale: int, seed: int) -> Iterator[Case]:
    """All cases, about 2,200 × `scale`; the same for the same arguments."""
    yield from _examples(scale, seed)
    yield from _operators(scale, seed)
    for number, data in enumerate(csv_mutants(250 * scale, seed)):
        limit = ["--limit", "9000"] if number % 3 == 0 else []
        yield Case("mutant.csv", data, ("plan-memory", "FILE", *_json(number), *limit))


def _examples(scale: int, seed: int) -> Iterator[Case]:
    texts = {name: (ROOT / "examples" / f"{name}.yaml").read_text("utf-8") for name in EXAMPLES}
    texts |= {path.stem: path.read_text("utf-8") for path in sorted(SEEDS.iterdir())}
    for name, text in texts.items():
        runs = name in OPERATORS_ONLY
        value: Any = json.loads(text) if text.startswith("{") else read_yaml(text, name).value
        if name == "digits":  # one digit is as good as 450 here
            text = text.replace("default: 450", "default: 16").replace("digits.npz", "digits16.npz")
            value = read_yaml(text, name).value
        for number, data in enumerate(mutations(text, 50 * scale, seed)):
            yield Case("mutant.yaml", data, _words(number, runs, value))
        for number, graph in enumerate(structural_mutants(value, 90 * scale, seed)):
            file, data = _written(graph, number)
            yield Case(file, data, _words(number, runs, value))


def _operators(scale: int, seed: int) -> Iterator[Case]:
    chance = random.Random(seed)
    for op in sorted(all_schemas()):
        calls = list(calls_of(op))
        for number in range(9 * scale if calls else 0):
            graph = graph_of(chance.choice(calls))
            (mutant,) = structural_mutants(graph, 1, chance.randrange(1 << 30))
            file, data = _written(mutant, number)
            yield Case(file, data, _words(number // 3 if number % 3 else 0, True, graph))


def graph_of(call: OpCall) -> dict[str, Any]:
    """A graph of one operator on generated inputs."""
    tensors = {f"x{i}": _tensor(kind) for i, kind in enumerate(call.inputs) if kind is not None}
    names = [None if kind is None else f"x{i}" for i, kind in enumerate(call.inputs)]
    outputs = [f"y{i}" for i in range(len(call.outputs))]
    node: dict[str, Any] = {"name": "node", "op": call.op, "inputs": names, "outputs": outputs}
    attributes = {k: list(v) if isinstance(v, tuple) else v for k, v in call.attributes.items() if v is not None}
    return {
        "kgrun": 1,
        "name": call.op,
        "tensors": tensors,
        "nodes": [node | {"attributes": attributes}],
        "outputs": outputs,
    }


def _tensor(kind: TensorType) -> dict[str, Any]:
    row: dict[str, Any] = {"dtype": kind.dtype, "shape": list(kind.shape)}
    if kind.value is not None:
        return row | {"role": "constant", "value": list(kind.value) if kind.shape else kind.value[0]}
    init = {"uniform": [-1, 1]} if kind.dtype.startswith(("float", "bfloat")) else {"integers": [0, 2]}
    return row | {"role": "input", "init": {"fill": True} if kind.dtype == "bool" else init}


def _written(graph: dict[str, Any], number: int) -> tuple[str, bytes]:
    return f"mutant.{('json', 'yaml')[number % 2]}", json.dumps(graph).encode("ascii")


def _words(number: int, runs: bool, graph: dict[str, Any]) -> tuple[str, ...]:
    command = list(COMMANDS[number % len(COMMANDS)])
    if command[0] == "execute" and not runs:
        command = ["plan-memory", "--target", "cpu"]
    if command[-1] == "NAME":
        names = [*(graph.get("tensors") or {}), *(node["name"] for node in graph["nodes"])]
        command[-1:] = ["FILE", names[number % len(names)]]
    else:
        command.append("FILE")
    planner = ["--planner-time", "0.05"] if command[0] in ("execute", "plan-memory") else []
    return (*command, *planner, *_json(number))


def _json(number: int) -> list[str]:
    return ["--json"] if number % 4 != 3 else []
