"""What a launcher makes of what it heard; real jobs are in test_faults."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from kgrun.graphs.errors import DeviceFault, TimeoutExpired
from kgrun.runtime.collectives.launch import Launched, _Job, launch
from kgrun.runtime.collectives.ranks import outside_of_jobs
from kgrun.runtime.collectives.store import BYE, FAILED, GONE, HELLO, STATUS, Store

HELLOS: dict[str, Any] = {HELLO: {"pid": 1, "holder": 1}}
LATE = {FAILED: TimeoutExpired("rank 1 did not come", code="KG904", details={"rank": 1}).to_json()}
HEARD_OF = {FAILED: DeviceFault("rank 1 failed or did not answer", code="KG620", details={"rank": 1}).to_json()}
OWN = {FAILED: DeviceFault("stray pointer", code="KG601").to_json()}


@pytest.fixture
def job() -> Iterator[_Job]:
    store = Store("127.0.0.1", 0, "secret", 3)
    yield _Job(store, 3, 10.0)
    store.close()


@pytest.mark.parametrize(
    ("said", "code", "exit", "guilty"),
    [
        ([HEARD_OF, {}, LATE], "KG904", 9, 1),  # whoever was heard first
        ([HEARD_OF, {GONE: True, STATUS: 9}, LATE], "KG904", 9, 1),  # ended by its holder at the limit
        ([{BYE: 0}, {GONE: True, STATUS: 9}, {BYE: 0}], "KG904", 9, 1),
        ([HEARD_OF, {GONE: True, STATUS: -9}, LATE], "KG620", 6, 1),
        ([HEARD_OF, OWN, HEARD_OF], "KG620", 6, 1),
        ([{BYE: 0}, {STATUS: 1}, {BYE: 0}], "KG620", 6, 1),  # failed before it could say why
    ],
)
def test_the_guilty_rank_and_the_exit(job: _Job, said: list[Any], code: str, exit: int, guilty: int) -> None:
    heard = {rank: {**HELLOS, **each} for rank, each in enumerate(said)}
    error = job.verdict(heard, "")
    assert error is not None
    assert (error.code, error.exit, error.details["rank"]) == (code, exit, guilty), error.message


def test_all_is_well_where_all_said_good_bye(job: _Job) -> None:
    assert job.verdict({rank: {**HELLOS, BYE: 0} for rank in range(3)}, "") is None


def test_processes_that_end_before_they_meet_are_told_of_with_their_words() -> None:
    done: Launched = launch([sys.executable, "-c", "raise SystemExit('no such module')"], 2, 20.0, mpi=False)
    assert isinstance(done.error, DeviceFault)
    assert "ended before it met the others" in done.error.message
    assert "no such module" in str(done.error.help)


def test_ranks_inside_of_another_job_do_not_see_it() -> None:
    outer = {"RANK": "3", "WORLD_SIZE": "8", "PMI_RANK": "1", "PMIX_NAMESPACE": "n", "SLURM_PROCID": "2", "HOME": "/h"}
    more = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_MCA_btl": "tcp", "TORCHELASTIC_RUN_ID": "j", "MASTER_ADDR": "host"}
    assert outside_of_jobs(outer | more) == {"HOME": "/h", "OMPI_MCA_btl": "tcp", "MASTER_ADDR": "host"}
