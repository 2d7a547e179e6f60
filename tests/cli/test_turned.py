"""Commands on a tensor that no step makes, because a product reads what the Transpose would: dumps, checks, explain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

HEAD: dict[str, Any] = {
    "tensors": {
        "x": {"role": "input", "dtype": "float16", "shape": [2, 8], "init": {"uniform": [-1, 1], "seed": 0}},
        "w": {"role": "parameter", "dtype": "float16", "shape": [5, 8], "init": {"uniform": [-1, 1], "seed": 1}},
    },
    "nodes": [
        {"name": "turn", "op": "Transpose", "inputs": ["w"], "outputs": ["t"]},
        {"name": "mm", "op": "MatMul", "inputs": ["x", "t"], "outputs": ["y"]},
    ],
    "outputs": ["y"],
}


def test_it_is_dumped_with_what_is_read_in_its_place(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    file = graph_file(**HEAD)
    for mode in ("planned", "single"):
        folder = tmp_path / mode
        kgrun("execute", file, "--device", "cpu", "--memory", mode, "--dump", "t", "--dump-dir", folder)
        found = np.load(folder / "iteration_0" / "t.npy")
        assert found.shape == (8, 5)
    planned, single = (tmp_path / mode / "iteration_0" / "t.npy" for mode in ("planned", "single"))
    assert planned.read_bytes() == single.read_bytes()


def test_inputs_of_its_readers_are_dumped_by_the_names_of_the_file(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    common = {
        "dump_mode": 1, "net_name": "head", "iteration": "0", "input_output": 1, "kernels": ["mm"],
        "support_device": [0], "op_debug_mode": 0,
    }  # fmt: skip
    found = {}
    for mode in ("planned", "single"):
        settings = {"common_dump_settings": common | {"path": str(tmp_path / mode)}}
        config = tmp_path / f"{mode}.json"
        config.write_text(json.dumps(settings))
        kgrun("execute", graph_file(**HEAD), "--device", "cpu", "--memory", mode, "--dump-config", config)
        files = (tmp_path / mode).rglob("*.npy")
        found[mode] = {path.name: path.read_bytes() for path in files}
    assert {"x.npy", "t.npy"} <= set(found["planned"])
    assert found["planned"] == found["single"]


def test_checks_of_its_readers_find_nothing_new(kgrun: Any, graph_file: Any) -> None:
    assert kgrun("execute", graph_file(**HEAD), "--device", "cpu", "--check", "all").code == 0


def test_explain_names_the_tensor_that_is_read_in_its_place(kgrun: Any, graph_file: Any) -> None:
    file = graph_file(**HEAD)
    text = kgrun("explain", file, "t", "--target", "cuda").out
    assert "no step: nothing needs it" in text
    assert "none: w is read in its place, last two axes swapped, by mm as input 1" in text
    assert "nothing is launched: w is read in its place" in kgrun("explain", file, "turn", "--target", "cuda").out
    text = kgrun("explain", file, "mm", "--target", "cuda").out
    assert "w is read in place of t, its last two axes swapped" in text
    document = kgrun("explain", file, "mm", "--target", "cuda", "--json").json()
    assert (document["kernel"]["inputs"], document["kernel"]["turned"]) == (["x", "w"], [None, "t"])
