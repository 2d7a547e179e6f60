"""The plan cache (S62, U6): a hit only where the entry holds for the problem; everything else is a quiet miss."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from kgrun.runtime.memory.packing.problem import Group, Problem
from kgrun.runtime.memory.packing.result import Packing, PackOptions
from kgrun.runtime.memory.plan_cache import load, pack_cached, plan_key, store

PROBLEM = Problem(lower=[0, 1, 2], upper=[2, 3, 4], size=[512, 1024, 512], ids=["a", "b", "c"], alignment=512)
OPTIONS = PackOptions(time_limit=1.0)
PACKING = Packing(array("q", [0, 512, 0]), 1536, 1536, True, "skyline", "TAW", 7, 0.5, heights={0: 1536})


class Solver:
    """Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, problem: Problem, options: PackOptions) -> Packing:
        self.calls += 1
        return PACKING


def test_S62_second_call_is_a_hit(tmp_path: Path) -> None:
    solver = Solver()
    first = pack_cached(PROBLEM, OPTIONS, solver, tmp_path / "new" / "folder", kernels=2000)
    second = pack_cached(PROBLEM, OPTIONS, solver, tmp_path / "new" / "folder", kernels=2000)
    assert (first.status, second.status, solver.calls) == ("miss", "hit", 1)
    assert second.packing == replace(PACKING, seconds=0.0)
    assert second.note is not None
    assert "verified" in second.note


def test_S62_only_large_graphs(tmp_path: Path) -> None:
    solver = Solver()
    outcome = pack_cached(PROBLEM, OPTIONS, solver, tmp_path, kernels=1999)
    assert (outcome.status, outcome.note, list(tmp_path.iterdir())) == ("off", None, [])
    assert pack_cached(PROBLEM, OPTIONS, solver, None, kernels=10**6).status == "off"
    assert pack_cached(PROBLEM, OPTIONS, solver, tmp_path, kernels=3, minimum=3).status == "miss"


@pytest.mark.parametrize(
    "other",
    [
        replace(PROBLEM, size=[512, 1024, 513]),
        replace(PROBLEM, lower=[0, 0, 2]),
        replace(PROBLEM, upper=[2, 3, 5]),
        replace(PROBLEM, alignment=256),
        replace(PROBLEM, alignment=[512, 512, 512]),
        replace(PROBLEM, groups=[Group((0, 1))]),
        replace(PROBLEM, groups=[Group((0, 1), between=512)]),
        replace(PROBLEM, fixed={0: 512}),
        replace(PROBLEM, aliases={2: (1, 0)}),
        replace(PROBLEM, conflicts=[(0, 1)]),
        replace(PROBLEM, extra_conflicts=[(0, 2)]),
        replace(PROBLEM, persistent=[1]),
        replace(PROBLEM, max_chunk=4096),
        replace(PROBLEM, pad=False),
        replace(PROBLEM, space=[0, 0, 1]),
        replace(PROBLEM, extra_intervals={0: [(3, 4)]}),
        replace(PROBLEM, capacity={0: 4096}),
        replace(PROBLEM, hint={0: 512}),
    ],
)
def test_S62_every_part_of_the_problem_decides_the_key(other: Problem) -> None:
    assert plan_key(other, OPTIONS) != plan_key(PROBLEM, OPTIONS)


def test_S62_options_decide_the_key_and_names_do_not() -> None:
    keys = {
        plan_key(PROBLEM, o)
        for o in (OPTIONS, PackOptions(method="exact"), PackOptions(capacity=9), PackOptions(seed=1))
    }
    assert len(keys) == 4
    assert plan_key(replace(PROBLEM, ids=None), OPTIONS) == plan_key(PROBLEM, OPTIONS)


def _entry(folder: Path) -> Path:
    (path,) = folder.glob("plan-*.json")
    return path


def _edited(path: Path, **changes: object) -> None:
    content = json.loads(path.read_text())
    content["plan"] |= changes
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"format": 1}', "[" * 100_000, "\0", '{"format": 1, "plan": 3}']
)
def test_S62_a_broken_file_is_ignored_and_rewritten(tmp_path: Path, text: str) -> None:
    solver = Solver()
    pack_cached(PROBLEM, OPTIONS, solver, tmp_path, kernels=2000)
    _entry(tmp_path).write_text(text)
    again = pack_cached(PROBLEM, OPTIONS, solver, tmp_path, kernels=2000)
    assert (again.status, solver.calls) == ("stale", 2)
    assert pack_cached(PROBLEM, OPTIONS, solver, tmp_path, kernels=2000).status == "hit"


def test_S62_an_edited_entry_does_not_pass_its_digest(tmp_path: Path) -> None:
    key = plan_key(PROBLEM, OPTIONS)
    store(tmp_path, key, PACKING)
    assert load(tmp_path, key) is not None
    _edited(_entry(tmp_path), offsets=[0, 0, 0])
    assert load(tmp_path, key) is None


def test_S62_an_entry_of_another_key_is_none(tmp_path: Path) -> None:
    store(tmp_path, "a" * 64, PACKING)
    _entry(tmp_path).rename(tmp_path / f"plan-{'b' * 40}.json")
    assert load(tmp_path, "b" * 64) is None


@pytest.mark.parametrize(
    "wrong",
    [
        replace(PACKING, offsets=array("q", [0, 0, 0])),
        replace(PACKING, offsets=array("q", [0, 512])),
        replace(PACKING, offsets=array("q", [0, 512, 1])),
        replace(PACKING, height=1024),
        replace(PACKING, lower_bound=4096),
    ],
)
def test_U6_S62_a_wrong_plan_is_never_used(tmp_path: Path, wrong: Packing) -> None:
    """A whole, well-formed entry that does not hold for the problem: verified, refused, replaced, no error."""
    store(tmp_path, plan_key(PROBLEM, OPTIONS), wrong)
    solver = Solver()
    outcome = pack_cached(PROBLEM, OPTIONS, solver, tmp_path, kernels=2000)
    assert (outcome.status, outcome.packing, solver.calls) == ("stale", PACKING, 1)
    assert outcome.note is not None
    assert "planned again" in outcome.note
    assert pack_cached(PROBLEM, OPTIONS, solver, tmp_path, kernels=2000).status == "hit"


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    outcome = pack_cached(PROBLEM, OPTIONS, Solver(), blocked, kernels=2000)
    assert outcome.status == "miss"
    assert outcome.note is not None
    assert "cannot write" in outcome.note
    assert not store(blocked, "c" * 64, PACKING)


def test_nothing_temporary_is_left(tmp_path: Path) -> None:
    store(tmp_path, "d" * 64, PACKING)
    assert [p.name for p in tmp_path.iterdir()] == [f"plan-{'d' * 40}.json"]
