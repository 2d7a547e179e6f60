"""`execute A B`: several graphs in one command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.cli.render.schema import report_schema

CPU = ("--device", "cpu")
A: dict[str, Any] = {
    "kgrun": 1,
    "name": "a",
    "tensors": {"x": {"role": "input", "dtype": "float32", "shape": [8], "init": {"arange": [0, 1]}}},
    "nodes": [{"name": "n", "op": "Neg", "inputs": ["x"], "outputs": ["h"]}],
    "outputs": ["h"],
}
B: dict[str, Any] = {
    "kgrun": 1,
    "name": "b",
    "tensors": {
        "h": {"from_graph": {"graph": "a", "output": "h"}},
        "x": {"role": "input", "dtype": "float32", "shape": [1], "init": {"fill": 10}},
    },
    "nodes": [{"name": "m", "op": "Mul", "inputs": ["h", "x"], "outputs": ["y"]}],
    "outputs": ["y"],
}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    for graph in (A, B):
        (tmp_path / f"{graph['name']}.json").write_text(json.dumps(graph))
    return tmp_path / "a.json", tmp_path / "b.json"


def test_S23_one_command_runs_both(kgrun: Any, files: tuple[Path, Path], faults: Any, tmp_path: Path) -> None:
    words = ("--output-dir", tmp_path / "out", "--save-outputs", tmp_path / "all.npz", "--json")
    result = kgrun("execute", *files, *CPU, *words)
    assert result.code == 0, result.out
    document = result.json()
    assert faults(document, {"$ref": "#/$defs/execute_several", "$defs": report_schema()["$defs"]}) == []
    wanted = [-10.0 * i for i in range(8)]
    assert document["graphs"][1]["outputs"][0]["value"] == wanted
    assert np.load(tmp_path / "out" / "b" / "y.npy").tolist() == wanted
    assert sorted(np.load(tmp_path / "all.npz")) == ["a.h", "b.y"]
    assert document["memory"]["static_bytes"] == 4 * 512
    assert "W-SHARED" in [w["code"] for w in document["graphs"][1]["warnings"]]
    text = kgrun("execute", *files, *CPU).out
    assert "Together: 2 graphs" in text
    assert text.count("measured  ") == 1  # the device counts what all hold


def test_inputs_are_named_by_graph_where_names_clash(kgrun: Any, files: tuple[Path, Path], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full(1, 2, np.float32))
    result = kgrun("execute", *files, *CPU, "--input", f"b.x={tmp_path / 'x.npy'}", "--json")
    assert result.json()["graphs"][1]["outputs"][0]["value"] == [-2.0 * i for i in range(8)]
    clash = kgrun("execute", *files, *CPU, "--input", f"x={tmp_path / 'x.npy'}", "--json")
    assert (clash.code, clash.json()["error"]["code"]) == (2, "KG272")


@pytest.mark.parametrize(
    "words",
    [
        ("--check", "nan"), ("--trace", "t.json"), ("--memory", "single"), ("--ranks", "2"), ("--streams", "auto"),
        ("--schedule", "reverse"), ("--load-parameters", "p.npz"), ("--save-parameters", "p.npz"), ("--reuse-outputs",),
    ],
)  # fmt: skip
def test_what_is_for_one_graph_is_refused(kgrun: Any, files: tuple[Path, Path], words: tuple[str, ...]) -> None:
    result = kgrun("execute", *files, *CPU, *words, "--json")
    assert (result.code, result.json()["error"]["code"]) == (2, "KG240")


def test_a_graph_alone_cannot_take_what_another_makes(kgrun: Any, files: tuple[Path, Path], tmp_path: Path) -> None:
    error = kgrun("execute", files[1], *CPU, "--json").json()["error"]
    assert (error["code"], error["help"]) == ("KG351", "run it after graph 'a' in one session")
    declared = B["tensors"]["h"] | {"dtype": "float32", "shape": [8]}
    files[1].write_text(json.dumps(B | {"tensors": B["tensors"] | {"h": declared}}))
    assert kgrun("validate", files[1]).code == 0
    result = kgrun("execute", files[1], *CPU, "--json")
    assert (result.code, result.json()["error"]["code"]) == (2, "KG210")
    assert "run graph 'a' before it" in result.json()["error"]["help"]
    np.save(tmp_path / "h.npy", np.ones(8, np.float32))
    alone = kgrun("execute", files[1], *CPU, "--input", f"h={tmp_path / 'h.npy'}", "--json")
    assert alone.json()["outputs"][0]["value"] == [10.0] * 8
    both = kgrun("execute", *files, *CPU, "--input", f"b.h={tmp_path / 'h.npy'}", "--json").json()
    assert both["graphs"][1]["outputs"][0]["value"] == [10.0] * 8
