"""Verdicts on times: how often chance is taken for a change, and a change for chance."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from kgrun.runtime.diff import Limits, Verdict
from kgrun.runtime.diff.noise import _at_least, p_longer, rank_p, stands_apart, summary_p, tail_p, unsteadiness
from kgrun.runtime.diff.rows import Subject, time_row

from . import samples as made

PAIRS = 1000
NOISES = {
    "lognormal 3 %": made.lognormal(0.03),
    "lognormal 10 %": made.lognormal(0.1),
    "lognormal 30 %": made.lognormal(0.3),
    "two modes, half": made.bimodal(0.2, 0.5),
    "two modes, third": made.bimodal(0.1, 0.3),
    "spikes": made.spikes(0.1),
    "ramp": made.ramp(0.1),
    "waves": made.waves(0.1),
    "correlated 0.7": made.correlated(0.7, 0.05),
    "correlated 0.9": made.correlated(0.9, 0.03),
}


def verdict(
    a: made.Array, b: made.Array, *, samples: bool = True, alpha: float = 0.002, metric: str = "median"
) -> Verdict:
    limits = Limits(bound=0.05, floor_ns=0, alpha=alpha, metrics=(metric,))
    sides = made.times(a, samples=samples), made.times(b, samples=samples)
    return time_row(Subject("kernel", "k"), metric, *sides, ("events", "events"), limits).verdict


@pytest.mark.parametrize("samples", [True, False], ids=["samples", "summaries"])
@pytest.mark.parametrize("count", [30, 100])
@pytest.mark.parametrize("noise", NOISES)
def test_equal_runs_are_no_change(noise: str, count: int, samples: bool) -> None:
    """Fewer than 1 % of 1,000 pairs of one distribution are called slower, and as few faster."""
    rng = np.random.default_rng(20261130)
    make = NOISES[noise]
    found = [verdict(make(rng, count), make(rng, count), samples=samples) for _ in range(PAIRS)]
    assert found.count(Verdict.regressed) < PAIRS / 100
    assert found.count(Verdict.improved) < PAIRS / 100


@pytest.mark.parametrize("alpha", [0.002, 0.002 / 66], ids=["one row", "66 rows"])
def test_ten_percent_at_three_percent_noise_is_found(alpha: float) -> None:
    """At least 99 % of 1,000 shifts, slower and faster, with 30 samples."""
    rng = np.random.default_rng(1)
    make = made.lognormal(0.03)
    slower = [verdict(make(rng, 30), 1.1 * make(rng, 30), alpha=alpha) for _ in range(PAIRS)]
    faster = [verdict(1.1 * make(rng, 30), make(rng, 30), alpha=alpha) for _ in range(PAIRS)]
    assert slower.count(Verdict.regressed) >= 0.99 * PAIRS
    assert faster.count(Verdict.improved) >= 0.99 * PAIRS


@pytest.mark.parametrize(
    ("shift", "cv", "count", "samples", "least"),
    [
        (1.1, 0.01, 10, True, 0.95),
        (1.15, 0.05, 30, True, 0.99),
        (1.3, 0.1, 30, True, 0.99),
        (1.1, 0.01, 10, False, 0.99),
    ],
)
def test_other_shifts_are_found(shift: float, cv: float, count: int, samples: bool, least: float) -> None:
    rng = np.random.default_rng(2)
    make = made.lognormal(cv)
    found = [verdict(make(rng, count), shift * make(rng, count), samples=samples) for _ in range(500)]
    assert found.count(Verdict.regressed) >= least * 500


def test_a_change_within_the_bound_is_none() -> None:
    rng = np.random.default_rng(3)
    make = made.lognormal(0.001)
    assert verdict(make(rng, 100), 1.04 * make(rng, 100)) is Verdict.unchanged
    assert verdict(make(rng, 100), 1.06 * make(rng, 100)) is Verdict.regressed


@pytest.mark.parametrize(("n", "m"), [(3, 4), (5, 5), (4, 6)])
def test_rank_test_is_exact(n: int, m: int) -> None:
    """Against all ways in which n + m ranks can fall to the two sides."""
    ways = [
        sum(b > a for a in set(range(n + m)) - set(chosen) for b in chosen)
        for chosen in itertools.combinations(range(n + m), m)
    ]
    rng = np.random.default_rng(4)
    for _ in range(20):
        mixed = rng.permutation(n + m).tolist()
        a, b = mixed[:n], mixed[n:]
        above = sum(y > x for x in a for y in b)
        assert rank_p(a, b) == pytest.approx(sum(u >= above for u in ways) / len(ways))


def test_rank_test_of_many_is_near_the_exact_one() -> None:
    a, b = list(range(0, 90, 3)), list(range(13, 103, 3))
    above = sum(y > x for x in a for y in b)
    assert rank_p(a, b) == pytest.approx(_at_least(30, 30)[above], rel=0.05)


def test_ties_speak_against_a_change() -> None:
    assert rank_p([5] * 10, [5] * 10) == 1.0
    assert rank_p([5] * 10, [6] * 10) == pytest.approx(1 / math.comb(20, 10))


def test_tail_test_is_fishers() -> None:
    # 10 of 200 lie above the common 95th percentile, all in b: C(100, 10) ÷ C(200, 10).
    a, b = list(range(100)), [*range(90), *range(1000, 1010)]
    assert tail_p(a, b, 0.95) == pytest.approx(math.comb(100, 10) / math.comb(200, 10))
    assert tail_p([7] * 50, [7] * 50, 0.95) == 1.0


def test_tail_test_takes_what_a_minute_of_short_runs_gives() -> None:
    # Half of the 30,000 longest times on each side: by symmetry (1 + P(just so)) ÷ 2.
    many = range(300_000)
    just_so = 1 / math.sqrt(2 * math.pi * 30_000 / 4 * 0.95)
    assert tail_p(many, many, 0.95) == pytest.approx((1 + just_so) / 2, rel=1e-6)


def test_p95_is_judged_by_the_longest_times() -> None:
    rng = np.random.default_rng(5)
    make = made.lognormal(0.02)
    a, b = make(rng, 400), make(rng, 400)
    slow = b * np.where(np.arange(400) % 10 == 0, 1.5, 1)
    assert verdict(a, slow, metric="p95") is Verdict.regressed
    assert verdict(a, slow) is Verdict.unchanged
    assert verdict(a, b, metric="p95") is Verdict.unchanged
    assert verdict(a, slow, metric="p95", samples=False) is Verdict.incomparable


def test_too_few_samples_say_nothing() -> None:
    ones = np.ones(4)
    assert verdict(ones, 2 * ones) is Verdict.incomparable
    assert p_longer(made.times(ones), made.times(np.ones(100)), "median") is None


def test_a_slow_phase_within_one_run_is_no_change() -> None:
    """Two fifths of B are slow enough to lift its median's rank, not its every block."""
    a = np.linspace(0.99, 1.01, 50)
    b = np.concatenate([np.linspace(0.99, 1.01, 20), np.linspace(1.19, 1.21, 30)])
    assert not stands_apart(made.times(a), made.times(b), "median")
    assert verdict(a, b) is Verdict.unchanged


def test_unsteadiness_sees_drift_and_not_scatter() -> None:
    rng = np.random.default_rng(6)
    scatter = np.mean([unsteadiness(made.times(made.lognormal(0.03)(rng, 30))) for _ in range(200)])
    drift = np.mean([unsteadiness(made.times(np.linspace(0.95, 1.05, 30))) for _ in range(10)])
    assert scatter < 0.01
    assert 0.05 < drift < 0.08


def test_summaries_of_equal_times_differ_surely() -> None:
    a, b = made.times(np.ones(10), samples=False), made.times(1.2 * np.ones(10), samples=False)
    assert summary_p(a.stats, b.stats) < 1e-9
    assert summary_p(b.stats, a.stats) > 0.999
    assert summary_p(a.stats, a.stats) == pytest.approx(0.5)
