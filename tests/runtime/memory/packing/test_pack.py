"""Packing: bounds, methods, certificates, every constraint, and the compiled code against the Python one."""

import random
from itertools import pairwise
from pathlib import Path

import pytest

from kgrun.runtime.memory.packing import (
    METHODS,
    Group,
    PackingError,
    PackOptions,
    Problem,
    ProblemError,
    chunk_sizes,
    lower_bound,
    pack,
    peak_section,
    read_minimalloc_csv,
    verify,
)
from kgrun.runtime.memory.packing import native as native_module
from tests.runtime.memory.packing.packing_oracle import any_problem, is_sound, optimum, plain_problem

DATA = Path(__file__).parents[3] / "data" / "packing"


@pytest.mark.parametrize("name", ["A.1048576", "C.1048576", "K.1048576", "G_1", "resnet50"])
def test_real_problems_are_packed_at_the_lower_bound(name):
    if not native_module.available():
        pytest.skip("needs the compiled search for its node budget")
    problem = read_minimalloc_csv(DATA / f"{name}.csv")
    packing = pack(problem)
    assert packing.height == packing.lower_bound == lower_bound(problem)
    assert packing.optimal
    assert verify(problem, packing.offsets) == []


@pytest.mark.parametrize("seed", range(40))
def test_search_finds_the_brute_force_optimum(seed):
    r = random.Random(seed)
    n = r.randint(2, 7)
    lower = [r.randint(0, 8) for _ in range(n)]
    upper = [low + r.randint(1, 5) for low in lower]
    size = [r.randint(1, 9) for _ in range(n)]
    packing = pack(Problem(lower, upper, size), PackOptions(node_limit=50_000, time_limit=30))
    assert packing.height == optimum(lower, upper, size)
    assert packing.optimal


@pytest.mark.parametrize("block", range(10))
def test_S60_random_problems_over_all_constraints(block):
    for seed in range(block * 50, block * 50 + 50):
        _check_any(seed)


@pytest.mark.slow
def test_S60_ten_thousand_random_problems():
    for seed in range(10_000):
        _check_any(seed)


def _check_any(seed):
    problem = any_problem(seed)
    packing = pack(problem, PackOptions(node_limit=300, time_limit=30))
    assert verify(problem, packing.offsets) == [], seed
    assert is_sound(problem, packing.offsets), seed
    assert packing.lower_bound <= packing.height, seed
    assert packing.height <= pack(problem, PackOptions(method="greedy-size")).height, seed
    r = random.Random(seed)
    for _ in range(3):  # a damaged plan: both verifiers agree on it
        damaged = list(packing.offsets)
        i = r.randrange(len(damaged))
        damaged[i] = max(0, damaged[i] + r.choice([-16, -8, -1, 1, 8, 16]))
        assert (verify(problem, damaged) == []) == is_sound(problem, damaged), seed


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_sound_and_deterministic(method):
    for seed in range(30):
        problem = plain_problem(seed)
        options = PackOptions(method=method, node_limit=500)
        packing = pack(problem, options)
        assert verify(problem, packing.offsets) == []
        assert packing.offsets == pack(problem, options).offsets
        assert packing.height >= packing.lower_bound
        if method == "none":
            assert packing.height == sum(problem.occupied_column())


@pytest.mark.skipif(not native_module.available(), reason="the extension is not built")
@pytest.mark.parametrize("method", [m for m in METHODS if m != "none"])
def test_compiled_and_python_plans_are_the_same(method, monkeypatch):
    for seed in range(25):
        problem = plain_problem(seed) if seed % 2 else any_problem(seed)
        options = PackOptions(method=method, node_limit=300, time_limit=60)
        monkeypatch.setenv("KGRUN_NATIVE", "1")
        compiled = pack(problem, options)
        monkeypatch.setenv("KGRUN_NATIVE", "0")
        python = pack(problem, options)
        assert compiled.offsets == python.offsets, seed
        assert (compiled.height, compiled.lower_bound, compiled.nodes) == (
            python.height, python.lower_bound, python.nodes,
        )  # fmt: skip
        assert verify(problem, python.offsets) == []


