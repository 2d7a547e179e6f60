"""Jobs as their launchers start them: real processes in the environment of mpirun, torchrun, srun and Open MPI."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.collectives.test_mpi import needs_mpi

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = str(Path(__file__).with_name("launched_as.py"))
EXPECTED = ["--expected", "examples/data/allreduce.expected.npz", "--rtol", "1e-5", "--atol", "1e-6"]
ALLREDUCE = ["execute", "examples/allreduce.yaml", "--device", "cpu", "--json", "--timeout", "60", *EXPECTED]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
# Every rank doubles rows that the file picks by its number; nothing is exchanged.
ALONE: dict[str, Any] = {
    "kgrun": 1,
    "tensors": {"x": {"role": "input", "dtype": "float32", "shape": ["rank + 1", "world_size"], "init": {"fill": 1}}},
    "nodes": [{"name": "twice", "op": "Add", "inputs": ["x", "x"], "outputs": ["y"]}],
    "outputs": ["y"],
}
Process = subprocess.Popen[str]


@pytest.fixture
def port() -> Iterator[int]:
    """A port at which an agent listens, with a free one after it."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as agent:
            number: int = agent.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", number + 1)).close()
            except OSError:
                continue
            yield number
            return


def free_port() -> int:
    """A port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def mpiexec() -> str:
    found = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert found is not None
    return found


def one_report(words: list[str]) -> dict[str, Any]:
    """The document that a job's ranks print, which is rank 0's alone."""
    done = subprocess.run(
        words, cwd=ROOT, env=ENV, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@needs_mpi
@pytest.mark.parametrize("ranks", [2, 4])
def test_mpirun(ranks: int) -> None:
    document = one_report([mpiexec(), "-n", str(ranks), sys.executable, "-m", "kgrun.cli", *ALLREDUCE])
    assert [row["ok"] for row in document["comparisons"]] == [True] * 3
    assert [row["rank"] for row in document["ranks"]["ranks"]] == list(range(ranks))


@needs_mpi
@pytest.mark.parametrize("launcher", ["torchrun", "srun", "openmpi"])
def test_ranks_of_other_launchers_meet_and_compute_together(launcher: str, port: int) -> None:
    at = port if launcher == "torchrun" else free_port()
    document = one_report([mpiexec(), "-n", "2", sys.executable, PROGRAM, launcher, str(at), *ALLREDUCE])
    assert [row["ok"] for row in document["comparisons"]] == [True] * 3
    assert document["dims"] == {"rank": 0, "world_size": 2}
    assert document["collectives"][0]["ranks"] == 2


def started(launcher: str, at: int, ranks: int, words: list[str], *, absent: int = 0, **more: str) -> list[Process]:
    """Processes that no MPI holds together; the last `absent` ranks never come."""
    plain = {name: value for name, value in ENV.items() if not name.startswith(("PMI", "MPI_"))}
    return [
        subprocess.Popen(
            [sys.executable, PROGRAM, launcher, str(at), *words],
            cwd=ROOT, env=plain | {"FAKE_RANK": str(rank), "FAKE_SIZE": str(ranks)} | more, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for rank in range(ranks - absent)
    ]  # fmt: skip


def ended(processes: list[Process]) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each."""
    try:
        said = [process.communicate(timeout=60) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, out, err) for process, (out, err) in zip(processes, said, strict=True)]


@pytest.fixture
def alone(tmp_path: Path) -> list[str]:
    (tmp_path / "graph.json").write_text(json.dumps(ALONE))
    return ["execute", str(tmp_path / "graph.json"), "--device", "cpu", "--json", "--output-dir", str(tmp_path / "out")]


@pytest.mark.parametrize("launcher", ["torchrun", "srun"])
def test_ranks_that_exchange_nothing_need_no_mpi(launcher: str, port: int, alone: list[str], tmp_path: Path) -> None:
    import numpy as np

    found = ended(started(launcher, port if launcher == "torchrun" else free_port(), 3, alone))
    assert [code for code, _, _ in found] == [0, 0, 0], found
    assert [bool(out) for _, out, _ in found] == [True, False, False]  # rank 0 speaks for all
    assert len(json.loads(found[0][1])["ranks"]["ranks"]) == 3
    for rank, folder in enumerate(("out", "out/rank_1", "out/rank_2")):
        y = np.load(tmp_path / folder / "y.npy")
        assert y.shape == (rank + 1, 3)
        assert (y == 2).all()


@needs_mpi
@pytest.mark.slow
def test_ranks_on_the_cpu_that_mpi_does_not_know_are_told_how_to_start(port: int) -> None:
    for code, out, err in ended(started("torchrun", port, 2, ALLREDUCE)):
        assert code == 2, (out, err)
        error = json.loads(out)["error"]
        assert error["code"] in ("KG278", "KG620")
        assert "MPI knows 1 ranks where there are 2" in error["message"]
        assert "mpirun" in error["help"] or error["code"] == "KG620"


@pytest.mark.parametrize(("dies", "left"), [(1, (0, 2)), pytest.param(0, (1, 2), marks=pytest.mark.slow)])
def test_without_a_launcher_of_kgruns_the_others_end_too(
    dies: int, left: tuple[int, ...], port: int, alone: list[str], tmp_path: Path
) -> None:
    began = time.monotonic()
    found = ended(started("torchrun", port, 3, [*alone, "--timeout", "20"], DIES=str(dies)))
    assert time.monotonic() - began < 40
    for rank in left:
        code, out, _ = found[rank]
        error = json.loads(out)["error"]
        assert (code, error["code"]) == (6, "KG620"), found
        assert error["details"]["rank"] == dies
    assert found[dies][0] == 128 + 9  # the holder of a rank passes its end on
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_rank_that_never_comes_is_named(port: int, alone: list[str]) -> None:
    (code, out, _), *_ = ended(started("torchrun", port, 3, [*alone, "--timeout", "15"], absent=1))
    error = json.loads(out)["error"]
    assert (code, error["code"], error["details"]["rank"]) == (9, "KG904", 2)
