"""Jobs of one rank, and no jobs: collectives are copies on the CPU, and nobody has to be met."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kgrun.runtime.collectives import mpi, world
from kgrun.runtime.collectives.ranks import RankInfo
from tests.runtime.collectives.operator_cases import check

ROOT = Path(__file__).parents[3]
TORCHRUN = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
LAUNCHERS = {
    "nobody": {},
    "torchrun": TORCHRUN,  # nobody listens at that port, and nobody has to
    "mpirun": {"PMI_RANK": "0", "PMI_SIZE": "1"},
    "srun": {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0"},
}


def test_every_collective_of_one_rank_is_what_numpy_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "_current", None)
    check(world.enter(RankInfo(0, 1, 0)))


def test_a_job_of_one_needs_no_engine_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi, "missing", lambda: "mpi4py is not installed")
    made = world.World(RankInfo(0, 1, 0, ("nowhere", 1)))
    made.greet("digest", "cpu")
    made.finish()


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_job_of_one_rank_runs_as_a_process_alone_does(launcher: str) -> None:
    words = ["execute", "examples/allreduce.yaml", "--device", "cpu", "--json", "--duration", "0.01"]
    words += ["--expected", "examples/data/allreduce.expected.npz"]
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PMI", "OMPI", "SLURM"))}
    done = subprocess.run(
        [sys.executable, "-m", "kgrun.cli", *words],
        cwd=ROOT, env=env | LAUNCHERS[launcher], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (row,) = document["collectives"]
    assert (row["op"], row["ranks"], row["nbytes"], row["bus_bytes_per_s"]) == ("AllReduce", 1, 2604, None)
    assert row["algorithm_bytes_per_s"] > 0
    assert document["ranks"] is None
