"""`import`: files, document, text, and the commands that take its result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.cli.render.schema import report_schema

BERT = Path(__file__).parents[1] / "data" / "launch_lists" / "bert_tiny"


def test_import_then_validate_then_plan(kgrun: Any, tmp_path: Path, faults: Any) -> None:
    output = tmp_path / "bert.json"
    result = kgrun("import", BERT, "-o", output, "--json")
    assert (result.code, result.err) == (0, "")
    document = result.json()
    assert faults(document, {"$ref": "#/$defs/import", "$defs": report_schema()["$defs"]}) == []
    assert (document["kernels"], document["nodes"], document["tensors"]) == (17, 45, 80)
    assert {Path(row["file"]).name: row["nbytes"] for row in document["files"]} == {
        path.name: path.stat().st_size for path in tmp_path.iterdir()
    }
    assert kgrun("validate", output).code == 0
    memory = kgrun("plan-memory", output, "--json").json()["memory"]
    assert memory["dynamic_bytes"] == memory["lower_bound_bytes"] == 164_352
    assert memory["optimal"] is True


def test_text_names_the_files(kgrun: Any, tmp_path: Path) -> None:
    result = kgrun("import", BERT, "-o", tmp_path / "bert.json")
    assert result.code == 0
    assert result.out.splitlines()[0] == (f"bert_tiny from {BERT} (launch list): 17 kernels, 45 nodes, 80 tensors")
    for path in tmp_path.iterdir():
        assert str(path) in result.out


def test_a_second_import_needs_force(kgrun: Any, tmp_path: Path) -> None:
    output = tmp_path / "bert.json"
    assert kgrun("import", BERT, "-o", output, "-q").out == ""
    before = output.read_bytes()
    refused = kgrun("import", BERT, "-o", output, "--json")
    assert refused.code == 2
    assert refused.json()["error"]["code"] == "KG270"
    assert kgrun("import", BERT, "-o", output, "--force", "-q").code == 0
    assert output.read_bytes() == before


def test_faults_have_codes(kgrun: Any, tmp_path: Path) -> None:
    assert kgrun("import", tmp_path, "-o", tmp_path / "x.json").code == 3
    assert kgrun("import", BERT, "-o", tmp_path / "x.yaml").code == 2
    assert kgrun("import", BERT).code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An ONNX model with two dimensions, one of them of an odd name, whose shape computations can be folded."""
    onnx = pytest.importorskip("onnx")
    path = tmp_path / "m.onnx"
    text = """<ir_version: 10, opset_import: ["" : 17]>
    g (float[n, 4, m] x, int64[n] i) => (float[n, k] y) <int64[1] zero = {0}, int64[1] last = {-1}> {
        shape = Shape(x)
        batch = Gather(shape, zero)
        wanted = Concat<axis = 0>(batch, last)
        picked = Gather(x, i)
        y = Reshape(picked, wanted)
    }"""
    message = onnx.parser.parse_model(text)
    message.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "sequence length"
    path.write_bytes(message.SerializeToString())
    return path


def test_a_model_is_imported_with_its_dimensions_bound(kgrun: Any, model: Path, tmp_path: Path) -> None:
    output = tmp_path / "g.json"
    document = kgrun("import", model, "-o", output, "--dim", "n=2", "--dim", "sequence length=3", "--json").json()
    assert (document["kind"], document["nodes"], document["graph"]["name"]) == ("ONNX model", 2, "g")
    assert kgrun("execute", output, "--device", "cpu", "-q").code == 0
    refused = kgrun("plan-memory", output, "--dim", "n=3", "--json").json()
    assert refused["error"]["code"] == "KG222"
    assert kgrun("import", model, "-o", output, "--dim", "b=2", "--force").code == 2


