"""Whoever started ranks may be ended at any moment, in any way: none of them stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runtime.collectives.test_faults import GRAPH, left_running
from tests.runtime.collectives.test_mpi import needs_mpi

ROOT = Path(__file__).resolve().parents[2]
pytestmark = needs_mpi
ENDED = {"SIGKILL": -9, "SIGTERM": -15, "SIGINT": 130, "SIGHUP": -1}


def gone(folder: Path, seconds: float = 10.0) -> bool:
    """Whether all processes of the job end by themselves."""
    until = time.monotonic() + seconds
    while left_running(folder):
        if time.monotonic() > until:
            for pid in left_running(folder):
                os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.05)
    return True


def job(folder: Path, *before: str, after: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A job of two ranks that runs for minutes."""
    (folder / "graph.json").write_text(json.dumps(GRAPH))
    words = ["execute", str(folder / "graph.json"), "--device", "cpu", "--iterations", "10000000", *after]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    return subprocess.Popen(
        [*before, sys.executable, "-m", "kgrun.cli", *words],
        env=env | {"KGRUN_TEST_MARK": str(folder)}, start_new_session=True, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def wait_for(folder: Path, processes: int) -> None:
    """Until so many are there."""
    until = time.monotonic() + 20
    while len(left_running(folder)) < processes:
        assert time.monotonic() < until, left_running(folder)
        time.sleep(0.02)


# Of a job of two, 3 processes: mpiexec is there and nothing else; 7: holders and ranks are too.
@pytest.mark.parametrize(("how", "processes"), [("SIGKILL", 3), ("SIGKILL", 7), ("SIGTERM", 7)])
def test_when_kgrun_itself_is_ended_its_ranks_are(how: str, processes: int, tmp_path: Path) -> None:
    check_ended(how, processes, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("processes", range(2, 8))
@pytest.mark.parametrize("how", ENDED)
def test_at_any_moment_and_in_any_way(how: str, processes: int, tmp_path: Path) -> None:
    check_ended(how, processes, tmp_path)


def check_ended(how: str, processes: int, tmp_path: Path) -> None:
    launcher = job(tmp_path, after=("--ranks", "2"))
    wait_for(tmp_path, processes)
    launcher.send_signal(getattr(signal, how))
    try:
        out, err = launcher.communicate(timeout=40)
    finally:
        left = not gone(tmp_path)
    assert launcher.returncode == ENDED[how], (out, err)
    assert "Traceback" not in err
    assert not left


_SLOW = [pytest.param(how, marks=pytest.mark.slow) for how in ("SIGTERM", "SIGINT")]


@pytest.mark.parametrize("how", ["SIGKILL", *_SLOW])
def test_when_mpiexec_is_ended_the_ranks_are(how: str, tmp_path: Path) -> None:
    found = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    assert found is not None
    launcher = job(tmp_path, found, "-n", "2")
    wait_for(tmp_path, 6)
    launcher.send_signal(getattr(signal, how))
    with contextlib.suppress(subprocess.TimeoutExpired):
        launcher.communicate(timeout=40)
    assert gone(tmp_path)
