"""Large problems: nested lives at the bound, random ones near it; the heuristics never lose a plan."""

import random

import pytest

from kgrun.runtime.memory.packing import PackOptions, Problem, native, pack, verify


def nested(n, seed):
    r = random.Random(seed)
    lower = [i if k == 0 else n - i - 1 for i in range(n // 2) for k in (0, 1)]
    upper = [n - i if k == 0 else n - i + 1 for i in range(n // 2) for k in (0, 1)]
    return Problem(lower, upper, [256 * r.randint(1, 4096) for _ in lower])


@pytest.mark.skipif(not native.available(), reason="the extension is not built")
def test_nested_training_lives_are_packed_at_the_bound():
    problem = nested(100_000, 3)
    packing = pack(problem)
    assert packing.optimal
    assert verify(problem, packing.offsets) == []


@pytest.mark.skipif(not native.available(), reason="the extension is not built")
def test_uniform_random_lives_are_packed_within_two_per_cent():
    r = random.Random(1)
    spans = [sorted(r.sample(range(40_000), 2)) for _ in range(20_000)]
    problem = Problem([s[0] for s in spans], [s[1] for s in spans], [r.randint(1, 1 << 20) for _ in spans])
    packing = pack(problem)
    assert packing.height <= 1.02 * packing.lower_bound
    assert verify(problem, packing.offsets) == []


def test_an_expired_time_limit_still_gives_a_plan():
    problem = nested(400, 1)
    packing = pack(problem, PackOptions(time_limit=0.0))
    assert verify(problem, packing.offsets) == []
    assert packing.height >= packing.lower_bound
