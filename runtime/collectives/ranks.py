"""Which rank of a job this process is, as the launchers of the field tell it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from kgrun.graphs.errors import UsageError
from kgrun.graphs.records import dataclass

STORE, TOKEN, LIMIT = "KGRUN_RANK_STORE", "KGRUN_RANK_TOKEN", "KGRUN_RANK_LIMIT"  # `kgrun execute --ranks` sets them
# Rank, size, rank on its host. torchrun's come first: who sets them inside an MPI job means them. SLURM's are those
# of a step: a batch script runs outside of any, though it sees how many tasks there will be.
_CONVENTIONS = (
    (("RANK",), ("WORLD_SIZE",), ("LOCAL_RANK",)),
    (("PMI_RANK", "PMIX_RANK"), ("PMI_SIZE",), ("MPI_LOCALRANKID",)),
    (("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_SIZE",), ("OMPI_COMM_WORLD_LOCAL_RANK",)),
    (("SLURM_PROCID",), ("SLURM_STEP_NUM_TASKS",), ("SLURM_LOCALID",)),
)
_OF_LAUNCHERS = ("PMI", "SLURM_", "TORCHELASTIC_", *(name for names in _CONVENTIONS for each in names for name in each))


@dataclass(frozen=True, slots=True)
class RankInfo:
    """One process of a job.

    Attributes:
        rank, size: this process's number, and how many there are.
        local_rank: its number among those of its host: the GPU that it takes (S4).
        store: host and port where the ranks meet; None where only MPI can tell.
        hosted: whether rank 0 opens the store itself, or a launcher has.
        token: what a process shows to be let in.
    """

    rank: int
    size: int
    local_rank: int
    store: tuple[str, int] | None = None
    hosted: bool = True
    token: str = ""


def ranks_from_environment(environ: Mapping[str, str] | None = None) -> RankInfo | None:
    """The rank that the environment says this process is, of a job of one too; None where no launcher says any.

    Raises:
        UsageError: KG278 for variables that contradict each other.
    """
    env = os.environ if environ is None else environ
    for rank_names, size_names, local_names in _CONVENTIONS:
        rank, size = _number(env, rank_names), _number(env, size_names)
        if rank is None or size is None:
            continue
        if not 0 <= rank < size:
            raise UsageError(f"{rank_names[0]}={rank} is no rank of {size_names[0]}={size}", code="KG278")
        local = _number(env, local_names)
        return RankInfo(rank, size, rank if local is None else local, *_store(env))
    return None


def outside_of_jobs(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of one who starts ranks of its own, whatever it is a rank of itself."""
    return {name: value for name, value in environ.items() if not name.startswith(_OF_LAUNCHERS)}


def as_rank(rank: int, size: int) -> dict[str, str]:
    """The variables that tell a process of one host who it is."""
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}


def _store(env: Mapping[str, str]) -> tuple[tuple[str, int] | None, bool, str]:
    if STORE in env:
        address, _, number = env[STORE].rpartition(":")
        return (address, int(number)), False, env.get(TOKEN, "")
    host, port = env.get("MASTER_ADDR", ""), _number(env, ("MASTER_PORT",))
    if not host or port is None:
        return None, True, ""
    # torchrun's agent listens at the port itself.
    taken = env.get("TORCHELASTIC_USE_AGENT_STORE", "").lower() == "true"
    job = env.get("TORCHELASTIC_RUN_ID") or env.get("SLURM_JOB_ID") or ""
    return (host, port + taken), True, env.get(TOKEN, job)


def _number(env: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = env.get(name)
        if text:
            if not text.isdigit():
                raise UsageError(f"{name}={text!r} is no number", code="KG278")
            return int(text)
    return None
