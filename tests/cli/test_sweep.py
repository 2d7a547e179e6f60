"""`execute --sweep`: one graph at several sizes in one session."""

from __future__ import annotations

from typing import Any

import pytest

from kgrun.cli.render.schema import report_schema
from kgrun.cli.sweep import parse_sweep
from kgrun.graphs.errors import UsageError

CPU = ("--device", "cpu")


def test_S20_S51_each_size_is_planned_once(kgrun: Any, graph_file: Any, faults: Any) -> None:
    file = graph_file()
    document = kgrun("execute", file, *CPU, "--sweep", "n=4,8,4", "--json").json()
    assert faults(document, {"$ref": "#/$defs/execute_sweep", "$defs": report_schema()["$defs"]}) == []
    assert document["kept"] == {"hits": 1, "plans": 2, "evictions": 0}
    assert [row["dims"] for row in document["sizes"]] == [{"n": 4}, {"n": 8}, {"n": 4}]
    for row in document["sizes"]:
        alone = kgrun("execute", file, *CPU, "--dim", f"n={row['dims']['n']}", "--json").json()
        assert row["run"]["outputs"] == alone["outputs"]
    text = kgrun("execute", file, *CPU, "--sweep", "n=4,8").out
    assert "2 plans for 2 sizes" in text
    assert "act" in kgrun("execute", file, *CPU, "--sweep", "n=4,8", "-v").out


def test_dimensions_of_a_model_go_by_its_own_names(kgrun: Any, tmp_path: Any) -> None:
    onnx = pytest.importorskip("onnx")
    info = [onnx.helper.make_tensor_value_info(name, 1, ["batch size", "n"]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", info[:1], info[1:])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)]), tmp_path / "m.onnx")
    for fixed, swept in (("batch size", "n"), ("n", "batch size"), ("batch_size", "n"), ("n", "batch_size")):
        words = (*CPU, "--dim", f"{fixed}=2", "--sweep", f"{swept}=1,3", "--json")
        document = kgrun("execute", tmp_path / "m.onnx", *words).json()
        assert [row["dims"] for row in document["sizes"]] == [{swept: 1}, {swept: 3}]


def test_combinations_vary_the_last_name_fastest() -> None:
    assert parse_sweep(["a=1,2", "b=3, 4"]) == [{"a": 1, "b": 3}, {"a": 1, "b": 4}, {"a": 2, "b": 3}, {"a": 2, "b": 4}]


@pytest.mark.parametrize("words", [["n"], ["=1"], ["n="], ["n=a"], ["n=1,"], ["n=-1"], ["n=1", "n=2"]])
def test_malformed_words_are_usage(words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse_sweep(words)
    assert caught.value.code == "KG252"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--sweep", "m=1,2"), "KG221"),
        (("--sweep", "n=1,2", "--dim", "n=2"), "KG240"),
        (("--sweep", "n=1,2", "--trace", "t.json"), "KG240"),
        (("--sweep", "n=1,2", "--memory", "single"), "KG240"),
        (("--sweep", "n=1,2", "--ranks", "2"), "KG240"),
        (("--sweep", "n=1,2", "--load-parameters", "p.npz"), "KG240"),
        (("--sweep", "n=1,2", "--save-parameters", "p.npz"), "KG240"),
        (("--sweep", "n=1,2", "--reuse-outputs"), "KG240"),
        (("--sweep", "n=1,2", "--streams", "auto"), "KG240"),
    ],
)
def test_what_cannot_be_swept_is_said(kgrun: Any, graph_file: Any, words: tuple[str, ...], code: str) -> None:
    result = kgrun("execute", graph_file(), *CPU, *words, "--json")
    assert (result.code, result.json()["error"]["code"]) == (2, code)
