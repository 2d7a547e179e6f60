"""How the times of steps and of whole runs add up, and what is said where they do not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kgrun.runtime.balance import balance
from kgrun.runtime.report import StepReport
from kgrun.runtime.statistics import time_stats

CHAIN = [[], [0], [1], [2]]
DIAMOND = [[], [0], [0], [1, 2]]


def steps(*medians: int | None) -> list[StepReport]:
    times = [time_stats([]) if ns is None else time_stats([ns]) for ns in medians]
    return [StepReport(f"k{i}", "k", "compute", None, None, None, t, "", None, None) for i, t in enumerate(times)]


def test_a_chain_is_the_sum_less_hidden_ramps_and_the_start() -> None:
    found = balance(steps(50_500, 20_500, 30_500, 10_500), 117_000, CHAIN, start_ns=6_000, ramp_ns=500)
    assert found is not None
    assert (found.kernels_ns, found.ramps_ns, found.start_ns) == (112_000, 2_000, 6_000)
    assert found.kernels_ns - found.ramps_ns + found.start_ns == found.expected_ns == found.longest_chain_ns
    assert (found.difference, found.difference_ns, found.consistent) == ("gaps", 1_000, True)


@pytest.mark.parametrize(
    ("total", "name", "consistent"),
    [(120_000, "gaps", False), (116_000, "gaps", True), (113_500, "faster together", True),
     (100_000, "faster together", False)],
)  # fmt: skip
def test_a_chain_agrees_within_three_percent(total: int, name: str, consistent: bool) -> None:
    found = balance(steps(50_500, 20_500, 30_500, 10_500), total, CHAIN, start_ns=6_000, ramp_ns=500)
    assert found is not None
    assert (found.difference, found.consistent) == (name, consistent)


@pytest.mark.parametrize(
    ("total", "consistent"), [(206_000, True), (156_000, True), (100_000, False), (230_000, False)]
)
def test_independent_steps_lie_between_longest_chain_and_sum(total: int, consistent: bool) -> None:
    found = balance(steps(50_000, 50_000, 50_000, 50_000), total, DIAMOND, start_ns=6_000)
    assert found is not None
    assert (found.longest_chain_ns, found.expected_ns) == (156_000, 206_000)
    assert found.consistent is consistent
    if total == 156_000:
        assert (found.difference, found.difference_ns) == ("side by side", -50_000)


def test_what_different_steps_in_a_row_take_more_is_part_of_what_is_expected() -> None:
    found = balance(steps(50_500, 20_500, 30_500, 10_500), 122_000, CHAIN, start_ns=6_000, ramp_ns=500, run_ns=115_000)
    assert found is not None
    assert (found.between_ns, found.expected_ns, found.difference_ns) == (5_000, 121_000, 1_000)
    assert found.kernels_ns - found.ramps_ns + found.between_ns + found.start_ns == found.expected_ns
    assert found.consistent
    faster = balance(steps(50_500, 20_500, 30_500, 10_500), 110_000, CHAIN, start_ns=6_000, ramp_ns=500, run_ns=104_000)
    assert faster is not None
    assert (faster.between_ns, faster.difference_ns, faster.consistent) == (-6_000, 0, True)


def test_marks_that_make_steps_longer_are_called_by_their_name() -> None:
    found = balance(steps(7_000, 7_000, 7_000, 7_000), 9_000, CHAIN)
    assert found is not None
    assert (found.difference, found.start_ns) == ("instrumentation", 0)


@pytest.mark.parametrize("medians", [(), (10, None)])
def test_no_account_of_what_was_not_timed(medians: Sequence[int | None]) -> None:
    assert balance(steps(*medians), 100, CHAIN[: len(medians)]) is None
