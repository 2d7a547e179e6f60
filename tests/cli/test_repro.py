"""`--repro DIR`: a failed run becomes a folder that fails the same way by itself, or nothing is left of it."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import COPY, KERNELS

pytest.importorskip("cuda.bindings")


def command_of(error: dict[str, Any]) -> list[str]:
    """The words after `kgrun execute` of the command that the error names."""
    line = next(line for line in error["help"].splitlines() if "to run it again: " in line)
    words = shlex.split(line.partition("to run it again: ")[2])
    assert words[:2] == ["kgrun", "execute"]
    return words[2:]


@pytest.fixture
def filed(tmp_path: Path) -> Path:
    """first -> second -> third with sources, a header and weights in files."""
    folder = tmp_path / "project" / "graphs"
    (folder / "src" / "inc").mkdir(parents=True)
    (folder / "src" / "inc" / "deep.h").write_text("#define SCALE 2\n", encoding="utf-8")
    (folder / "src" / "inc" / "top.h").write_text('#include "deep.h"\n', encoding="utf-8")
    code = '#include "inc/top.h"\n' + "\n".join(COPY.format(name) for name in KERNELS).replace("= x[", "= SCALE * x[")
    (folder / "src" / "all.cu").write_text(code, encoding="utf-8")
    np.save(folder / "w.npy", np.arange(8, dtype=np.float32))
    row = {"dtype": "float32", "shape": ["n"]}
    kernels = {name: {"source": "src/all.cu", "entry": name} for name in KERNELS}
    launch = {"grid": [1], "block": [8]}
    nodes = [
        {"name": "n0", "kernel": "first", "inputs": ["x"], "outputs": ["a"], **launch},
        {"name": "n1", "kernel": "second", "inputs": ["w"], "outputs": ["b"], **launch},
        {"name": "n2", "kernel": "third", "inputs": ["b"], "outputs": ["y"], "after": ["n0"], **launch},
    ]
    tensors = {
        "x": {"role": "input", **row, "init": {"uniform": [-1, 1]}},
        "w": {"role": "parameter", **row, "data": "w.npy"},
        **dict.fromkeys("aby", row),
    }
    graph = {"kgrun": 1, "dims": {"n": {"default": 4}}, "tensors": tensors, "kernels": kernels, "nodes": nodes}
    path = folder / "g.json"
    path.write_text(json.dumps(graph | {"outputs": ["a", "y"]}), encoding="utf-8")
    return path


def test_a_bundle_fails_the_same_way_without_the_project(fake_gpu: Any, filed: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "new" / "bundle"
    error = fake_gpu("--dim", "n=8", "--repro", bundle, "--json", graph=filed, second="illegal").json()["error"]
    assert error["details"]["repro"] == str(bundle)
    shutil.rmtree(filed.parent)
    file, *options = command_of(error)
    again = fake_gpu(*options, "--json", graph=file, second="illegal").json()["error"]
    assert (again["exit"], again["message"]) == (6, error["message"])
    assert fake_gpu(*options, "--quiet", graph=file).code == 0


def test_the_graph_ends_with_the_culprit_and_everything_it_needs_is_there(
    fake_gpu: Any, filed: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "b"
    assert fake_gpu("--dim", "n=8", "--repro", bundle, graph=filed, second="illegal").code == 6
    assert {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()} == {
        "graph.json", "inputs.npz", "weights.safetensors", "error.json", "versions.json", "README.md",
        "sources/all.cu", "sources/inc/top.h", "sources/inc/deep.h",
    }  # fmt: skip
    graph = json.loads((bundle / "graph.json").read_text(encoding="utf-8"))
    assert [node["name"] for node in graph["nodes"]] == ["n0", "n1"]
    assert graph["outputs"] == ["a", "b"]
    assert (graph["dims"], set(graph["kernels"]), set(graph["tensors"])) == ({"n": 8}, {"first", "second"}, set("xwab"))
    assert graph["tensors"]["w"]["data"] == "weights.safetensors#w"
    assert np.load(bundle / "inputs.npz")["x"].shape == (8,)
    page = (bundle / "README.md").read_text(encoding="utf-8")
    assert "kgrun execute ./graph.json --device cuda" in page
    assert "--inputs ./inputs.npz" in page
    assert "1 later nodes are left out" in page
    names = [
        row["component"] for row in json.loads((bundle / "versions.json").read_text(encoding="utf-8"))["components"]
    ]
    assert "NVRTC" in names


def test_a_bundle_of_wrong_outputs_keeps_what_was_expected(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "e.npz", y=np.full(8, 3, np.float32))
    np.save(tmp_path / "x.npy", np.arange(8, dtype=np.float32))
    words = ["--device", "cpu", "--expected", tmp_path / "e.npz", "--input", f"x={tmp_path / 'x.npy'}", "--json"]
    first = kgrun("execute", graph_file(), *words, "--repro", tmp_path / "b")
    assert first.code == 8
    (tmp_path / "e.npz").unlink()
    again = kgrun("execute", *command_of(first.json()["error"]), "--json")
    assert again.code == 8
    assert again.json()["comparisons"] == first.json()["comparisons"]
    assert again.json()["outputs"] == first.json()["outputs"]


@pytest.mark.parametrize("how", ["h200", "p.json"])
def test_a_bundle_keeps_the_times_that_transfers_were_planned_by(
    kgrun: Any, graph_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.json").write_text('{"kernels": []}', encoding="utf-8")
    words = ["execute", graph_file(), "--device", "cpu", "--device-profile", how, "--repro", tmp_path / "b"]
    found = kgrun(*words, "--repro-always", "--json").json()
    (tmp_path / "p.json").unlink()
    command = shlex.split(found["repro"])
    kept = command[command.index("--device-profile") + 1]
    assert kept == ("h200" if how == "h200" else str(tmp_path / "b" / "profile.json"))
    assert kgrun(*command[1:], "--json").code == 0


@pytest.mark.parametrize("fails", [True, False])
def test_a_time_limit_does_not_cut_a_bundle_short(
    kgrun: Any, graph_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    from kgrun.cli import timeout

    events: list[str] = []
    monkeypatch.setattr(timeout, "commit", lambda: events.append("commit"))
    np.savez(tmp_path / "e.npz", y=np.full(8, 3, np.float32))
    words = ["--expected", tmp_path / "e.npz"] if fails else ["--repro-always"]
    monkeypatch.setattr("kgrun.runtime.repro.write_bundle", lambda *_: events.append("bundle"))
    kgrun("execute", graph_file(), "--device", "cpu", *words, "--repro", tmp_path / "b")
    assert events[:2] == ["commit", "bundle"]


CHAIN = {
    "tensors": {
        "x": {"role": "input", "dtype": "float32", "shape": [256], "init": {"uniform": [0, 1], "seed": 3}},
        "w": {"role": "parameter", "dtype": "float32", "shape": [256], "init": {"fill": 2}},
        "v": {"role": "parameter", "dtype": "float32", "shape": [256], "init": {"fill": 3}},
    },
    "nodes": [
        {"name": "first", "op": "Add", "inputs": ["x", "w"], "outputs": ["a"]},
        {"name": "second", "op": "Mul", "inputs": ["a", "v"], "outputs": ["b"]},
        {"name": "third", "op": "Sub", "inputs": ["b", "x"], "outputs": ["y"]},
    ],
}


def run_twice(kgrun: Any, words: list[Any], folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The error of a run that fails, and that of its bundle."""
    first = kgrun("execute", *words, "--device", "cpu", "--json", "--repro", folder).json()["error"]
    return first, kgrun("execute", *command_of(first), "--json").json()["error"]


