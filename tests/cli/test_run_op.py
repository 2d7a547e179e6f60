"""`run-op` (S126-S134): operands and attributes as words, files and reports as results, the word at fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.cli.render.schema import report_schema

CPU = ("--device", "cpu")


@pytest.fixture
def arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.array([[1, 2], [3, 4]], np.float32))
    np.savez("b.npz", b=np.array([10, 20], np.float32))
    return tmp_path


def fits(faults: Any, document: Any, name: str) -> None:
    assert faults(document, {"$ref": f"#/$defs/{name}", "$defs": report_schema()["$defs"]}) == []


@pytest.mark.parametrize("time", [(), ("--time",)])
def test_S127_files_in_a_file_out(kgrun: Any, arrays: Path, faults: Any, time: tuple[str, ...]) -> None:
    result = kgrun("run-op", "Add", "--in", "a.npy", "--in", "b.npz#b", "--out", "y.npy", "--json", *CPU, *time)
    assert result.code == 0, result.out
    assert np.load("y.npy").tolist() == [[11, 22], [13, 24]]
    document = result.json()
    fits(faults, document, "execute")
    assert document["outputs"][0]["value"] == [[11, 22], [13, 24]]
    assert [(row["name"], row["op"]) for row in document["kernels"]] == [("Add", "Add")]


def test_values_types_and_absent_inputs(kgrun: Any, arrays: Path) -> None:
    result = kgrun("run-op", "Clip", "--in", "float32:[-1,5,9]", "--in", "-", "--in", "float32:6", "--json", *CPU)
    assert result.json()["outputs"][0]["value"] == [-1, 5, 6]
    result = kgrun("run-op", "Reshape", "--in", "float16[4,6]", "--in", "int64:[2,-1]", "--json", *CPU)
    assert (result.json()["outputs"][0]["dtype"], result.json()["outputs"][0]["shape"]) == ("float16", [2, 12])


@pytest.mark.parametrize("time", [(), ("--time",)])
def test_S82_a_shape_known_only_after_the_run(kgrun: Any, time: tuple[str, ...]) -> None:
    document = kgrun("run-op", "NonZero", "--in", "int32:[0,1,2]", "--json", *CPU, *time).json()
    assert document["outputs"][0]["value"] == [[1, 2]]
    assert ("W-NODE-BY-NODE" in [w["code"] for w in document["warnings"]]) == bool(time)


def test_attributes_are_read_as_the_signature_says(kgrun: Any) -> None:
    words = ("--attr", "perm=1,0", "--json", *CPU)
    assert kgrun("run-op", "Transpose", "--in", "int8:[[1,2]]", *words).json()["outputs"][0]["value"] == [[1], [2]]
    document = kgrun("run-op", "Cast", "--in", "float32:[1.5]", "--attr", "to=int32", "--json", *CPU).json()
    assert document["outputs"][0]["dtype"] == "int32"
    document = kgrun("run-op", "LeakyRelu", "--in", "float32:[-1]", "--attr", "alpha=0.5", "--json", *CPU).json()
    assert document["outputs"][0]["value"] == [-0.5]


@pytest.mark.parametrize(
    ("words", "code", "exit", "where"),
    [
        (("Ad",), "KG250", 2, None),
        ((), "KG250", 2, None),
        (("Add", "--in", "float32:1"), "KG330", 3, None),
        (("Add", "--in", "float32:1", "--in", "float64:1"), "KG330", 3, "--in float64:1"),
        (("Softmax", "--in", "float32[2]", "--attr", "axs=1"), "KG330", 3, "--attr axs=1"),
        (("Softmax", "--in", "float32[2]", "--attr", "axis=7"), "KG330", 3, "--attr axis=7"),
        (("Softmax", "--in", "float32[2]", "--attr", "axis=x"), "KG253", 2, None),
        (("Softmax", "--in", "float32[2]", "--attr", "axis"), "KG253", 2, None),
        (("Relu", "--in", "flot32[2]"), "KG272", 2, "--in flot32[2]"),
        (("Relu", "--in", "float32:x"), "KG272", 2, "--in float32:x"),
        (("Relu", "--in", "float32:" + "[" * 100_000), "KG272", 2, "--in float32:" + "[" * 100_000),
        (("Relu", "--in", "missing.npy"), "KG372", 3, "--in missing.npy"),
        (("Relu", "--in", "float32[2]", "--out", "y.txt"), "KG258", 2, None),
        (("Relu", "--in", "float32[2]", "--outputs", "2"), "KG330", 3, None),
        (("Relu", "--in", "float32[2]", "--outputs", "1", "--out", "a.npy", "--out", "b.npy"), "KG240", 2, None),
        (("Relu", "--in", "float32[1000]", "--memory-limit", "4999"), "KG411", 4, None),
        (("Relu", "--in", f"float32[{'1,' * 32}1]"), "KG314", 3, f"--in float32[{'1,' * 32}1]"),
        (("Softmax", "--in", "float32[2]", "--attr", f"axis={2**70}"), "KG315", 3, f"--attr axis={2**70}"),
        (("LeakyRelu", "--in", "float32[2]", "--attr", "alpha=inf"), "KG314", 3, "--attr alpha=inf"),
        (("Reshape", "--in", "float32[2]", "--in", 'float32:["nan"]'), "KG330", 3, '--in float32:["nan"]'),
        (("Pad", "--in", "uint8[2]", "--attr", "pads=1,1", "--attr", "value=-1"), "KG330", 3, "--attr value=-1"),
        (("Resize", "--in", "float32[2]", "--in", "-", "--in", "float32:[1e30]"), "KG400", 4, None),
        (("Resize", "--in", "float32[2]", "--in", "-", "--in", 'float32:["nan"]'), "KG330", 3, '--in float32:["nan"]'),
    ],
)
def test_S126_S128_S134_faults(kgrun: Any, words: tuple[str, ...], code: str, exit: int, where: str | None) -> None:
    result = kgrun("run-op", *words, "--json", *CPU)
    error = result.json()["error"]
    assert (error["code"], result.code) == (code, exit), error
    assert where is None or error["where"] == where


def test_an_operator_that_needs_no_output_gives_its_first(kgrun: Any) -> None:
    words = ("--in", "float32[3,2,4]", "--in", "float32[1,12,4]", "--in", "float32[1,12,3]")
    assert [row["shape"] for row in kgrun("run-op", "LSTM", *words, "--json", *CPU).json()["outputs"]] == [[3, 1, 2, 3]]


def test_S132_reused_outputs_lie_where_they_lay() -> None:
    from kgrun.runtime.eager import EagerSession
    from tests.support import graph, node, tensor

    nodes = [node("a", ["x"], ["t"], op="Neg"), node("b", ["t"], ["y"], op="Neg")]
    made = graph(nodes, {"x": tensor("input", ["n"], "float32")}, ["y"])
    with EagerSession(made, device="cpu", values={"x": np.ones(64, "float32")}, reuse_outputs=True) as session:
        places = {session.run() and session._outputs[0].block.address for _ in range(5)}
        assert len(places) == 1
        assert session.run({"x": np.full(128, 3, "float32")}).outputs["y"].tolist() == [3] * 128
        assert session.run().outputs["y"].tolist() == [3] * 128
        held = session.device.memory_in_use()
        session.run(iterations=10)
        assert session.device.memory_in_use() == held


def test_U4_repeated_runs_from_python_leave_nothing_behind() -> None:
    from kgrun.runtime.devices.cpu import CpuDevice
    from kgrun.runtime.eager import EagerSession
    from kgrun.runtime.eager.operator import Operand, operator_graph

    device = CpuDevice()
    graph, given = operator_graph("MatMul", [Operand("float32", (8, 8)), Operand("float32", (8, 8))], {}, 1)
    for _ in range(200):
        with EagerSession(graph, device=device, values=given) as session:
            session.run(iterations=5)
        assert device.memory_in_use() == 0


def test_run_operator_from_python() -> None:
    from kgrun.runtime.eager.operator import run_operator

    report = run_operator("Split", [np.arange(4, dtype="float32")], {"num_outputs": 2}, outputs=2, device="cpu")
    assert {name: array.tolist() for name, array in report.outputs.items()} == {"y0": [0, 1], "y1": [2, 3]}


def test_operators_are_listed_and_described(kgrun: Any, faults: Any) -> None:
    document = kgrun("run-op", "--list", "--json").json()
    fits(faults, document, "run_op")
    assert "Conv" in [row["name"] for row in document["operators"]]
    document = kgrun("run-op", "--describe", "Conv", "--json").json()
    fits(faults, document, "run_op")
    assert document["operator"]["devices"] == {"cpu": True, "cuda": True}
    text = kgrun("run-op", "Conv", "--describe").out
    assert "2 to 3 in, 1 out" in text
    assert "group: int = 1" in text