def test_every_command_takes_a_model(kgrun: Any, model: Path, tmp_path: Path) -> None:
    dims = ("--dim", "n=2", "--dim", "sequence length=3")
    assert kgrun("validate", model, *dims, "--json").json()["ok"]
    assert kgrun("plan-memory", model, *dims, "--json").json()["memory"]["peak_bytes"] > 0
    assert kgrun("explain", model, "y", *dims, "--json").json()["ok"]
    ran = kgrun("execute", model, *dims, "--device", "cpu", "--json").json()
    assert ran["outputs"][0]["shape"] == [2, 12]
    assert not ran.get("warnings")
    unbound = kgrun("execute", model, "--device", "cpu", "--json").json()
    assert (unbound["error"]["code"], unbound["error"]["exit"]) == ("KG220", 2)


def test_given_arrays_bind_the_dimensions_of_a_model(kgrun: Any, model: Path, tmp_path: Path) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 4, 3)
    np.savez(tmp_path / "in.npz", x=x, i=np.array([1, 0]))
    result = kgrun(
        "execute", model, "--inputs", tmp_path / "in.npz", "--device", "cpu", "--output-dir", tmp_path / "out", "--json"
    )
    assert [row["op"] for row in result.json()["kernels"]] == ["Gather"]
    assert np.array_equal(np.load(tmp_path / "out" / "y.npy"), x[::-1].reshape(2, 12))


def test_all_that_cannot_be_imported_is_listed_with_exit_3(kgrun: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    text = """<ir_version: 10, opset_import: ["" : 17, "vendor" : 1]>
    g (float[2] x) => (float[2] y) { a = vendor.One(x) \n b = Relu(a) \n y = vendor.Two(b) }"""
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    for words in (("import", tmp_path / "m.onnx", "-o", tmp_path / "g.json"), ("execute", tmp_path / "m.onnx")):
        result = kgrun(*words)
        assert result.code == 3
        assert "vendor.One" in result.err
        assert "vendor.Two" in result.err
    document = kgrun("execute", tmp_path / "m.onnx", "--json").json()
    assert len(document["error"]["details"]["unsupported"]) == 2
    assert not (tmp_path / "g.json").exists()


def test_a_launch_list_has_no_dimensions_to_bind(kgrun: Any, tmp_path: Path) -> None:
    assert kgrun("import", BERT, "-o", tmp_path / "x.json", "--dim", "n=2", "--json").json()["error"]["code"] == "KG221"


def test_a_given_input_decides_a_branch(kgrun: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    text = """<ir_version: 10, opset_import: ["" : 17]> g (float[2] x, int64 rate) => (float[2] y) {
        k = Constant<value_int = 16000>()
        c = Equal(rate, k)
        y = If (c) <
            then_branch = a () => (float[2] p) { p = Neg(x) },
            else_branch = b () => (float[2] q) { q = Relu(x) }
        >
    }"""
    (tmp_path / "m.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    for rate, op in ((16_000, "Neg"), (8_000, "Relu")):
        np.savez(tmp_path / "in.npz", x=np.ones(2, np.float32), rate=np.int64(rate))
        words = ("--inputs", tmp_path / "in.npz", "--device", "cpu", "--json")
        assert [row["op"] for row in kgrun("execute", tmp_path / "m.onnx", *words).json()["kernels"]] == [op]


def test_models_run_at_several_sizes_and_beside_graphs(kgrun: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    text = '<ir_version: 10, opset_import: ["" : 17]> NAME (float[n, 3] x) => (float[n, 3] y) { y = Relu(x) }'
    for name in "ab":
        message = onnx.parser.parse_model(text.replace("NAME", name))
        (tmp_path / f"{name}.onnx").write_bytes(message.SerializeToString())
    swept = kgrun("execute", tmp_path / "a.onnx", "--sweep", "n=2,4", "--device", "cpu")
    assert swept.code == 0, swept.err
    both = kgrun("execute", tmp_path / "a.onnx", tmp_path / "b.onnx", "--dim", "n=2", "--device", "cpu")
    assert both.code == 0, both.err