def test_S57_contiguous_group_keeps_order_and_gaps():
    problem = Problem(
        [0, 0, 0, 0], [4, 4, 4, 4], [100, 60, 30, 512], alignment=16, groups=[Group((2, 0, 1), 512, 0, 512)]
    )
    packing = pack(problem)
    first, second, third = packing.offsets[2], packing.offsets[0], packing.offsets[1]
    assert (second, third) == (first + 32, first + 32 + 112)
    assert first >= 512
    assert verify(problem, packing.offsets) == []
    moved = packing.offsets[:]
    moved[1] += 16
    assert "group" in {v.kind for v in verify(problem, moved)}


def test_S57_a_buffer_in_two_groups_is_refused():
    with pytest.raises(ProblemError, match="two groups"):
        Problem([0, 0, 0], [1, 1, 1], [4, 4, 4], groups=[(0, 1), (1, 2)])


def test_S58_conflict_relation_replaces_lives():
    lower, upper, size = [0, 1, 2], [1, 2, 3], [10, 20, 30]
    packing = pack(Problem(lower, upper, size, conflicts=[(0, 2)]))
    assert packing.height == 40
    assert packing.lower_bound == 40
    assert pack(Problem(lower, upper, size)).height == 30
    assert pack(Problem(lower, upper, size, extra_conflicts=[(0, 1), (1, 2)])).height == 50


def test_S59_somas_appends_lifelong_buffers_on_top():
    problem = Problem([0, 0, 3], [3, 3, 6], [64, 32, 96], persistent=[1])
    packing = pack(problem, PackOptions(method="somas"))
    assert packing.offsets[1] == 96
    assert packing.height == 128
    assert "many objects" in packing.order or "single object" in packing.order


def test_S61_bounds_count_persistent_buffers_everywhere():
    problem = Problem([0, 5, 2], [4, 9, 3], [10, 20, 5], persistent=[2])
    assert lower_bound(problem) == 25
    peak = peak_section(problem)
    assert (peak.start, peak.end, peak.nbytes, peak.buffers) == (5, 9, 25, (1, 2))


def test_S65_best_fit_appends_rather_than_grow_the_last_hole():
    problem = Problem([0, 0, 2], [9, 2, 4], [10, 10, 15])
    assert pack(problem, PackOptions(method="best-fit")).height == 35
    assert pack(problem, PackOptions(method="first-fit")).height == 25


def test_an_evicted_gap_is_a_hole_another_buffer_uses():
    whole = Problem([0, 4], [10, 6], [64, 64])
    evicted = Problem([0, 4], [4, 6], [64, 64], extra_intervals={0: [(6, 10)]})
    assert pack(whole).height == 128
    assert pack(evicted).height == 64
    assert pack(evicted).optimal


def test_aliases_share_bytes_and_unite_lives():
    problem = Problem([0, 3, 3], [3, 6, 6], [64, 16, 64], aliases={1: (0, 32)})
    packing = pack(problem)
    assert packing.offsets[1] == packing.offsets[0] + 32
    assert packing.height == 128
    with pytest.raises(ProblemError, match="lie inside"):
        Problem([0, 0], [1, 1], [4, 8], aliases={1: (0, 0)})
    with pytest.raises(ProblemError, match="cycle"):
        pack(Problem([0, 0], [1, 1], [4, 4], aliases={0: (1, 0), 1: (0, 0)}))


def test_fixed_offsets_are_kept_and_clashes_are_named():
    problem = Problem([0, 0], [2, 2], [10, 10], fixed={0: 5}, ids=["a", "b"])
    packing = pack(problem)
    assert packing.offsets[0] == 5
    assert packing.height == 25
    with pytest.raises(ProblemError, match="a and b overlap"):
        pack(Problem([0, 0], [2, 2], [10, 10], fixed={0: 5, 1: 9}, ids=["a", "b"]))