@pytest.mark.parametrize(
    "limits",
    [
        ["--memory-limit", 3_072, "--offload", "off"],
        ["--memory-limit", 3_072, "--host-memory-limit", 16],
        ["--memory-limit", 3_072, "--memory", "pool", "--pool-unit", 4_194_304],
    ],
)
def test_a_bundle_keeps_what_memory_was_to_be_had_from(
    kgrun: Any, graph_file: Any, tmp_path: Path, limits: list[Any]
) -> None:
    first, again = run_twice(kgrun, [graph_file(**CHAIN), *limits], tmp_path / "b")
    assert first["exit"] == 4
    assert (again["code"], again["message"]) == (first["code"], first["message"])
    assert " ".join(map(str, limits[-2:])) in " ".join(command_of(first))


def test_a_bundle_is_compared_with_the_reference_that_a_node_differed_from(
    kgrun: Any, graph_file: Any, tmp_path: Path
) -> None:
    np.savez(tmp_path / "r.npz", b=np.zeros(256, np.float32))
    words = [graph_file(**CHAIN), "--compare-with", tmp_path / "r.npz", "--rtol", "0.5"]
    first, again = run_twice(kgrun, words, tmp_path / "b")
    assert (first["code"], first["details"]["node"]) == ("KG802", "second")
    assert (again["code"], again["details"]["node"]) == ("KG802", "second")


