"""Who a process is, as launchers say it."""

from __future__ import annotations

import pytest

from kgrun.cli.ranks import Team, without_ranks
from kgrun.graphs.errors import UsageError
from kgrun.runtime.collectives.ranks import RankInfo, ranks_from_environment

TORCH = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "host0", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("environ", "info"),
    [
        ({}, None),
        (TORCH, RankInfo(3, 8, 1, ("host0", 29500))),
        (TORCH | {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "j"},
         RankInfo(3, 8, 1, ("host0", 29501), token="j")),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0"}, RankInfo(1, 2, 0)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, RankInfo(1, 2, 1)),
        ({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "6", "OMPI_COMM_WORLD_LOCAL_RANK": "2"},
         RankInfo(5, 6, 2)),
        ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "0"}, RankInfo(2, 4, 0)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),  # a batch script, outside of any step
        ({"RANK": "0", "WORLD_SIZE": "1"}, RankInfo(0, 1, 0)),
        ({"PMI_RANK": "0", "PMI_SIZE": "1", "KGRUN_RANK_STORE": "127.0.0.1:9", "KGRUN_RANK_TOKEN": "t"},
         RankInfo(0, 1, 0, ("127.0.0.1", 9), hosted=False, token="t")),
    ],
)  # fmt: skip
def test_launchers_variables(environ: dict[str, str], info: RankInfo | None) -> None:
    assert ranks_from_environment(environ) == info


@pytest.mark.parametrize("environ", [{"RANK": "2", "WORLD_SIZE": "2"}, {"RANK": "one", "WORLD_SIZE": "2"}])
def test_contradicting_variables_are_refused(environ: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        ranks_from_environment(environ)
    assert caught.value.code == "KG278"


@pytest.mark.parametrize(
    ("asked", "on_cpu", "device"),
    [("auto", False, "cuda:1"), ("cuda", False, "cuda:1"), ("cuda:0", False, "cuda:0"), ("cpu", True, "cpu"),
     ("auto", True, "cpu")],
)  # fmt: skip
def test_S4_the_device_is_that_of_the_local_rank_unless_one_is_named(asked: str, on_cpu: bool, device: str) -> None:
    assert Team(RankInfo(5, 8, 1), None).device(asked, on_cpu) == device


def test_ranks_run_equally_often() -> None:
    team = Team(RankInfo(0, 2, 0), None)
    assert team.loop({"warmup": None, "iterations": 4}, on_cpu=False)["warmup"] == 3
    assert team.loop({"warmup": 0, "iterations": 4}, on_cpu=False)["warmup"] == 0
    with pytest.raises(UsageError):
        team.loop({"duration": 2.0}, on_cpu=True)


def test_a_ranks_command_line_starts_no_ranks() -> None:
    words = ["execute", "g.yaml", "--ranks", "4", "--timeout=3", "--json", "--ranks=2", "--timeout", "9", "--dim=n=1"]
    assert without_ranks(words) == ["execute", "g.yaml", "--json", "--dim=n=1"]


def test_files_of_a_rank() -> None:
    team = Team(RankInfo(2, 4, 0), None)
    assert team.words(["x=part_{rank}_of_{world_size}.npy"]) == ["x=part_2_of_4.npy"]
    assert team.folder("out") == "out/rank_2"
    assert Team(RankInfo(0, 4, 0), None).folder("out") == "out"
