"""`kgrun` as a rank that a launcher has started, in its environment: `launched_as.py LAUNCHER PORT WORDS…`.

Under mpiexec the rank moves data through MPI, whose own variables are hidden from kgrun until it starts MPI. Without,
FAKE_RANK and FAKE_SIZE say who this is. DIES names a rank that ends by SIGKILL when it is about to run.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from kgrun.cli.boundary import guarded
from kgrun.runtime import measure
from kgrun.runtime.collectives import mpi


def torchrun(rank: int, size: int, port: int) -> dict[str, str]:
    """As torch 2's elastic agent starts workers; it listens at the port itself."""
    whole, one = str(size), "1"
    return {
        "LOCAL_RANK": str(rank), "RANK": str(rank), "GROUP_RANK": "0", "ROLE_RANK": str(rank), "ROLE_NAME": "default",
        "LOCAL_WORLD_SIZE": whole, "WORLD_SIZE": whole, "GROUP_WORLD_SIZE": one, "ROLE_WORLD_SIZE": whole,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": one, "OMP_NUM_THREADS": one,
    }  # fmt: skip


def srun(rank: int, size: int, port: int) -> dict[str, str]:
    """As SLURM starts the tasks of a step on one node; the batch script exported MASTER_ADDR and MASTER_PORT."""
    whole = str(size)
    return {
        "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0", "SLURM_JOB_ID": "4711",
        "SLURM_NTASKS": whole, "SLURM_STEP_NUM_TASKS": whole, "SLURM_STEP_TASKS_PER_NODE": whole, "SLURM_STEP_ID": "0",
        "SLURM_NNODES": "1", "SLURM_STEP_NODELIST": "node1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip


def openmpi(rank: int, size: int, port: int) -> dict[str, str]:
    """As Open MPI's mpirun starts processes: only MPI knows where the others are."""
    whole = str(size)
    return {
        "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": whole, "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": whole, "OMPI_COMM_WORLD_NODE_RANK": str(rank), "OMPI_UNIVERSE_SIZE": whole,
        "PMIX_RANK": str(rank), "PMIX_NAMESPACE": "prterun-node1-1@1", "OMPI_APP_CTX_NUM_PROCS": whole,
    }  # fmt: skip


LAUNCHERS = {each.__name__: each for each in (torchrun, srun, openmpi)}


def hide(environ: Any) -> dict[str, str]:
    """Take out what the true launcher set."""
    names = [name for name in environ if name.startswith(("PMI", "MPI_", "HYDRA", "MPIR_"))]
    return {name: environ.pop(name) for name in names}


def die() -> None:
    """End at once."""
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    launcher, port, *words = sys.argv[1:]
    hidden = hide(os.environ)
    who = int(hidden.get("PMI_RANK") or os.environ["FAKE_RANK"])
    size = int(hidden.get("PMI_SIZE") or os.environ["FAKE_SIZE"])
    os.environ |= LAUNCHERS[launcher](who, size, int(port))
    start = mpi.start

    def with_its_variables() -> Any:
        """MPI finds what mpiexec left for it, and nothing of another's."""
        hide(os.environ)
        os.environ.update(hidden)
        return start()

    mpi.start = with_its_variables
    if os.environ.get("DIES") == str(who):
        measure.Runner.measure = lambda *_, **__: die()  # type: ignore[method-assign,assignment]
    sys.exit(guarded(words, own_process=True))
