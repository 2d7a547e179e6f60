"""`--dump`: every tensor as it was when it was made, whatever becomes of its bytes; files; what is said at the end."""

from __future__ import annotations

import json
import os
import random
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.dump import DumpConfig, Iterations
from kgrun.runtime.eager import EagerSession
from kgrun.runtime.report import RunReport
from tests.graphs.random_graphs import random_graph
from tests.runtime.dump.test_dump_config import written

CPU = ("--device", "cpu")
CHAIN: dict[str, Any] = {
    "kgrun": 1,
    "name": "chain",
    "tensors": {"x": {"role": "input", "dtype": "float32", "shape": [1000], "init": {"uniform": [-1, 1]}}},
    "nodes": [
        {"name": "n1", "op": "Neg", "inputs": ["x"], "outputs": ["t1"]},
        {"name": "n2", "op": "Softmax", "inputs": ["t1"], "outputs": ["t2"]},
        {"name": "n3", "op": "Neg", "inputs": ["t2"], "outputs": ["t3"]},
        {"name": "n4", "op": "Exp", "inputs": ["t3"], "outputs": ["t4"]},
        {"name": "n5", "op": "Softmax", "inputs": ["t4"], "outputs": ["t5"]},
        {"name": "n6", "op": "Neg", "inputs": ["t5"], "outputs": ["y"]},
    ],
    "outputs": ["y"],
}


