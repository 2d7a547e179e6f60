"""Collectives between CPU ranks: real processes under mpiexec."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from kgrun.runtime.collectives import mpi
from kgrun.runtime.collectives.launch import launch

PROGRAM = str(Path(__file__).with_name("rank_program.py"))
_MPIEXEC = shutil.which("mpiexec") or shutil.which("mpiexec", path=str(Path(sys.executable).parent))
needs_mpi = pytest.mark.skipif(
    mpi.missing() is not None or _MPIEXEC is None, reason="needs mpi4py and mpiexec (pip install 'kgrun[mpi]')"
)
pytestmark = needs_mpi


@pytest.mark.parametrize("ranks", [2, 4])
def test_S84_S85_S86_every_collective_agrees_with_numpy(ranks: int) -> None:
    done = launch([sys.executable, PROGRAM], ranks, 60.0)
    assert done.error is None, done.err
    assert done.exits == dict.fromkeys(range(ranks), 0), done.err