def test_max_chunk_keeps_buffers_off_the_borders():
    problem = Problem([0] * 4, [2] * 4, [60, 60, 30, 250], max_chunk=100)
    packing = pack(problem)
    assert verify(problem, packing.offsets) == []
    sizes = [s for _, s in chunk_sizes(packing.offsets, problem.sizes, 100)]
    assert 250 <= max(sizes) <= 300
    assert sum(s > 100 for s in sizes) == 1


def test_spaces_are_packed_apart_and_capacities_checked():
    problem = Problem([0, 0, 0], [1, 1, 1], [10, 20, 30], space=[0, 1, 1], capacity={1: 40})
    packing = pack(problem)
    assert dict(packing.heights) == {0: 10, 1: 50}
    assert not packing.fits
    assert {v.kind for v in verify(problem, packing.offsets)} == {"capacity"}


def test_alignments_hold_and_sizes_are_padded():
    problem = Problem([0, 0, 0], [1, 1, 1], [5, 3, 7], alignment=[8, 4, 16])
    packing = pack(problem)
    assert all(o % a == 0 for o, a in zip(packing.offsets, (8, 4, 16), strict=True))
    assert packing.height == packing.lower_bound == 28
    assert pack(Problem([0, 0], [1, 1], [5, 3], alignment=8, pad=False)).height == 11


def test_hints_order_a_search_for_gaps():
    problem = Problem([0, 1, 2], [2, 3, 4], [5, 6, 7], hint={0: 7, 1: 0}, extra_conflicts=[(0, 2)])
    assert verify(problem, pack(problem).offsets) == []


def test_capacity_stops_the_search_early():
    problem = read_minimalloc_csv(DATA / "A.1048576.csv")
    packing = pack(problem, PackOptions(capacity=2 * lower_bound(problem)))
    assert packing.nodes == 0
    assert packing.fits


def test_every_kind_of_column_is_taken():
    from array import array

    numpy = pytest.importorskip("numpy")
    rows = [0, 1], [2, 3], [4, 5]
    plans = [
        pack(Problem(*rows)),
        pack(Problem(*(array("q", c) for c in rows))),
        pack(Problem(*(numpy.array(c) for c in rows))),
        pack(Problem(*(numpy.array(c, dtype=numpy.int32) for c in rows))),
    ]
    assert all(a.offsets == b.offsets for a, b in pairwise(plans))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"size": [-1, 1]}, "negative size"),
        ({"upper": [0, -1]}, "before it starts"),
        ({"size": [1]}, "entries"),
        ({"alignment": 0}, "alignment must be"),
        ({"size": [1 << 61, 1]}, "2\\^60"),
        ({"fixed": {0: 3}, "alignment": 2}, "no multiple"),
        ({"fixed": {9: 3}}, "names buffer 9"),
        ({"size": [1.5, 2]}, "64-bit integers"),
        ({"max_chunk": 3, "alignment": 2}, "multiple of every alignment"),
    ],
)
def test_bad_problems_are_refused(fields, text):
    with pytest.raises(ProblemError, match=text):
        Problem(**{"lower": [0, 0], "upper": [1, 1], "size": [1, 1], **fields})


def test_unknown_methods_and_empty_problems():
    with pytest.raises(PackingError, match="no method"):
        pack(Problem([], [], []), PackOptions(method="best"))
    empty = pack(Problem([], [], []))
    assert (empty.height, empty.optimal, len(empty.offsets)) == (0, True, 0)


def test_alignments_that_do_not_divide_each_other():
    r = random.Random(4)
    lower = [r.randint(0, 30) for _ in range(60)]
    upper = [low + r.randint(1, 9) for low in lower]
    for choices in ((4, 6), (3, 5, 7), (1, 1000, 999)):
        problem = Problem(lower, upper, [r.randint(1, 50) for _ in lower], alignment=[r.choice(choices) for _ in lower])
        for method in ("auto", "skyline"):
            assert verify(problem, pack(problem, PackOptions(method=method, node_limit=300)).offsets) == []
