"""`import`: files, document, text, and the commands that take its result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
