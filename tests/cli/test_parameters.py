"""`--save-parameters` and `--load-parameters`: what a run left, into a file and from there into the next run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from kgrun.cli.parameters import ParameterFiles
from kgrun.graphs.load import load_graph
from kgrun.runtime import Session, load_parameters, save_parameters
from tests.commands import Command

COUNTER = {
    "kgrun": 1,
    "tensors": {
        "w": {"role": "parameter", "dtype": "float32", "shape": [3], "init": {"fill": 0}},
        "step": {"role": "parameter", "dtype": "float32", "shape": [3], "init": {"arange": [1, 1]}},
    },
    "nodes": [{"name": "add", "op": "Add", "inputs": ["w", "step"], "outputs": ["w2"], "inplace": {"w2": "w"}}],
    "outputs": ["w2"],
}


def written(folder: Path, document: object, name: str = "g.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(document))
    return path


def test_S106_updated_parameters_are_written_as_the_run_left_them_and_a_second_run_goes_on(
    kgrun: Command, tmp_path: Path
) -> None:
    file, saved = written(tmp_path, COUNTER), tmp_path / "w.safetensors"
    first = kgrun("execute", file, "--device", "cpu", "--iterations", "3", "--warmup", "2", "--save-parameters", saved)
    assert first.code == 0, first.err
    held = load_file(saved)
    assert {name: array.tolist() for name, array in held.items()} == {"w": [3, 6, 9], "step": [1, 2, 3]}
    again = ("--load-parameters", saved, "--save-parameters", saved)
    assert kgrun("execute", file, "--device", "cpu", "--iterations", "2", *again).code == 0
    assert load_file(saved)["w"].tolist() == [5, 10, 15]


def test_S106_a_session_saves_and_loads_them_too(tmp_path: Path) -> None:
    graph, saved = load_graph(written(tmp_path, COUNTER)), tmp_path / "w.npz"
    with Session(graph, device="cpu") as session:
        session.run(iterations=2)
        assert save_parameters(session, saved) == ("w", "step")
        session.run(iterations=1)  # saving changes nothing
        assert session.output("w").tolist() == [3, 6, 9]
    with Session(graph, device="cpu", values=load_parameters(graph, saved)) as session:
        assert session.run(iterations=1).outputs["w2"].tolist() == [3, 6, 9]


def test_parameters_that_no_node_read_are_written_too(kgrun: Command, tmp_path: Path) -> None:
    fives = {"role": "parameter", "dtype": "float32", "shape": [2], "init": {"fill": 5}}
    document = {
        "kgrun": 1,
        "tensors": {
            "yes": {"role": "input", "dtype": "bool", "shape": [], "init": {"fill": 1}},
            "w": fives, "other": fives, "unread": fives,
        },
        "nodes": [{"name": "choose", "op": "If", "inputs": ["yes"], "outputs": ["y"],
                   "subgraphs": {"then_branch": "then", "else_branch": "else"}}],
        "graphs": {
            "then": {"nodes": [{"name": "n", "op": "Neg", "inputs": ["w"], "outputs": ["a"]}], "outputs": ["a"]},
            "else": {"nodes": [{"name": "n", "op": "Neg", "inputs": ["other"], "outputs": ["a"]}], "outputs": ["a"]},
        },
        "outputs": ["y"],
    }  # fmt: skip
    file, saved = written(tmp_path, document), tmp_path / "w.safetensors"
    assert kgrun("execute", file, "--device", "cpu", "--save-parameters", saved).code == 0
    held = {name: array.tolist() for name, array in load_file(saved).items()}
    assert held == {"w": [5, 5], "other": [5, 5], "unread": [5, 5]}


def test_what_the_file_has_not_keeps_its_data_and_is_named(kgrun: Command, tmp_path: Path) -> None:
    file, some = written(tmp_path, COUNTER), tmp_path / "some.safetensors"
    save_file({"w": np.full(3, 10, np.float32), "momentum": np.zeros(2, np.float32)}, some)
    done = kgrun("execute", file, "--device", "cpu", "--load-parameters", some, "--json")
    assert [w["message"] for w in done.json()["warnings"]] == [f"not in {some}, so with their own data: step"]
    assert done.json()["outputs"][0]["value"] == [11, 12, 13]


def test_files_that_cannot_be_are_refused_before_anything_runs(kgrun: Command, tmp_path: Path) -> None:
    file = written(tmp_path, COUNTER)
    for option, name, wanted in (
        ("--save-parameters", "w.txt", ("KG273", 2)),
        ("--load-parameters", "w.pt", ("KG273", 2)),
        ("--load-parameters", "none.safetensors", ("KG372", 3)),
        ("--load-parameters", "other.npz", ("KG273", 2)),
        ("--load-parameters", "wide.npz", ("KG375", 3)),
        ("--load-parameters", "long.npz", ("KG376", 3)),
    ):
        np.savez(tmp_path / "other.npz", x=np.zeros(3))
        np.savez(tmp_path / "wide.npz", w=np.zeros(3))
        np.savez(tmp_path / "long.npz", w=np.zeros(4, np.float32))
        done = kgrun("execute", file, "--device", "cpu", option, tmp_path / name, "--json")
        assert (done.json()["error"]["code"], done.code) == wanted, (option, name)
    missing = kgrun("execute", file, "--device", "cpu", "--save-parameters", tmp_path / "no" / "w.npz", "--json")
    assert (missing.json()["error"]["code"], missing.code) == ("KG270", 2)


def test_what_does_not_fit_is_named_with_its_file(kgrun: Command, tmp_path: Path) -> None:
    file, long = written(tmp_path, COUNTER), tmp_path / "long.npz"
    np.savez(long, w=np.zeros(4, np.float32))
    error = kgrun("execute", file, "--device", "cpu", "--load-parameters", long, "--json").json()["error"]
    assert (error["code"], error["message"]) == ("KG376", f"{long}#w has shape [4], expected [3]")


def test_the_file_that_was_loaded_is_not_read_again_when_the_run_has_ended(tmp_path: Path) -> None:
    """It may be gone, and a long run must not lose its result for that."""
    graph, start, saved = load_graph(written(tmp_path, COUNTER)), tmp_path / "start.npz", tmp_path / "saved.npz"
    np.savez(start, w=np.full(3, 7, np.float32))
    files = ParameterFiles(str(start), str(saved))
    given = files.read(graph)
    with Session(graph, device="cpu", values=given) as session:
        report = session.run()
        start.unlink()
        report = files.write(session, report, given)
    assert np.load(saved)["w"].tolist() == [8, 9, 10]
    assert [warning.message for warning in report.warnings] == [f"not in {start}, so with their own data: step"]


def test_a_parameter_that_is_given_otherwise_does_not_keep_its_own_data(kgrun: Command, tmp_path: Path) -> None:
    file, some, step = written(tmp_path, COUNTER), tmp_path / "some.npz", tmp_path / "step.npy"
    np.savez(some, w=np.zeros(3, np.float32))
    np.save(step, np.full(3, 2, np.float32))
    words = ("--load-parameters", some, "--input", f"step={step}", "--json")
    document = kgrun("execute", file, "--device", "cpu", *words).json()
    assert (document["outputs"][0]["value"], document["warnings"]) == ([2, 2, 2], [])


@pytest.mark.parametrize("there", [True, False])
def test_what_is_written_through_a_symbolic_link_is_in_the_file_that_it_names(
    kgrun: Command, tmp_path: Path, there: bool
) -> None:
    file = written(tmp_path, COUNTER)
    (tmp_path / "kept").mkdir()
    for name, words in (("w.npz", ["--save-parameters"]), ("k.csv", ["--csv"])):
        target, link = tmp_path / "kept" / name, tmp_path / name
        if there:
            target.write_bytes(b"old")
        link.symlink_to(Path("kept") / name)
        assert kgrun("execute", file, "--device", "cpu", *words, link, "--quiet").code == 0
        assert link.is_symlink()
        assert target.stat().st_size > 3
    assert np.load(tmp_path / "kept" / "w.npz")["w"].tolist() == [1, 2, 3]


def test_node_by_node_saves_the_same(kgrun: Command, tmp_path: Path) -> None:
    file, saved = written(tmp_path, COUNTER), tmp_path / "w.safetensors"
    words = ("--device", "cpu", "--memory", "single", "--iterations", "3", "--save-parameters", saved)
    assert kgrun("execute", file, *words).code == 0
    assert load_file(saved)["w"].tolist() == [3, 6, 9]