def values(document: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Every tensor that a node makes, from copies that outlive a run in which no two share bytes."""
    made = [o for node in document["nodes"] for o in node["outputs"] if o is not None]
    pins = {name: document["tensors"].get(name, {}) | {"pin": True} for name in made}
    graph = KernelGraph.model_validate(document | {"tensors": document["tensors"] | pins})
    with Session(graph, device="cpu", memory="none") as session:
        session.run()
        return {name: session.output(name) for name in made}


def dumped(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    return {path.stem: np.load(path) for path in folder.glob("*.npy")}


def test_plan_04_a_tensor_whose_bytes_are_reused_is_dumped_as_it_was(
    kgrun: Any, graph_file: Any, tmp_path: Path
) -> None:
    file = graph_file(**CHAIN)
    result = kgrun("execute", file, *CPU, "--dump", "t2", "--dump-dir", tmp_path / "d", "--json")
    assert result.code == 0, result.out
    assert list(dumped(tmp_path / "d" / "iteration_0")) == ["t2"]
    np.testing.assert_array_equal(dumped(tmp_path / "d" / "iteration_0")["t2"], values(CHAIN)["t2"])
    document = result.json()
    assert document["dump"] == {"folder": str(tmp_path / "d"), "files": 1, "nbytes": 4000}
    # t2 shares its bytes with later tensors: the dump changed nothing about the plan.
    plain = kgrun("execute", file, *CPU, "--json").json()
    assert document["memory"]["dynamic_bytes"] == plain["memory"]["dynamic_bytes"] < 4 * 4096
    assert document["outputs"] == plain["outputs"]


def everything(folder: Path, **more: Any) -> DumpConfig:
    return DumpConfig(("all",), folder, **more)


@pytest.mark.parametrize("single", [False, True])
def test_S45_S46_a_full_dump_holds_what_a_run_without_reuse_makes(tmp_path: Path, single: bool) -> None:
    for seed in range(8):
        document = random_graph(random.Random(seed), 25)
        graph, folder = KernelGraph.model_validate(document), tmp_path / str(seed)
        with (EagerSession if single else Session)(graph, device="cpu") as session:
            report = session.run(dump=everything(folder))
        found, wanted = dumped(folder / "iteration_0"), values(document)
        assert found.keys() == wanted.keys()
        for name, array in found.items():
            assert array.tobytes() == wanted[name].tobytes(), (seed, name)
        assert report.dump is not None
        assert report.dump.files == len(found)


def test_B16_a_dump_leaves_later_runs_as_they_are(tmp_path: Path) -> None:
    with Session(KernelGraph.model_validate(CHAIN), device="cpu") as session:
        before = session.plan
        session.run(dump=everything(tmp_path))
        assert session.plan is before
        files = sorted(tmp_path.rglob("*"))
        report = session.run()
        assert (report.dump, sorted(tmp_path.rglob("*"))) == (None, files)


def counting(tmp_path: Path, iterations: Iterations, kind: type[Any]) -> RunReport:
    document = {
        "kgrun": 1,
        "tensors": {
            "w": {"role": "parameter", "dtype": "float32", "shape": [2], "init": {"fill": 0}},
            "one": {"role": "constant", "dtype": "float32", "value": [1]},
        },
        "nodes": [{"name": "add", "op": "Add", "inputs": ["w", "one"], "outputs": ["w2"], "inplace": {"w2": "w"}}],
        "outputs": ["w2"],
    }
    with kind(KernelGraph.model_validate(document), device="cpu") as session:
        report: RunReport = session.run(
            iterations=5, dump=DumpConfig(("add",), tmp_path, iterations, inputs=True, outputs=True)
        )
    return report


@pytest.mark.parametrize("kind", [Session, EagerSession])
def test_S135_only_the_iterations_that_are_listed(tmp_path: Path, kind: type[Any]) -> None:
    counting(tmp_path, Iterations(((1, 2), (4, 4))), kind)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["iteration_1", "iteration_2", "iteration_4"]
    for iteration in (1, 2, 4):
        found = dumped(tmp_path / f"iteration_{iteration}")
        assert {n: a.tolist() for n, a in found.items()} == {
            "w": [iteration] * 2,
            "w2": [iteration + 1] * 2,
            "one": [1],
        }


def test_S138_files_are_read_only_and_written_over_whole(tmp_path: Path) -> None:
    for _ in range(2):
        counting(tmp_path, Iterations(None), Session)
    files = sorted(tmp_path.rglob("*.npy"))
    assert len(files) == 15
    assert {stat.S_IMODE(os.stat(file).st_mode) for file in files} == {0o444}
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and file.suffix != ".npy"]


def test_S138_names_that_stand_for_nothing_are_told_at_the_end(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    words = ("--dump", "t1,n3", "--dump", "tt", "--dump-dir", tmp_path / "d")
    document = kgrun("execute", graph_file(**CHAIN), *CPU, *words, "--json").json()
    assert sorted(dumped(tmp_path / "d" / "iteration_0")) == ["t1", "t3"]
    (warning,) = [w for w in document["warnings"] if w["code"].startswith("W-DUMP")]
    assert warning["code"] == "W-DUMP-UNUSED"
    assert "'tt'" in warning["message"]


def test_S136_S138_a_configuration_dumps_and_is_copied_beside(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    config = written(tmp_path, {"common_dump_settings.path": str(tmp_path), "common_dump_settings.kernels": ["n3"]})
    result = kgrun("execute", graph_file(**CHAIN), *CPU, "--dump-config", config, "--iterations", 5)
    assert result.code == 0, result.err
    folder = tmp_path / "net-1"
    assert sorted(path.name for path in folder.iterdir()) == [
        "dump_config.json", "iteration_0", "iteration_3", "iteration_4",
    ]  # fmt: skip
    assert sorted(dumped(folder / "iteration_3")) == ["t2", "t3"]
    assert json.loads((folder / "dump_config.json").read_text()) == json.loads(Path(config).read_text())
    assert f"dumped 24,000 bytes of tensors in 6 files under {folder}" in result.out


@pytest.mark.parametrize("change", [{"common_dump_settings.support_device": [3]}, {"e2e_dump_settings.enable": False}])
def test_S136_B25_a_dump_that_is_off_writes_nothing_and_says_so(
    kgrun: Any, graph_file: Any, tmp_path: Path, change: dict[str, Any]
) -> None:
    config = written(tmp_path, change | {"common_dump_settings.path": str(tmp_path)})
    document = kgrun("execute", graph_file(**CHAIN), *CPU, "--dump-config", config, "--json").json()
    assert [w["code"] for w in document["warnings"] if w["code"].startswith("W-DUMP")] == ["W-DUMP-OFF"]
    assert "dump" not in document
    assert not (tmp_path / "net-1").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--dump", "t1"), "KG240"),
        (("--dump-dir", "d"), "KG240"),
        (("--dump-iterations", "1"), "KG240"),
        (("--dump", ",", "--dump-dir", "d"), "KG253"),
        (("--dump", "t1", "--dump-dir", "d", "--dump-iterations", "x"), "KG253"),
        (("--dump", "t1", "--dump-config", "c.json"), "KG240"),
        (("--dump", "t1", "--dump-dir", "d", "--check", "nan"), "KG240"),
    ],
)
def test_options_that_need_or_exclude_each_other(
    kgrun: Any, graph_file: Any, words: tuple[str, ...], code: str
) -> None:
    result = kgrun("execute", graph_file(**CHAIN), *CPU, *words, "--json")
    assert (result.code, result.json()["error"]["code"]) == (2, code)


def test_a_folder_that_cannot_be_written_is_usage(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    result = kgrun("execute", graph_file(**CHAIN), *CPU, "--dump", "t1", "--dump-dir", tmp_path / "taken", "--json")
    assert result.code == 2
    assert str(tmp_path / "taken") in result.json()["error"]["message"]


def test_dump_check_says_what_a_configuration_does(kgrun: Any, tmp_path: Path, faults: Any) -> None:
    from kgrun.cli.render.schema import report_schema

    document = kgrun("dump-check", written(tmp_path), "--json").json()
    assert faults(document, {"$ref": "#/$defs/dump_check", "$defs": report_schema()["$defs"]}) == []
    assert document["dump"]["iterations"] == [[0, 0], [3, 5]]
    assert "iterations   0, 3 to 5" in kgrun("dump-check", written(tmp_path)).out
    wrong = kgrun("dump-check", written(tmp_path, {"common_dump_settings.dump_mode": 5}), "--json")
    assert (wrong.code, wrong.json()["error"]["code"]) == (3, "KG392")


@pytest.mark.parametrize(("duration", "runs"), [(0.0, 1), (2.5, 3)])
def test_runs_that_dump_go_on_for_the_duration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, duration: float, runs: int
) -> None:
    clock = iter(range(100))  # a second a look
    monkeypatch.setattr("kgrun.runtime.dump.writer.monotonic", lambda: float(next(clock)))
    config = DumpConfig(("y",), tmp_path / "d", Iterations(None))
    with Session(KernelGraph.model_validate(CHAIN), device="cpu") as session:
        assert session.run(duration=duration, dump=config).iterations == runs
    assert len(list((tmp_path / "d").rglob("y.npy"))) == runs