def test_a_bundle_that_is_cut_is_not_held_against_the_whole_graphs_outputs(
    kgrun: Any, graph_file: Any, tmp_path: Path
) -> None:
    np.savez(tmp_path / "e.npz", y=np.ones(256, np.float32))
    np.savez(tmp_path / "x.npz", x=np.full(256, 3e38, np.float32))
    words = [graph_file(**CHAIN), "--check", "nan", "--expected", tmp_path / "e.npz"]
    first, again = run_twice(kgrun, [*words, "--inputs", tmp_path / "x.npz"], tmp_path / "b")
    assert (first["code"], first["details"]["node"]) == ("KG814", "second")
    assert (again["code"], again["details"]["node"]) == ("KG814", "second")


def test_a_kernel_that_does_not_compile_is_bundled(fake_gpu: Any, filed: Path, tmp_path: Path) -> None:
    header = filed.parent / "src" / "inc" / "deep.h"
    header.write_text("#define SCALE nonsense\n", encoding="utf-8")
    error = fake_gpu("--dim", "n=8", "--repro", tmp_path / "b", "--json", graph=filed).json()["error"]
    assert error["exit"] == 5
    file, *options = command_of(error)
    assert fake_gpu(*options, "--json", graph=file).json()["error"]["exit"] == 5


def test_the_supervisor_bundles_a_run_that_it_ended(fake_gpu: Any, filed: Path, tmp_path: Path) -> None:
    error = fake_gpu(
        "--dim", "n=8", "--timeout", "6", "--repro", tmp_path / "b", "--json", graph=filed, second="hang"
    ).json()["error"]
    assert error["exit"] == 9
    graph = json.loads((tmp_path / "b" / "graph.json").read_text(encoding="utf-8"))
    assert [node["name"] for node in graph["nodes"]] == ["n0", "n1"]
    assert command_of(error)[-4:-2] == ["--timeout", "6"]


