"""`execute` on the CPU: reports, inputs, expected outputs, files, exit codes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def x(tmp_path: Path) -> Path:
    """An input of eight floats in a file."""
    path = tmp_path / "x.npy"
    np.save(path, np.array([1, -2, 3, -4, 5, -6, 7, -8], dtype=np.float32))
    return path


EXPECTED = [0, 2, 0, 4, 0, 6, 0, 8]


def test_json_has_what_is_promised(kgrun: Any, graph_file: Any, x: Path, faults: Any) -> None:
    from kgrun.cli.render.schema import report_schema

    result = kgrun("execute", graph_file(), "--device", "cpu", "--input", f"x={x}", "--iterations", "3", "--json")
    assert (result.code, result.err) == (0, "")
    document = result.json()
    assert faults(document, {"$ref": "#/$defs/execute", "$defs": report_schema()["$defs"]}) == []
    (output,) = document["outputs"]
    assert output["value"] == EXPECTED
    assert (output["name"], output["dtype"], output["shape"]) == ("y", "float32", [8])
    assert [row["op"] for row in document["kernels"]] == ["Neg", "Relu"]
    assert document["iterations"] == 3
    assert document["kernels"][0]["time_ns"]["count"] == 3
    memory = document["memory"]
    assert memory["peak_bytes"] == memory["static_bytes"] + memory["dynamic_bytes"]
    assert memory["lower_bound_bytes"] <= memory["dynamic_bytes"] <= memory["no_reuse_bytes"]
    assert memory["measured_peak_bytes"] == memory["peak_bytes"]


def test_text_report_has_no_escape_codes(kgrun: Any, graph_file: Any) -> None:
    result = kgrun("execute", graph_file(), "--device", "cpu")
    assert result.code == 0
    assert "\x1b" not in result.out
    lines = result.out.splitlines()
    assert lines[0].startswith("tiny on ")
    for title in ("Kernels (host clock)", "Memory by class", "Outputs"):
        assert title in lines


def test_quiet_prints_nothing(kgrun: Any, graph_file: Any) -> None:
    result = kgrun("execute", graph_file(), "--device", "cpu", "-q")
    assert (result.code, result.out, result.err) == (0, "", "")


def test_shape_of_an_input_binds_the_dimension(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(3, dtype=np.float32))
    document = kgrun("execute", graph_file(), "--device", "cpu", "--input", f"x={tmp_path}/x.npy", "--json").json()
    assert document["dims"] == {"n": 3}
    assert document["outputs"][0]["value"] == [0, 0, 0]


def test_dim_zero_is_an_empty_run(kgrun: Any, graph_file: Any) -> None:
    document = kgrun("execute", graph_file(), "--device", "cpu", "--dim", "n=0", "--json").json()
    assert document["outputs"][0]["shape"] == [0]
    assert document["outputs"][0]["value"] == []


def test_seed_decides_generated_inputs(kgrun: Any, graph_file: Any) -> None:
    def digest(seed: int) -> Any:
        document = kgrun("execute", graph_file(), "--device", "cpu", "--seed", str(seed), "--json").json()
        return document["outputs"][0]["sha256"]

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)


def test_env_04_mismatch_is_exit_8_with_the_whole_document(
    kgrun: Any, graph_file: Any, x: Path, tmp_path: Path
) -> None:
    np.savez(tmp_path / "e.npz", y=np.array([0, 2, 0, 4, 0, 6, 0, 9], dtype=np.float32))
    arguments = ("execute", graph_file(), "--device", "cpu", "--input", f"x={x}", "--expected", tmp_path / "e.npz")
    result = kgrun(*arguments, "--json")
    document = result.json()
    assert result.code == 8
    assert document["ok"] is False
    assert document["error"]["code"] == "KG801"
    assert document["comparisons"][0] == {
        "name": "y", "ok": False, "mismatched": 1, "size": 8, "max_abs": 1.0, "max_rel": pytest.approx(1 / 9),
        "reason": "1 of 8 elements differ",
    }  # fmt: skip
    assert document["outputs"][0]["value"] == EXPECTED
    text = kgrun(*arguments)
    assert text.code == 8
    assert "DIFFERS" in text.out
    assert text.err.startswith("error[KG801]: 1 of 1 outputs differ from ")


def test_match_and_tolerance(kgrun: Any, graph_file: Any, x: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "e.npz", y=np.array([0, 2, 0, 4, 0, 6, 0, 8.5], dtype=np.float32))
    arguments = ("execute", graph_file(), "--device", "cpu", "--input", f"x={x}", "--expected", tmp_path / "e.npz")
    assert kgrun(*arguments).code == 8
    assert kgrun(*arguments, "--atol", "0.5").code == 0
    assert kgrun(*arguments, "--rtol", "0.1").code == 0


def test_time_06_nan_equals_nan_only_when_asked_for(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    graph = graph_file(nodes=[{"name": "log", "op": "Log", "inputs": ["x"], "outputs": ["y"]}])
    np.save(tmp_path / "x.npy", np.array([-1.0], dtype=np.float32))
    np.savez(tmp_path / "e.npz", y=np.array([np.nan], dtype=np.float32))
    arguments = (
        "execute",
        graph,
        "--device",
        "cpu",
        "--input",
        f"x={tmp_path}/x.npy",
        "--expected",
        tmp_path / "e.npz",
    )
    assert kgrun(*arguments).code == 8
    assert kgrun(*arguments, "--equal-nan").code == 0


def test_expected_name_that_is_no_output_is_usage(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "e.npz", yy=np.ones(8, dtype=np.float32))
    result = kgrun("execute", graph_file(), "--device", "cpu", "--expected", tmp_path / "e.npz")
    assert result.code == 2
    assert "did you mean 'y'?" in result.err


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04garbage", b"\x93NUMPY"])
def test_broken_files_are_invalid_input(kgrun: Any, graph_file: Any, tmp_path: Path, content: bytes) -> None:
    for name in ("b.npz", "b.npy", "b.safetensors"):
        (tmp_path / name).write_bytes(content)
        assert kgrun("execute", graph_file(), "--device", "cpu", "--input", f"x={tmp_path}/{name}").code == 3
    assert kgrun("execute", graph_file(), "--device", "cpu", "--expected", tmp_path / "b.npz").code == 3


def test_files_are_written(kgrun: Any, graph_file: Any, x: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = kgrun(
        "execute", graph_file(), "--device", "cpu", "--input", f"x={x}", "--output-dir", out, "--save-outputs",
        tmp_path / "all.npz", "--trace", tmp_path / "trace.json", "--csv", tmp_path / "kernels.csv",
    )  # fmt: skip
    assert result.code == 0
    assert [path.name for path in out.iterdir()] == ["y.npy"]
    assert np.load(out / "y.npy").tolist() == EXPECTED
    with np.load(tmp_path / "all.npz") as archive:
        assert archive["y"].tolist() == EXPECTED
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert [event["name"] for event in events if event["ph"] == "X"] == ["neg", "act"]
    with (tmp_path / "kernels.csv").open(encoding="utf-8", newline="") as file:
        assert [row["name"] for row in csv.DictReader(file)] == ["neg", "act"]


@pytest.mark.parametrize("name", ["y.npy", "y.safetensors"])
def test_a_bundle_of_outputs_is_not_named_as_another_kind_of_file(
    kgrun: Any, graph_file: Any, tmp_path: Path, name: str
) -> None:
    result = kgrun("execute", graph_file(), "--device", "cpu", "--save-outputs", tmp_path / name, "--json")
    assert (result.code, result.json()["error"]["code"]) == (2, "KG253")
    assert not (tmp_path / name).exists()


def test_failed_run_writes_nothing(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(8, dtype=np.int8))
    result = kgrun(
        "execute", graph_file(), "--device", "cpu", "--input", f"x={tmp_path}/x.npy", "--output-dir", tmp_path / "out",
        "--trace", tmp_path / "trace.json",
    )  # fmt: skip
    assert result.code == 3
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "trace.json").exists()


def test_memory_limit_is_exit_4(kgrun: Any, graph_file: Any) -> None:
    result = kgrun("execute", graph_file(), "--device", "cpu", "--memory-limit", "1000", "--json")
    assert result.code == 4
    assert result.json()["error"]["details"]["limit_bytes"] == 1000


def test_modes_give_equal_outputs(kgrun: Any, graph_file: Any) -> None:
    documents = [
        kgrun("execute", graph_file(), "--device", "cpu", "--memory", mode, "--json").json()
        for mode in ("planned", "none")
    ]
    assert documents[0]["outputs"] == documents[1]["outputs"]
    assert documents[0]["memory"]["dynamic_bytes"] <= documents[1]["memory"]["dynamic_bytes"]


def test_graph_without_nodes_is_exit_3_unless_allowed(kgrun: Any, graph_file: Any) -> None:
    path = graph_file(nodes=[], outputs=[])
    assert kgrun("execute", path, "--device", "cpu").code == 3
    assert kgrun("execute", path, "--device", "cpu", "--allow-empty", "--json").json()["kernels"] == []


def test_graph_from_standard_input(process: Any, graph_file: Any) -> None:
    text = graph_file().read_text(encoding="utf-8")
    assert process("execute", "-", "--device", "cpu", "--json", stdin=text).json()["graph"]["name"] == "tiny"


@pytest.mark.parametrize("words", ["--dim n=-1", "--dim k=4", "--device gpu", "--planner best", "--iterations 0"])
def test_wrong_values_are_usage(kgrun: Any, graph_file: Any, words: str) -> None:
    assert kgrun("execute", graph_file(), "--device", "cpu", *words.split()).code == 2


def test_unknown_input_is_usage_with_a_suggestion(kgrun: Any, graph_file: Any, x: Path) -> None:
    tensors = {"image": {"role": "input", "dtype": "float32", "shape": [8]}}
    nodes = [{"name": "act", "op": "Relu", "inputs": ["image"], "outputs": ["y"]}]
    path = graph_file(tensors=tensors, nodes=nodes)
    result = kgrun("execute", path, "--device", "cpu", "--input", f"imge={x}")
    assert result.code == 2
    assert "did you mean 'image'?" in result.err


def test_missing_device_is_exit_7_and_never_green(kgrun: Any, graph_file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import kgrun.runtime.devices as devices
    from kgrun.graphs.errors import DeviceUnavailable

    def refuse(*_: object, **_more: object) -> None:
        raise DeviceUnavailable("no NVIDIA driver: libcuda was not found", code="KG702")

    monkeypatch.setattr(devices, "open_device", refuse)
    result = kgrun("execute", graph_file(), "--device", "cuda")
    assert (result.code, result.out) == (7, "")
    assert result.err.startswith("error[KG702]: no NVIDIA driver")
