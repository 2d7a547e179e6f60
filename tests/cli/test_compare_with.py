"""`--compare-with`: the first node that differs ends the command with its name and place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

TENSORS = {"x": {"role": "input", "dtype": "float32", "shape": [4], "init": {"uniform": [1, 2], "seed": 0}}}
NODES = [
    {"name": "root", "op": "Sqrt", "inputs": ["x"], "outputs": ["a"]},
    {"name": "power", "op": "Exp", "inputs": ["a"], "outputs": ["b"]},
    {"name": "minus", "op": "Neg", "inputs": ["b"], "outputs": ["y"]},
]


def test_a_graph_agrees_with_the_cpu(kgrun: Any, graph_file: Any, faults: Any) -> None:
    from kgrun.cli.render.schema import report_schema

    file = graph_file(tensors=TENSORS, nodes=NODES, outputs=["y"])
    document = kgrun("execute", file, "--device", "cpu", "--compare-with", "cpu", "--json").json()
    assert document["ok"] is True
    assert document["divergence"]["first"] is None
    assert [row["tensor"] for row in document["divergence"]["nodes"]] == ["a", "b", "y"]
    assert faults(document, {"$ref": "#/$defs/execute", "$defs": report_schema()["$defs"]}) == []
    text = kgrun("execute", file, "--device", "cpu", "--compare-with", "cpu").out
    assert "3 of 3 tensors agree" in text


def test_the_first_node_that_differs_is_named_with_its_place(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    file = graph_file(tensors=TENSORS, nodes=NODES, outputs=["y"])
    np.savez(tmp_path / "trace.npz", b=np.zeros(4, np.float32), y=np.zeros(4, np.float32))
    result = kgrun("execute", file, "--device", "cpu", "--compare-with", tmp_path / "trace.npz", "--json")
    assert result.code == 8
    error = result.json()["error"]
    assert (error["code"], error["details"]) == ("KG802", {"node": "power", "tensor": "b"})
    assert "nodes[1]" in error["where"]
    assert result.json()["divergence"]["first"] == "power"
    text = kgrun("execute", file, "--device", "cpu", "--compare-with", tmp_path / "trace.npz")
    assert "DIFFERS FIRST" in text.out


@pytest.mark.parametrize(
    ("name", "data", "code", "exit"),
    [
        ("b.npy", b"", "KG257", 2),
        ("b.npz", b"no archive", "KG373", 3),
        ("b.safetensors", b"8", "KG373", 3),
    ],
)
def test_a_file_that_is_no_bundle_of_arrays(
    kgrun: Any, graph_file: Any, tmp_path: Path, name: str, data: bytes, code: str, exit: int
) -> None:
    (tmp_path / name).write_bytes(data)
    file = graph_file(tensors=TENSORS, nodes=NODES, outputs=["y"])
    for option in ("--compare-with", "--expected"):
        result = kgrun("execute", file, "--device", "cpu", option, tmp_path / name, "--json")
        assert (result.json()["error"]["code"], result.code) == (code, exit)


def test_raw_bytes_in_a_bundle_are_of_the_tensors_type(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    tensors = {"a": {"role": "input", "dtype": "bfloat16", "shape": [2], "init": {"fill": 1.5}}}
    file = graph_file(tensors=tensors, nodes=[{"name": "n", "op": "Neg", "inputs": ["a"], "outputs": ["y"]}])
    for bits, code in (([0xBFC0, 0xBFC0], 0), ([0xBFC0, 0x3FC0], 8)):
        np.savez(tmp_path / "trace.npz", y=np.array(bits, np.uint16).view("V2"), other=np.zeros(1))
        words = ("execute", file, "--device", "cpu", "--compare-with", tmp_path / "trace.npz", "--json")
        assert kgrun(*words).code == code


def test_references_that_cannot_be(kgrun: Any, graph_file: Any) -> None:
    file = graph_file(tensors=TENSORS, nodes=NODES, outputs=["y"])
    words = ["execute", file, "--device", "cpu", "--json", "--compare-with"]
    assert kgrun(*words, "onnxruntime").json()["error"]["code"] == "KG240"
    assert kgrun(*words, "nothing.npz").json()["error"]["code"] == "KG253"
    assert kgrun(*words, "cpu", "--memory", "single").json()["error"]["code"] == "KG240"


def test_the_reference_starts_from_the_parameters_that_the_runs_started_from(kgrun: Any, graph_file: Any) -> None:
    tensors = TENSORS | {"w": {"role": "parameter", "dtype": "float32", "shape": [4], "init": {"fill": 1}}}
    nodes = [
        {"name": "step", "op": "Add", "inputs": ["w", "x"], "outputs": ["w2"], "inplace": {"w2": "w"}},
        {"name": "read", "op": "Neg", "inputs": ["w2"], "outputs": ["y"]},
    ]
    file = graph_file(tensors=tensors, nodes=nodes, outputs=["y"])
    words = ["execute", file, "--device", "cpu", "--json", "--iterations", "3"]
    alone, compared = kgrun(*words).json(), kgrun(*words, "--compare-with", "cpu").json()
    assert compared["divergence"]["first"] is None
    assert compared["outputs"] == alone["outputs"]


@pytest.mark.parametrize("example", ["train_digits", "embedding"])
def test_what_queues_and_caches_change_is_not_compared(kgrun: Any, example: str) -> None:
    graph = Path(__file__).parents[2] / "examples" / f"{example}.yaml"
    error = kgrun("execute", graph, "--device", "cpu", "--compare-with", "cpu", "--json").json()["error"]
    assert (error["exit"], error["code"]) == (2, "KG240")


def test_what_is_not_compared_is_refused_before_it_runs(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    weight = {"role": "parameter", "dtype": "float32", "shape": [4], "init": {"fill": 1}, "location": "host"}
    nodes = [*NODES[:2], {"name": "minus", "op": "Mul", "inputs": ["b", "w"], "outputs": ["y"]}]
    file = graph_file(tensors=TENSORS | {"w": weight}, nodes=nodes, outputs=["y"])
    saved = tmp_path / "w.npz"
    done = kgrun("execute", file, "--device", "cpu", "--compare-with", "cpu", "--save-parameters", saved, "--json")
    assert (done.code, done.json()["error"]["code"]) == (2, "KG240")
    assert not saved.exists()


def test_a_model_whose_inputs_decide_is_compared_when_they_are_given(kgrun: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    branches = "then_branch = t () => (o) { o = Exp(x) }, else_branch = e () => (o) { o = Neg(x) }"
    text = (
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[3] x, bool c) => (float[3] y) {{ y = If<{branches}>(c) }}'
    )
    model = tmp_path / "m.onnx"
    model.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    words = ("execute", model, "--device", "cpu", "--compare-with", "onnxruntime", "--json")
    error = kgrun(*words).json()["error"]
    assert error["code"] == "KG240"
    assert "'If_0' decides" in error["help"]
    assert "--input" in error["help"]
    np.save(tmp_path / "c.npy", np.array(True))
    done = kgrun(*words, "--input", f"c={tmp_path / 'c.npy'}")
    assert done.code == 0


def test_node_by_node_for_the_asking_is_what_is_in_the_way(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    import onnx

    model = tmp_path / "model.onnx"
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])
    nodes = [onnx.helper.make_node("Neg", ["x"], ["y"])]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y])), model)
    for path in (graph_file(), model):
        words = ("execute", path, "--device", "cpu", "--memory", "single", "--compare-with", "cpu")
        done = kgrun(*words)
        assert done.code == 2
        assert done.err.splitlines()[1:] == ["  help: leave --memory single out"]
