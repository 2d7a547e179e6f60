"""Commands over ranks: one report of all, files of each, one error."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from kgrun.cli.render.schema import report_schema
from tests.runtime.collectives.test_mpi import needs_mpi

pytestmark = needs_mpi
ROOT = Path(__file__).resolve().parents[2]


def run(*words: str, ranks: str = "2") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kgrun.cli", *words, "--ranks", ranks, "--device", "cpu", "--timeout", "60"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_rank_0_reports_for_all_and_each_rank_has_its_files(tmp_path: Path, faults: Any) -> None:
    trace, out = tmp_path / "trace.json", tmp_path / "out"
    done = run("execute", "examples/allreduce.yaml", "--json", "--trace", str(trace), "--output-dir", str(out))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)  # one document, of one rank
    assert faults(document, {"$ref": "#/$defs/execute", "$defs": report_schema()["$defs"]}) == []
    assert document["dims"] == {"rank": 0, "world_size": 2}
    (row,) = document["collectives"]
    assert (row["op"], row["ranks"], row["nbytes"]) == ("AllReduce", 2, 4 * (640 + 10 + 1))
    assert row["exposed_ns"] + row["hidden_ns"] > 0
    assert [each["rank"] for each in document["ranks"]["ranks"]] == [0, 1]
    assert document["ranks"]["total_ns"]["min"] <= document["ranks"]["total_ns"]["max"]
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["pid"] for event in events if event["ph"] == "X"} == {1, 2}
    names = {"weight_new.npy", "bias_new.npy", "loss.npy"}
    assert {path.name for path in out.glob("*.npy")} == {path.name for path in out.glob("rank_1/*.npy")} == names


def test_an_error_that_all_ranks_have_is_shown_once_as_it_is() -> None:
    done = run("execute", "examples/allreduce.yaml", "--json", "--dim", "n=3")
    document = json.loads(done.stdout)
    assert done.returncode == document["error"]["exit"] == 2
    assert document["error"]["code"] == "KG221"
    assert document["error"]["details"]["exits"] == {"0": 2, "1": 2}


def test_each_rank_writes_a_bundle_of_its_own(tmp_path: Path) -> None:
    graph = {
        "kgrun": 1,
        "tensors": {"x": {"role": "input", "dtype": "float32", "shape": [4], "init": {"fill": 0}}},
        "nodes": [{"name": "n", "op": "Log", "inputs": ["x"], "outputs": ["y"]}],
        "outputs": ["y"],
    }
    (tmp_path / "g.json").write_text(json.dumps(graph), encoding="utf-8")
    done = run("execute", str(tmp_path / "g.json"), "--check", "nan", "--json", "--repro", str(tmp_path / "b"))
    assert done.returncode == 8, done.stderr
    error = json.loads(done.stdout)["error"]
    assert "no bundle" not in error["help"]
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["rank_0", "rank_1"]
    for rank in (0, 1):
        text = (tmp_path / "b" / f"rank_{rank}" / "README.md").read_text(encoding="utf-8")
        assert f"- this was rank {rank} of 2; here it runs alone" in text


def test_without_mpi_the_launcher_says_what_to_install(tmp_path: Path) -> None:
    # A Python of its own, beside which there is no mpiexec.
    assert shutil.which("mpiexec", path=str(tmp_path)) is None
    elsewhere = str(tmp_path / "python")
    code = f"import sys; sys.executable = {elsewhere!r}; from kgrun.cli.entry import main; sys.exit(main())"
    words = ["execute", "examples/allreduce.yaml", "--ranks", "2"]
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 7
    assert "KG707" in done.stderr
    assert "kgrun[mpi]" in done.stderr


def test_mpirun_starts_ranks_that_find_each_other_through_mpi() -> None:
    mpiexec = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert mpiexec is not None
    command = [sys.executable, "-m", "kgrun.cli", "execute", "examples/allreduce.yaml", "--device", "cpu", "--json"]
    expected = ["--expected", "examples/data/allreduce.expected.npz", "--rtol", "1e-5", "--atol", "1e-6"]
    done = subprocess.run(
        [mpiexec, "-n", "2", *command, *expected, "--timeout", "60"],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [row["ok"] for row in document["comparisons"]] == [True] * 3
    assert len(document["ranks"]["ranks"]) == 2
