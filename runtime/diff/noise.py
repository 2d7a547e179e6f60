"""Whether one set of times is longer than another by more than the noise of both: ranks, blocks, drift."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from statistics import NormalDist, median

from kgrun.runtime.diff.document import Times
from kgrun.runtime.report import TimeStats

FEWEST = 5  # times of one side; fewer say nothing of their noise
EXACT = 20  # up to so many times a side the rank test is exact
FEW = 15  # fewer times than these leave slow changes uncertain
DRIFT_WEIGHT = 0.75  # set by simulation, as are the sizes of blocks: see docs/diff.md
TAILS = {"p95": 0.95, "p99": 0.99}

_NORMAL = NormalDist()


def p_longer(a: Times, b: Times, metric: str) -> float | None:
    """Probability that chance alone makes `b` as much longer than `a` as it is; None where that cannot be told.

    From samples where both have them, in the order in which they were taken; from the summaries otherwise.
    """
    if min(a.stats.count, b.stats.count) < FEWEST:
        return None
    if a.samples and b.samples:
        if metric in TAILS:
            return tail_p(a.samples, b.samples, TAILS[metric])
        return _deflated(rank_p(a.samples, b.samples), min(_independent(a.samples), _independent(b.samples)))
    return None if metric in TAILS else summary_p(a.stats, b.stats)


def stands_apart(a: Times, b: Times, metric: str) -> bool:
    """Whether `b` is longer than `a` throughout the run, not only on the whole; not asked of the longest times.

    With samples: every block of consecutive times of `b` has a larger median than every block of `a`, so that a slow
    or fast phase within either run is no change. With summaries: the median of `b` lies beyond the 95th percentile of
    `a`, and its minimum beyond the minimum.
    """
    if metric in TAILS:
        return True
    if a.samples and b.samples:
        return min(_block_medians(b.samples)) > max(_block_medians(a.samples))
    return b.stats.median > a.stats.p95 and b.stats.min > a.stats.min


def unsteadiness(times: Times) -> float:
    """How far a run wanders on its own, as a part of its median: a change has to exceed it on top of the bound.

    With samples: what the medians of blocks differ by beyond what the scatter from one sample to the next explains;
    counted double where few samples leave that uncertain. With a summary nothing tells scatter from wandering, so all
    of it counts.
    """
    samples, middle = times.samples, max(times.stats.median, 1)
    if not samples:
        return DRIFT_WEIGHT * _deviation(times.stats) / middle
    medians = _block_medians(samples)
    # Successive differences are blind to slow changes; 0.954 is the median of |x - y| for standard normal x, y.
    scatter = median(abs(after - this) for this, after in pairwise(samples)) / 0.954
    size = len(samples) / len(medians)
    expected = {3: 1.693, 5: 2.326}[len(medians)] * scatter * min(1.2533 / math.sqrt(size), 1)
    weight = DRIFT_WEIGHT * (1 if len(samples) >= FEW else 2)
    return weight * max(max(medians) - min(medians) - expected, 0) / middle


def rank_p(a: Sequence[int], b: Sequence[int]) -> float:
    """One-sided p of the rank-sum test that `b` is longer than `a`; ties count against it: the safe side.

    Mann and Whitney, "On a test of whether one of two random variables is stochastically larger than the other" (1947).
    """
    ordered = sorted(a)
    above = sum(bisect_left(ordered, each) for each in b)
    n, m = len(a), len(b)
    if n <= EXACT and m <= EXACT:
        return _at_least(n, m)[above]
    deviation = math.sqrt(n * m * (n + m + 1) / 12)
    return _upper((above - 0.5 - n * m / 2) / deviation)


@cache
def _at_least(n: int, m: int) -> list[float]:
    """P(U ≥ u) for each u from 0 to n·m: the coefficients of the Gaussian binomial of n + m over n, summed up."""
    ways = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        for at in range(n * m, m + i - 1, -1):
            ways[at] -= ways[at - m - i]
        for at in range(i, n * m + 1):
            ways[at] += ways[at - i]
    left, total = math.comb(n + m, n), math.comb(n + m, n)
    tail = []
    for count in ways:
        tail.append(left / total)
        left -= count
    return tail


def tail_p(a: Sequence[int], b: Sequence[int], q: float) -> float:
    """One-sided p that `b` has more of the longest times: Fisher's exact test on those above the common q-quantile."""
    pooled = sorted((*a, *b))
    cut = pooled[min(math.ceil(len(pooled) * q), len(pooled)) - 1]
    long_a, long_b = sum(each > cut for each in a), sum(each > cut for each in b)
    long, all_b = long_a + long_b, len(b)
    # By logarithms: with 300,000 samples the whole numbers have 100,000 digits each.
    all_ways = _log_comb(len(pooled), long)
    ways = (_log_comb(all_b, k) + _log_comb(len(a), long - k) for k in range(long_b, min(long, all_b) + 1))
    return min(math.fsum(math.exp(each - all_ways) for each in ways), 1.0)


def _log_comb(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def summary_p(a: TimeStats, b: TimeStats) -> float:
    """One-sided p that the median of `b` is larger, from summaries: a t test on medians with robust deviations."""
    # A median's standard error is 1.2533 σ/√n where times scatter normally, and less for sharper peaks.
    error = 1.2533 * math.sqrt(_deviation(a) ** 2 / a.count + _deviation(b) ** 2 / b.count)
    t, freedom = (b.median - a.median) / error, min(a.count, b.count) - 1
    # Wallace, "Bounds on normal approximations to Student's and the chi-square distributions" (1959).
    z = (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(t * t / freedom))
    return _upper(math.copysign(z, t))


def _deviation(stats: TimeStats) -> float:
    """Standard deviation by whichever side of the median scatters more; 1 ns at least."""

    def width(rank: int) -> float:  # of the rank-th of `count` times, in standard deviations (Blom's scores)
        return max(_NORMAL.inv_cdf((rank - 0.375) / (stats.count + 0.25)), 0.5)

    above = (stats.p95 - stats.median) / width(math.ceil(0.95 * stats.count))
    below = (stats.median - stats.min) / width(stats.count)
    return max(above, below, 1.0)


def _independent(samples: Sequence[int]) -> float:
    """Which part of the samples counts as independent, by the correlation of each rank with the next one's."""
    order = sorted(samples)
    ranks = [bisect_left(order, each) for each in samples]
    mean = sum(ranks) / len(ranks)
    variance = sum((rank - mean) ** 2 for rank in ranks)
    if not variance:
        return 1.0
    correlation = sum((this - mean) * (after - mean) for this, after in pairwise(ranks)) / variance
    if correlation < 1.645 / math.sqrt(len(samples)):
        return 1.0
    return max((1 - correlation) / (1 + correlation), 2 / len(samples))


def _deflated(p: float, part: float) -> float:
    """`p` as it were with only `part` of the samples."""
    if part == 1.0 or p >= 0.5:
        return p
    return _upper(-_NORMAL.inv_cdf(max(p, 1e-300)) * math.sqrt(part))


def _upper(z: float) -> float:
    return math.erfc(z / math.sqrt(2)) / 2


def _block_medians(samples: Sequence[int]) -> list[float]:
    """Medians of consecutive blocks: five of long runs, three of short ones."""
    blocks = 5 if len(samples) >= 25 else 3
    edges = [len(samples) * i // blocks for i in range(blocks + 1)]
    return [median(samples[start:end]) for start, end in pairwise(edges)]
