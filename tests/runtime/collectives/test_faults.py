"""Ranks that die, hang, differ: the others end in time and name the guilty one; nothing is left, running or written."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kgrun.runtime.collectives.launch import Launched, launch
from tests.runtime.collectives.test_mpi import needs_mpi

PROGRAM = str(Path(__file__).with_name("fault_program.py"))
ROOT = Path(__file__).parents[3]
pytestmark = needs_mpi

GRAPH: dict[str, Any] = {
    "kgrun": 1,
    "dims": {"n": 256},
    "tensors": {"x": {"role": "input", "dtype": "float32", "shape": ["n"], "init": {"uniform": [-1, 1]}}},
    "nodes": [
        {"name": "first", "op": "AllReduce", "inputs": ["x"], "outputs": ["a"]},
        {"name": "half", "op": "Add", "inputs": ["a", "x"], "outputs": ["b"]},
        {"name": "second", "op": "AllReduce", "inputs": ["b"], "outputs": ["c"]},
    ],
    "outputs": ["c"],
}
# Fault, exit code. Whoever is at fault is told from the others' side: the guilty rank may say nothing at all.
FAST = (("die-run", 6), ("hang-later", 9), ("other-graph", 6))
SLOW = (
    *(("die-meet", 6), ("die-greet", 6), ("die-start", 6), ("die-settle", 6), ("die-later", 6), ("die-wait", 6)),
    *(("die-end", 6), ("crash-run", 6), ("crash-later", 6), ("leave-run", 6), ("leave-greet", 6), ("leave-later", 6)),
    *(("hang-meet", 9), ("hang-greet", 9), ("hang-settle", 9), ("hang-run", 9), ("hang-end", 9)),
    *(("stop-run", 9), ("stop-greet", 9), ("throw-run", 6), ("throw-settle", 6), ("memory-later", 6)),
    *(("other-words", 6), ("other-shape", 6), ("other-step", 6), ("no-mpi", 6)),
)


def limit_of(fault: str) -> float:
    """Seconds that ranks wait: few only where the test waits them out, for a busy machine starts them slowly."""
    return 15.0 if fault.startswith(("hang", "stop")) else 60.0


def run(fault: str, rank: int, ranks: int, folder: Path, device: str = "cpu", **more: str) -> tuple[Launched, float]:
    """`kgrun execute` on ranks one of which has the fault."""
    (folder / "graph.json").write_text(json.dumps(GRAPH))
    other = json.loads(json.dumps(GRAPH))
    other["nodes"][1]["op"] = "Mul"
    (folder / "other.json").write_text(json.dumps(other))
    words = ["execute", str(folder / "graph.json"), "--device", device, "--iterations", "3"]
    words += ["--output-dir", str(folder / "out")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "KGRUN_TEST_MARK": str(folder), **more}
    started = time.monotonic()
    done = launch([sys.executable, PROGRAM, fault, str(rank), *words], ranks, limit_of(fault), env, mpi=device == "cpu")
    return done, time.monotonic() - started


def left_running(folder: Path) -> list[int]:
    """Processes that carry the mark of this test's job."""
    mark, found = f"KGRUN_TEST_MARK={folder}".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def check(fault: str, exit: int, rank: int, ranks: int, folder: Path) -> None:
    done, seconds = run(fault, rank, ranks, folder)
    assert done.error is not None, done.err
    told = (done.error.code, done.error.message, done.err)
    assert done.error.exit == exit, told
    assert done.error.details["rank"] == rank, told
    assert f"rank {rank}" in done.error.message, told
    for other, code in done.exits.items():
        if other != rank:
            assert code in (6, 9), (other, code, told)
    assert seconds < limit_of(fault) + (6 if exit == 9 else 0)  # the limit, and what ending takes; none is waited out
    assert left_running(folder) == []
    if not fault.endswith("-end"):  # by then all results were there
        assert not (folder / "out").exists()


@pytest.mark.parametrize(("fault", "exit"), FAST)
def test_a_fault_of_a_rank_ends_the_others_and_is_laid_to_it(fault: str, exit: int, tmp_path: Path) -> None:
    check(fault, exit, 1, 2, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "exit"), SLOW)
def test_every_fault_of_a_rank_ends_the_others_and_is_laid_to_it(fault: str, exit: int, tmp_path: Path) -> None:
    check(fault, exit, 1, 3, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "exit"), [("die-run", 6), ("hang-run", 9), ("die-greet", 6)])
def test_rank_0_may_be_the_guilty_one(fault: str, exit: int, tmp_path: Path) -> None:
    check(fault, exit, 0, 3, tmp_path)


def test_without_a_fault_all_is_well(tmp_path: Path) -> None:
    done, _ = run("none", 1, 2, tmp_path)
    assert done.error is None, done.err
    assert done.exits == {0: 0, 1: 0}
    assert left_running(tmp_path) == []
    assert sorted(str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.npy")) == [
        "c.npy",
        "rank_1/c.npy",
    ]
