"""Graphs that run node by node, from the command line: execute, validate, plan-memory, their warnings and errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

CPU = ("--device", "cpu")
X = {"x": {"role": "input", "dtype": "float32", "shape": [6], "init": {"arange": [-2, 1]}}}
SELECTING: dict[str, Any] = {
    "tensors": X,
    "nodes": [
        {"name": "act", "op": "Relu", "inputs": ["x"], "outputs": ["r"]},
        {"name": "places", "op": "NonZero", "inputs": ["r"], "outputs": ["p"]},
        {"name": "turned", "op": "Transpose", "inputs": ["p"], "outputs": ["y"]},
    ],
    "outputs": ["y"],
    "dims": {},
}
LOOPING: dict[str, Any] = {
    "tensors": X | {"trips": {"role": "constant", "dtype": "int64", "value": 3}},
    "nodes": [
        {"name": "act", "op": "Relu", "inputs": ["x"], "outputs": ["r"]},
        {
            "name": "loop", "op": "Loop", "inputs": ["trips", None, "r"], "outputs": ["l"],
            "subgraphs": {"body": "body"},
        },
        {"name": "neg", "op": "Neg", "inputs": ["l"], "outputs": ["y"]},
    ],
    "outputs": ["y"],
    "dims": {},
    "graphs": {
        "body": {
            "inputs": ["i", "go", "v"],
            "nodes": [{"name": "double", "op": "Add", "inputs": ["v", "v"], "outputs": ["v2"]}],
            "outputs": ["go", "v2"],
        }
    },
}  # fmt: skip


def codes(document: Any) -> list[str]:
    return [warning["code"] for warning in document["warnings"]]


def test_execute_chooses_node_by_node_and_says_why(kgrun: Any, graph_file: Any) -> None:
    document = kgrun("execute", graph_file(**SELECTING), *CPU, "--json").json()
    assert document["outputs"][0]["value"] == [[3], [4], [5]]
    assert codes(document) == ["W-NODE-BY-NODE"]
    assert document["not_replayed"] == "the graph runs node by node"
    document = kgrun("execute", graph_file(**LOOPING), *CPU, "--json", "--iterations", 2).json()
    assert document["outputs"][0]["value"] == [0, 0, 0, -8, -16, -24]
    assert [(row["name"], row["time_ns"]["count"]) for row in document["kernels"]] == [
        ("act", 2), ("loop.double", 6), ("neg", 2),
    ]  # fmt: skip


def test_the_text_report_says_what_the_run_took(kgrun: Any, graph_file: Any) -> None:
    text = kgrun("execute", graph_file(**LOOPING), *CPU).out
    assert "loop.double" in text
    assert "node by node: nothing was planned" in text


@pytest.mark.parametrize("memory", ["planned", "pool", "none", "single"])
def test_U9_every_memory_mode_gives_the_same_outputs(kgrun: Any, graph_file: Any, memory: str) -> None:
    words = (*CPU, "--json", "--memory", memory)
    document = kgrun("execute", graph_file(), *words).json()
    assert document["outputs"] == kgrun("execute", graph_file(), *CPU, "--json").json()["outputs"]
    assert "W-NODE-BY-NODE" not in codes(document)


def test_constants_tell_a_shape_before_the_run(kgrun: Any, graph_file: Any) -> None:
    tensors = {"x": {"role": "constant", "dtype": "float32", "value": [0, 1, 2]}}
    document = kgrun("execute", graph_file(**SELECTING | {"tensors": tensors}), *CPU, "--json").json()
    assert (document["outputs"][0]["value"], codes(document)) == ([[1], [2]], [])


def test_S51_strict_refuses_what_cannot_be_planned(kgrun: Any, graph_file: Any) -> None:
    for graph in (SELECTING, LOOPING):
        result = kgrun("execute", graph_file(**graph), *CPU, "--json", "--strict")
        assert (result.code, result.json()["error"]["code"]) == (3, "KG399")


def test_validate_passes_and_binds_what_it_can(kgrun: Any, graph_file: Any) -> None:
    document = kgrun("validate", graph_file(**SELECTING), "--json").json()
    assert ([row["name"] for row in document["nodes"]], codes(document)) == (
        ["act", "places", "turned"], ["W-UPPER-BOUND"],
    )  # fmt: skip
    result = kgrun("validate", graph_file(**LOOPING), "--json")
    assert result.code == 0, result.out
    assert [row["name"] for row in result.json()["nodes"]] == ["act"]
    assert "2 of 3 nodes" in result.json()["warnings"][0]["message"]
    assert kgrun("validate", graph_file(**LOOPING), "--strict").code == 3


def test_validate_finds_faults_inside_bodies_and_before_branches(kgrun: Any, graph_file: Any) -> None:
    body = LOOPING["graphs"]["body"] | {"outputs": ["go", "v3"]}
    result = kgrun("validate", graph_file(**LOOPING | {"graphs": {"body": body}}), "--json")
    error = result.json()["error"]
    assert (result.code, error["code"]) == (3, "KG343")
    assert error["where"].partition(": ")[2].startswith("graphs.body.outputs[1]")
    nodes = [LOOPING["nodes"][0] | {"op": "Rleu"}, *LOOPING["nodes"][1:]]
    assert kgrun("validate", graph_file(**LOOPING | {"nodes": nodes}), "--json").json()["error"]["code"] == "KG331"


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_S20_S51_plan_memory_takes_the_largest_shapes_there_can_be(kgrun: Any, graph_file: Any, target: str) -> None:
    document = kgrun("plan-memory", graph_file(**SELECTING), "--target", target, "--json").json()
    assert codes(document) == ["W-UPPER-BOUND"]
    rows = {row["name"]: row["nbytes"] for row in document["tensors"]}
    assert rows["p"] == 6 * 8
    limited = SELECTING | {"tensors": X | {"p": {"max_shape": [1, 4]}}}
    document = kgrun("plan-memory", graph_file(**limited), "--target", target, "--json").json()
    assert {row["name"]: row["nbytes"] for row in document["tensors"]}["p"] == 4 * 8


def test_plan_memory_cannot_plan_branches_and_says_what_can_be_done(kgrun: Any, graph_file: Any) -> None:
    result = kgrun("plan-memory", graph_file(**LOOPING), "--json")
    error = result.json()["error"]
    assert (result.code, error["code"]) == (3, "KG356")
    assert "node by node" in error["help"]


def test_the_graph_of_the_documentation_runs(kgrun: Any, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "eager.md").read_text("utf-8")
    (text,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "doubling.yaml").write_text(text)
    document = kgrun("execute", tmp_path / "doubling.yaml", *CPU, "--json").json()
    assert {row["name"]: row["value"] for row in document["outputs"]} == {
        "y": [8] * 4,
        "ys": [[2] * 4, [4] * 4, [8] * 4],
    }


@pytest.mark.parametrize("made", [LOOPING, SELECTING])
def test_a_bundle_of_a_run_that_did_not_fail_needs_a_plan(
    kgrun: Any, graph_file: Any, tmp_path: Path, made: dict[str, Any]
) -> None:
    words = (*CPU, "--repro-always", "--repro", tmp_path / "bundle", "--json")
    error = kgrun("execute", graph_file(**made), *words).json()["error"]
    assert (error["code"], error["exit"]) == ("KG240", 2)
    assert error["message"].startswith("--repro-always needs a planned run")
    assert not (tmp_path / "bundle").exists()