def test_success_and_usage_leave_no_bundle(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    assert kgrun("execute", graph_file(), "--device", "cpu", "--repro", tmp_path / "b", "-q").code == 0
    assert kgrun("execute", graph_file(), "--device", "moon", "--repro", tmp_path / "b").code == 2
    assert not (tmp_path / "b").exists()


def test_a_folder_that_is_not_empty_is_refused_before_anything_runs(
    kgrun: Any, graph_file: Any, tmp_path: Path
) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine").write_text("", encoding="utf-8")
    result = kgrun("execute", graph_file(), "--device", "cpu", "--repro", tmp_path / "b")
    assert (result.code, "is there already" in result.err) == (2, True)


def test_a_link_to_an_empty_folder_stays_one(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    words = ["execute", graph_file(), "--device", "cpu", "--repro", tmp_path / "link", "--repro-always", "--json"]
    command = shlex.split(kgrun(*words).json()["repro"])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there" / "graph.json").is_file()
    assert kgrun(*command[1:]).code == 0


def test_a_folder_below_a_file_is_refused_before_anything_is_read(kgrun: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = kgrun("execute", "missing.json", "--repro", tmp_path / "file" / "a" / "b")
    assert (result.code, f"{tmp_path / 'file'} is no folder" in result.err) == (2, True)


def test_nothing_half_written_is_left_where_the_bundle_fails(
    kgrun: Any, graph_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kgrun.runtime.repro import bundle

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    np.savez(tmp_path / "e.npz", y=np.full(8, 3, np.float32))
    monkeypatch.setattr(bundle, "_versions", full)
    before = set(tmp_path.iterdir())
    result = kgrun(
        "execute", graph_file(), "--device", "cpu", "--expected", tmp_path / "e.npz", "--repro", tmp_path / "b"
    )
    assert result.code == 8
    assert "no bundle was written: cannot write" in result.err
    assert "No space left on device" in result.err
    assert {path.name for path in set(tmp_path.iterdir()) - before} <= {"tiny.json"}


def test_arrays_beyond_the_limit_are_named_where_they_lie(
    kgrun: Any, graph_file: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kgrun.runtime.repro import arrays

    monkeypatch.setattr(arrays, "LIMIT_BYTES", 16)
    np.save(tmp_path / "w.npy", np.arange(8, dtype=np.float32))
    np.savez(tmp_path / "e.npz", y=np.full(8, 3, np.float32))
    row = {"dtype": "float32", "shape": ["n"]}
    tensors = {"x": {"role": "input", **row, "init": {"fill": 1}}, "w": {"role": "parameter", **row, "data": "w.npy"}}
    nodes = [{"name": "sum", "op": "Add", "inputs": ["x", "w"], "outputs": ["y"]}]
    words = ["--device", "cpu", "--expected", tmp_path / "e.npz", "--repro", tmp_path / "b", "--json"]
    first = kgrun("execute", graph_file(tensors=tensors, nodes=nodes), *words).json()
    again = kgrun("execute", *command_of(first["error"]), "--json").json()
    assert again["outputs"] == first["outputs"]
    page = (tmp_path / "b" / "README.md").read_text(encoding="utf-8")
    assert f"w is read from {tmp_path / 'w.npy'} (32 bytes, beyond the limit of 16 in all)" in page
    assert "x is made from its seed again" in page


def test_cubins_are_those_of_the_kept_kernels(filed: Path, tmp_path: Path) -> None:
    from kgrun.graphs.bind.given import bind_given
    from kgrun.graphs.load import load_graph
    from kgrun.runtime.repro import Case, write_bundle

    bound = bind_given(load_graph(str(filed)), {"n": 8}, {})
    case = Case(bound, {}, 0, "n1", ["--device", "cuda"], {"error": {"message": "m"}}, ["execute", "g"], "sm_90")
    bundle = write_bundle(tmp_path / "b", case)
    found = sorted((bundle.folder / "cubins").iterdir())
    assert [path.name for path in found] == ["first.sm_90.cubin", "second.sm_90.cubin"]
    assert all(path.read_bytes().startswith(b"\x7fELF") for path in found)


def test_a_run_that_does_not_fail_leaves_a_bundle_only_where_it_is_asked_for(
    kgrun: Any, graph_file: Any, tmp_path: Path
) -> None:
    row = {"dtype": "float32", "shape": [4]}
    tensors = {"x": {"role": "input", **row, "init": {"uniform": [0, 1], "seed": 3}}}
    file = graph_file(tensors=tensors, nodes=[{"name": "n", "op": "Relu", "inputs": ["x"], "outputs": ["y"]}])
    words = ["execute", file, "--device", "cpu", "--repro", tmp_path / "b"]
    kgrun(*words)
    assert not (tmp_path / "b").exists()
    found = kgrun(*words, "--repro-always", "--json").json()
    command = shlex.split(found["repro"])
    assert command[:2] == ["kgrun", "execute"]
    again = kgrun(*command[1:], "--json").json()
    assert again["outputs"] == found["outputs"]
    assert [each["ok"] for each in again["comparisons"]] == [True]
    assert not (tmp_path / "b" / "error.json").exists()
    assert kgrun("execute", file, "--repro-always", "--json").json()["error"]["code"] == "KG240"
