"""`plan-memory` and `explain`: plans of graphs and of packing problems, without a device."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

PROBLEM = "id,lower,upper,size\na,0,4,512\nb,4,8,512\nc,0,8,1024\n"


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    """A packing problem whose least height is 1,536 bytes."""
    path = tmp_path / "problem.csv"
    path.write_text(PROBLEM, encoding="utf-8")
    return path


@pytest.fixture
def chain(graph_file: Any) -> Any:
    """Four operators in a row, no two intermediates of which need more than two buffers."""
    ops = ["Neg", "Abs", "Relu", "Exp"]
    nodes = [
        {"name": f"k{i}", "op": op, "inputs": [f"t{i}" if i else "x"], "outputs": [f"t{i + 1}" if i < 3 else "y"]}
        for i, op in enumerate(ops)
    ]
    return graph_file(nodes=nodes)


def test_json_has_what_is_promised(kgrun: Any, chain: Path, faults: Any) -> None:
    from kgrun.cli.render.schema import report_schema

    result = kgrun("plan-memory", chain, "--json", "--memory", "none")
    assert (result.code, result.err) == (0, "")
    document = result.json()
    assert faults(document, {"$ref": "#/$defs/plan_memory", "$defs": report_schema()["$defs"]}) == []
    assert document["memory"]["peak_bytes"] == 2 * 512 + document["memory"]["dynamic_bytes"]
    rows = {row["name"]: row for row in document["tensors"]}
    assert rows["x"]["class"] == "input"
    assert rows["y"]["class"] == "output"
    assert rows["t1"]["class"] == "intermediate"
    assert (rows["t1"]["first_step"], rows["t1"]["last_step"]) == (0, 1)


def test_rows_of_one_space_never_overlap(kgrun: Any, chain: Path) -> None:
    rows = kgrun("plan-memory", chain, "--json").json()["tensors"]
    for i, a in enumerate(rows):
        for b in rows[i + 1 :]:
            together = a["first_step"] <= b["last_step"] and b["first_step"] <= a["last_step"]
            if a["space"] == b["space"] and together:
                assert a["offset"] + a["nbytes"] <= b["offset"] or b["offset"] + b["nbytes"] <= a["offset"]


def test_plan_08_plan_is_the_same_every_time(kgrun: Any, chain: Path) -> None:
    documents = [kgrun("plan-memory", chain, "--json").json() for _ in range(3)]
    for document in documents:
        del document["memory"]["plan_ns"]
    assert documents[0] == documents[1] == documents[2]


def test_planning_imports_no_device_library(process: Any, chain: Path) -> None:
    code = (
        "import sys, kgrun.cli.entry as entry; entry.main(sys.argv[1:]);"
        "print(' '.join(sorted({name.partition('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    result = process("plan-memory", chain, "--json", code=code)
    assert result.json()["ok"] is True
    assert not set(result.err.split()) & {"pycuda", "cuda", "llvmlite", "onnx", "rich", "numpy", "yaml"}


def test_csv_and_export_of_a_graph(kgrun: Any, chain: Path, tmp_path: Path) -> None:
    out = kgrun("plan-memory", chain, "--csv", "-", "--export", tmp_path / "p.csv", "--memory", "none")
    names = [row["name"] for row in csv.DictReader(out.out.splitlines())]
    assert {"x", "y", "t1"} <= set(names)
    exported = list(csv.DictReader((tmp_path / "p.csv").read_text(encoding="utf-8").splitlines()))
    assert exported[0]["id"] == "t1"
    assert exported[0]["size"] == "32"
    assert exported[0]["alignment"] == "512"


def test_limit_that_is_too_small_is_exit_4(kgrun: Any, chain: Path) -> None:
    result = kgrun("plan-memory", chain, "--limit", "1000", "--json")
    assert result.code == 4
    assert result.json()["error"]["code"] == "KG405"
    result = kgrun("plan-memory", chain, "--limit", "1000", "--offload", "off", "--json")
    assert result.code == 4
    assert result.json()["error"]["code"] == "KG401"
    assert kgrun("plan-memory", chain, "--limit", "1MiB").code == 0


def test_packing_problem(kgrun: Any, problem: Path, faults: Any) -> None:
    from kgrun.cli.render.schema import report_schema

    document = kgrun("plan-memory", problem, "--json").json()
    assert faults(document, {"$ref": "#/$defs/plan_memory_csv", "$defs": report_schema()["$defs"]}) == []
    memory = document["memory"]
    assert (memory["dynamic_bytes"], memory["lower_bound_bytes"], memory["no_reuse_bytes"]) == (1536, 1536, 2048)
    assert memory["optimal"] is True
    assert [row["name"] for row in document["tensors"]] == ["a", "b", "c"]
    text = kgrun("plan-memory", problem)
    assert text.out.splitlines()[0] == f"{problem}: 3 buffers"
    assert "               the least possible (lower bound 1.50 KiB)" in text.out.splitlines()


def test_packing_problem_that_does_not_fit(kgrun: Any, problem: Path) -> None:
    result = kgrun("plan-memory", problem, "--limit", "1535", "--json")
    error = result.json()["error"]
    assert result.code == 4
    assert error["details"]["smallest_feasible_limit_bytes"] == 1536
    assert error["details"]["proven"] is True
    assert kgrun("plan-memory", problem, "--limit", "1536").code == 0


def test_life_with_a_gap_is_several_lives(kgrun: Any, tmp_path: Path) -> None:
    path = tmp_path / "gaps.csv"
    path.write_text("id,lower,upper,size,gaps\na,0,8,512,2-6\nb,2,6,512,\n", encoding="utf-8")
    document = kgrun("plan-memory", path, "--json").json()
    assert document["memory"]["dynamic_bytes"] == 512
    assert document["tensors"][0]["lives"] == [[0, 1], [6, 7]]
    assert (document["tensors"][0]["first_step"], document["tensors"][0]["last_step"]) == (0, 7)


def test_exported_packing_can_be_read_again(kgrun: Any, problem: Path, tmp_path: Path) -> None:
    assert kgrun("plan-memory", problem, "--export", tmp_path / "placed.csv").code == 0
    rows = list(csv.DictReader((tmp_path / "placed.csv").read_text(encoding="utf-8").splitlines()))
    assert [row["id"] for row in rows] == ["a", "b", "c"]
    assert kgrun("plan-memory", tmp_path / "placed.csv", "--json").json()["memory"]["dynamic_bytes"] == 1536


@pytest.mark.parametrize(
    "text", ["", "id,lower\n", "id,lower,upper,size\na,x,1,2\n", "id,lower,upper,size\na,2,1,2\n", "\xff"]
)
def test_broken_packing_problem_is_exit_3(kgrun: Any, tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(text.encode("latin-1"))
    result = kgrun("plan-memory", path)
    assert result.code == 3, result.err
    assert result.err.splitlines()[1].startswith(f"  at {path} (line ")
    assert kgrun("plan-memory", tmp_path / "missing.csv").code == 3


def test_unknown_planner_is_usage(kgrun: Any, chain: Path, problem: Path) -> None:
    for file in (chain, problem):
        result = kgrun("plan-memory", file, "--planner", "best")
        assert result.code == 2
        assert "planners: auto, " in result.err


def test_explain_a_kernel_a_tensor_and_the_peak(kgrun: Any, chain: Path, faults: Any) -> None:
    from kgrun.cli.render.schema import report_schema

    kernel = kgrun("explain", chain, "k1", "--memory", "none", "--target", "cpu")
    assert kernel.code == 0
    assert kernel.out.splitlines()[:3] == ["kernel k1: Abs on stream compute", "  inputs     t1", "  outputs    t2"]
    tensor = kgrun("explain", chain, "t1", "--memory", "none").out.splitlines()
    assert tensor[:4] == [
        "tensor t1: intermediate",
        "  type       float32[8], 32 B",
        "  written by k0 (step 0)",
        "  read by    k1 (step 1)",
    ]
    assert "  alive      steps 0 to 1 (k0 to k1)" in tensor
    peak = kgrun("explain", chain, "--memory", "none").out.splitlines()
    assert peak[0] == "peak: step 1, k1: 1 KiB of dynamic memory, one of 2 steps that hold as much"
    schema = {"$ref": "#/$defs/explain", "$defs": report_schema()["$defs"]}
    for name in (["k1"], ["t1"], []):
        assert faults(kgrun("explain", chain, *name, "--json").json(), schema) == []


def test_pictures_are_files(kgrun: Any, chain: Path, problem: Path, tmp_path: Path) -> None:
    for file in (chain, problem):
        html, svg = tmp_path / "plan.html", tmp_path / "plan.svg"
        mode = ("--memory", "none") if file == chain else ("--planner", "none")
        result = kgrun("plan-memory", file, *mode, "--html", html, "--svg", svg, "-q")
        assert (result.code, result.out) == (0, "")
        assert html.read_text(encoding="utf-8").lower().startswith("<!doctype html>")
        assert svg.read_text(encoding="utf-8").startswith("<svg ")
        html.unlink()
        svg.unlink()


def test_planners_side_by_side(kgrun: Any, chain: Path, problem: Path) -> None:
    for file in (chain, problem):
        rows = kgrun("plan-memory", file, "--compare", "--json").json()["planners"]
        assert rows[0]["planner"] == "auto"
        assert all(row["lower_bound"] <= row["height"] for row in rows)
        assert "\nPlanners\n" in kgrun("plan-memory", file, "--compare").out
    assert "planners" not in kgrun("plan-memory", chain, "--json").json()


def test_text_report_has_a_sketch_and_no_escape_codes(kgrun: Any, chain: Path) -> None:
    out = kgrun("plan-memory", chain, "--memory", "none").out
    assert "\nDynamic memory over time\n" in out
    assert "\x1b" not in out


def test_explain_of_an_unknown_name_is_usage(kgrun: Any, chain: Path) -> None:
    result = kgrun("explain", chain, "k11")
    assert result.code == 2
    assert result.err.startswith("error[KG259]: the graph has no kernel or tensor 'k11'\n  help: did you mean ")


def test_explain_says_where_a_tensor_that_no_step_writes_has_its_bytes_from(kgrun: Any, graph_file: Any) -> None:
    nodes = [
        {"name": "size", "op": "Shape", "inputs": ["x"], "outputs": ["s"]},
        {"name": "same", "op": "Reshape", "inputs": ["x", "s"], "outputs": ["v"]},
        {"name": "neg", "op": "Neg", "inputs": ["v"], "outputs": ["y"]},
        {"name": "none", "op": "Slice", "inputs": ["v", "zero", "zero"], "outputs": ["z"]},
    ]
    x = {"role": "input", "dtype": "float32", "shape": [4], "init": {"fill": 1}}
    zero = {"role": "constant", "dtype": "int64", "value": [0]}
    path = graph_file(tensors={"x": x, "zero": zero}, nodes=nodes, outputs=["y", "z", "s"], dims={})
    wanted = {
        "x": "it comes from outside",
        "s": "its value is known before the run",
        "v": "it is a view of x",
        "z": "it has no elements",
    }
    for name, words in wanted.items():
        assert f"  written by no step: {words}" in kgrun("explain", path, name).out.splitlines()


def test_explain_says_that_nothing_needs_what_a_fused_kernel_computes_within(kgrun: Any, graph_file: Any) -> None:
    nodes = [
        {"name": "s", "op": "Exp", "inputs": ["x"], "outputs": ["s"]},
        {"name": "y", "op": "Neg", "inputs": ["s"], "outputs": ["y"]},
    ]
    x = {"role": "input", "dtype": "float32", "shape": [4], "init": {"fill": 1}}
    path = graph_file(tensors={"x": x}, nodes=nodes, outputs=["y"], dims={})
    lines = kgrun("explain", path, "s", "--fuse", "--target", "cuda").out.splitlines()
    assert "  written by no step: nothing needs it" in lines
    assert "  read by    y (step 0)" in lines
