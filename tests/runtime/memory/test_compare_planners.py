"""`compare_planners`: a verified row for each planner on the same problem."""

from __future__ import annotations

import pytest

from kgrun.graphs.errors import UsageError
from kgrun.runtime.memory.compare_planners import compare_planners
from kgrun.runtime.memory.packing.problem import Problem
from kgrun.runtime.memory.plan import PLANNERS
from tests.support import node, program, tensor

# Greedy by size puts the two long ones apart; the bound is 12.
PROBLEM = Problem(lower=[0, 2, 0, 3], upper=[3, 5, 2, 5], size=[4, 8, 8, 4])


def test_S61_rows_have_height_ratio_time_and_proof() -> None:
    rows = compare_planners(PROBLEM, ("auto", "greedy-size", "none"))
    assert [row.planner for row in rows] == ["auto", "greedy-size", "none"]
    assert {row.lower_bound for row in rows} == {12}
    best, greedy, none = rows
    assert (best.height, best.ratio, best.optimal) == (12, 1.0, True)
    assert best.height <= greedy.height <= none.height == 24
    assert (none.ratio, none.optimal) == (2.0, False)
    assert all(row.seconds >= 0 and row.cpu_seconds >= 0 for row in rows)


def test_all_planners_on_a_program() -> None:
    made = program([node(f"n{i}", [f"t{i}"], [f"t{i + 1}"]) for i in range(5)], {"t0": tensor("input")}, outputs=["t5"])
    rows = compare_planners(made)
    assert [row.planner for row in rows] == [*PLANNERS, "pool"]
    heights = {row.planner: row.height for row in rows}
    assert heights["auto"] == rows[0].lower_bound == 1024
    assert heights["none"] == 2048
    assert min(heights.values()) == heights["auto"]


def test_an_empty_problem_has_ratio_one() -> None:
    (row,) = compare_planners(Problem(lower=[], upper=[], size=[]), ("auto",))
    assert (row.height, row.ratio, row.optimal) == (0, 1.0, True)


def test_an_unknown_planner_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        compare_planners(PROBLEM, ("auto", "magic"))
    assert caught.value.code == "KG201"
