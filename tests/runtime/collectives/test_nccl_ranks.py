"""Ranks on GPUs that are stand-ins, through NCCL that is one: everything but kernels and links is kgrun's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kgrun.runtime.collectives.launch import launch
from tests.cli.test_ended_launchers import gone, wait_for
from tests.runtime.collectives import test_faults

ROOT = Path(__file__).parents[3]
STAND_IN = Path(__file__).with_name("stand_in")
PROGRAM = str(Path(__file__).with_name("rank_program.py"))
PATH = os.pathsep.join([str(STAND_IN), str(ROOT), *filter(None, sys.path)])
ENV = {**os.environ, "PYTHONPATH": PATH}
MOVED: dict[str, Any] = {
    "kgrun": 1,
    "tensors": {"x": {"role": "input", "dtype": "float32", "shape": [6], "init": {"fill": 2}}},
    "nodes": [
        {"name": "sum", "op": "AllReduce", "inputs": ["x"], "outputs": ["s"]},
        {"name": "all", "op": "AllGather", "inputs": ["s"], "outputs": ["y"]},
    ],
    "outputs": ["y"],
}


@pytest.mark.parametrize("ranks", [2, 4])
def test_S84_S85_S86_every_collective_agrees_with_numpy(ranks: int) -> None:
    done = launch([sys.executable, PROGRAM, "cuda:0"], ranks, 60.0, ENV, mpi=False)
    assert done.error is None, (done.error.message, done.err)
    assert done.exits == dict.fromkeys(range(ranks), 0), done.err


def test_S4_the_command_runs_a_rank_a_gpu_and_needs_no_mpi(tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text(json.dumps(MOVED))
    words = ["execute", str(tmp_path / "graph.json"), "--ranks", "3", "--device", "cuda", "--json", "--timeout", "60"]
    # A PATH without mpiexec, in the environment of another job.
    env = ENV | {"PATH": str(tmp_path), "RANK": "0", "WORLD_SIZE": "1", "SLURM_JOB_ID": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "kgrun.cli", *words, "--output-dir", str(tmp_path / "out")],
        env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["device"]["versions"]["nccl"] == "2.99.0"
    assert [(row["op"], row["ranks"], row["nbytes"]) for row in document["collectives"]] == [
        ("AllReduce", 3, 24),
        ("AllGather", 3, 72),
    ]
    assert [row["device"].partition(" ")[0] for row in document["ranks"]["ranks"]] == ["cuda:0", "cuda:1", "cuda:2"]
    assert document["not_replayed"] is None
    import numpy as np

    for folder in ("out", "out/rank_1", "out/rank_2"):
        np.testing.assert_array_equal(np.load(tmp_path / folder / "y.npy"), np.full(18, 6, np.float32))


FAST = (("die-measure", 6), ("other-graph", 6))
SLOW = (
    *(("die-greet", 6), ("die-settle", 6), ("crash-measure", 6), ("leave-measure", 6), ("throw-measure", 6)),
    *(("memory-measure", 6), ("other-shape", 6), ("other-step", 6), ("hang-settle", 9), ("hang-measure", 9)),
    ("stop-measure", 9),
)


@pytest.mark.parametrize(("fault", "exit"), [*FAST, *(pytest.param(*each, marks=pytest.mark.slow) for each in SLOW)])
def test_a_fault_of_a_rank_ends_the_others_and_is_laid_to_it(fault: str, exit: int, tmp_path: Path) -> None:
    done, seconds = test_faults.run(fault, 1, 3, tmp_path, "cuda", PYTHONPATH=PATH)
    assert done.error is not None, done.err
    told = (done.error.code, done.error.message, done.exits, done.err)
    assert (done.error.exit, done.error.details["rank"]) == (exit, 1), told
    assert all(code in (6, 9) for rank, code in done.exits.items() if rank != 1), told
    assert seconds < test_faults.limit_of(fault) + (6 if exit == 9 else 0)
    assert test_faults.left_running(tmp_path) == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "how", ["SIGKILL", *(pytest.param(how, marks=pytest.mark.slow) for how in ("SIGTERM", "SIGINT"))]
)
def test_when_kgrun_is_ended_its_ranks_are(how: str, tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text(json.dumps(MOVED))
    words = ["execute", str(tmp_path / "graph.json"), "--ranks", "2", "--device", "cuda", "--iterations", "10000000"]
    launcher = subprocess.Popen(
        [sys.executable, "-m", "kgrun.cli", *words], env=ENV | {"KGRUN_TEST_MARK": str(tmp_path)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    wait_for(tmp_path, 5)
    launcher.send_signal(getattr(signal, how))
    launcher.wait(15)
    assert gone(tmp_path)
