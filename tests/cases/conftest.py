"""What the cases share: graphs around one piece of CUDA C, what reports say, and where GPU cases run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kgrun.runtime.devices.cuda import gpu_status
from tests.commands import Result


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    status = None
    for item in items:
        if "tests/cases" in item.path.as_posix() and item.get_closest_marker("gpu"):
            status = status or gpu_status()
            if not status.usable:
                item.add_marker(pytest.mark.skip(reason=str(status.reason)))


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
