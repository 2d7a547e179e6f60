"""The CSV interchange and the explanation of limits that are too low."""

from pathlib import Path

import pytest

from kgrun.runtime.memory.packing import (
    CsvError,
    Problem,
    explain_infeasible,
    pack,
    read_minimalloc_csv,
    write_minimalloc_csv,
)

DATA = Path(__file__).parents[3] / "data" / "packing"


def test_csv_round_trip_keeps_every_column():
    problem = Problem(
        [0, 2, 4], [2, 5, 9], [16, 8, 32], ["a", "b", "c"], alignment=[8, 8, 16], fixed={0: 64}, hint={1: 8},
        extra_intervals={0: [(6, 8)]}, space=[0, 0, 1],
    )  # fmt: skip
    again = read_minimalloc_csv(write_minimalloc_csv(problem))
    for name in ("lower", "size", "ids", "alignment", "fixed", "hint", "space"):
        assert getattr(again, name) == getattr(problem, name), name
    assert again.extra_intervals[0] == [(6, 8)]


def test_csv_of_a_plan_has_its_offsets(tmp_path):
    problem = read_minimalloc_csv(DATA / "input.12.csv")
    packing = pack(problem)
    file = tmp_path / "plan.csv"
    file.write_text(write_minimalloc_csv(problem, packing.offsets))
    again = read_minimalloc_csv(file)
    assert packing.height == 12
    assert pack(again).offsets == packing.offsets


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,lower,size\n", "line 1: no column upper"),
        ("id,lower,upper,size,colour\n", "line 1: unknown column colour"),
        ("id,lower,upper,size\na,0,1,2\nb,0,x,2\n", "line 3: upper is no whole number: 'x'"),
        ("id,lower,upper,size\na,0,1\n", "line 2: 3 cells"),
        ("id,lower,upper,size\na,3,1,2\n", "line 2: upper 1 is below lower 3"),
        ("id,lower,upper,size\na,0,1,-2\n", "line 2: size -2 is negative"),
        ("id,lower,upper,size\na,0,1,2\n\na,0,1,2\n", "line 4: id 'a' was used on line 2"),
        ("id,lower,upper,size,gaps\na,0,9,2,4\n", "line 2: a gap reads"),
        ("id,lower,upper,size,offset,alignment\na,0,9,2,4,8\n", "line 2: offset 4 is negative or no multiple"),
    ],
)
def test_csv_faults_name_the_line(text, message):
    with pytest.raises(CsvError) as caught:
        read_minimalloc_csv(text)
    assert message in str(caught.value)


def test_a_limit_below_the_live_bytes_names_a_minimal_set():
    problem = Problem([0, 1, 0, 5], [9, 3, 2, 9], [50, 40, 30, 5], ["w", "x", "y", "z"])
    why = explain_infeasible(problem, 100)
    assert why.proven
    assert [problem.name(i) for i in why.culprits] == ["w", "x", "y"]
    assert why.time == 1
    assert why.smallest_limit == why.lower_bound == 120
    assert why.change is not None
    assert problem.name(why.change.buffer) in why.advice
    sizes = [problem.sizes[i] for i in why.culprits]
    assert sum(sizes) > 100 >= sum(sizes) - min(sizes)


def test_a_limit_that_only_search_refutes_is_proven_too():
    # Live bytes never exceed 4, yet no plan of 4 exists (the classic wheel of two long and three short lives).
    problem = Problem([0, 0, 1, 2, 3, 1, 3], [1, 3, 2, 4, 5, 4, 4], [2, 2, 1, 1, 2, 1, 1])
    packing = pack(problem)
    why = explain_infeasible(problem, packing.height - 1)
    assert not why.feasible
    assert why.proven
    assert why.smallest_limit == packing.height
    assert why.culprits


def test_a_limit_that_fits_has_no_culprits():
    why = explain_infeasible(Problem([0], [1], [8]), 8)
    assert why.feasible
    assert why.culprits == ()
