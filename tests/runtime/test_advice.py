"""Advice and doubts: each appears when its numbers say so, and only then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kgrun.runtime.advice import advice, doubts
from kgrun.runtime.balance import balance
from kgrun.runtime.devices.base import DeviceInfo
from kgrun.runtime.report import GpuState, RunReport, StepReport, TimeStats, Transfer
from tests.support import node, planned, program, tensor

GPU = DeviceInfo("cuda", "test", 0, "sm_90", 1 << 30)
CALM = GpuState(1_980, 3_201, 1_980, 40, 300_000)


def stats(median: int, cv: float = 0.01, count: int = 10) -> TimeStats:
    return TimeStats(median, median, median, median, median, median, cv, count)


def report(**changes: Any) -> RunReport:
    """A run of 100 µs on a GPU, with nothing to say of it."""
    made = program([node("a", ["x"], ["y"])], {"x": tensor("input")}, ["y"])
    steps = (StepReport("a", "k", "compute", None, None, None, stats(95_000), "graph of repeats", None, None),)
    calm = RunReport(
        made, planned(made)[0], GPU, {}, steps, stats(100_000), 10, 1, Transfer(256, 2_000), Transfer(256, 2_000), 1,
        issue_ns=5_000, balance=balance(steps, 100_000, [[]], start_ns=5_500, ramp_ns=500), gpu_states=(CALM, CALM),
    )  # fmt: skip
    return replace(calm, **changes)


def codes(found: RunReport) -> list[str]:
    return [line.code for line in (*advice(found), *doubts(found))]


def test_nothing_to_say_of_a_good_run() -> None:
    assert codes(report()) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"issue_ns": 81_000}, "A-ENQUEUE"),
        ({"issue_ns": 200_000, "not_replayed": "switched off"}, "A-ENQUEUE"),
        ({"download": Transfer(256, 120_000)}, "A-TRANSFER"),
        ({"upload": Transfer(256, 120_000)}, "A-TRANSFER"),
        ({"total": stats(100_000, cv=0.03)}, "A-NOISY"),
        ({"gpu_states": (CALM, replace(CALM, sm_mhz=1_700))}, "W-CLOCK"),
        ({"gpu_states": (CALM, replace(CALM, memory_mhz=2_600))}, "W-CLOCK"),
        ({"gpu_states": (CALM, replace(CALM, throttle=("power cap",)))}, "W-THROTTLE"),
    ],
)
def test_each_line_has_its_reason(changes: dict[str, Any], code: str) -> None:
    assert codes(report(**changes)) == [code]


def test_enqueue_advice_names_why_there_is_no_graph() -> None:
    (line,) = advice(report(issue_ns=200_000, not_replayed="host_step runs on the host"))
    assert "host_step runs on the host" in line.message
    assert "200.0 µs to start a run of 100.0 µs" in line.message


def test_parameters_do_not_count_as_transfer_of_a_run() -> None:
    assert codes(report(upload=Transfer(256 * 1_000, 1_000_000))) == []


def test_few_samples_are_not_called_noisy() -> None:
    assert codes(report(total=stats(100_000, cv=0.5, count=3))) == []


def test_times_that_do_not_add_up_are_a_warning_of_replays_alone() -> None:
    steps = report().steps
    bad = balance(steps, 120_000, [[]], start_ns=5_500, ramp_ns=500)
    (line,) = doubts(report(balance=bad))
    assert line.code == "W-SUM"
    assert "100.0 µs, but a run takes 120.0 µs: 16.7 % apart (gaps)" in line.message
    assert codes(report(balance=bad, not_replayed="switched off")) == []


def test_kernels_that_are_slower_in_a_run_than_repeated_are_a_warning() -> None:
    steps = report().steps
    apart = balance(steps, 120_000, [[]], start_ns=5_500, ramp_ns=500, run_ns=114_000)
    (line,) = doubts(report(balance=apart))
    assert line.code == "W-ALONE"
    assert "each kernel repeated takes 94.5 µs in sum, all of them in a row 114.0 µs" in line.message


def test_no_advice_on_the_cpu() -> None:
    cpu = DeviceInfo("cpu", "test", 0, None, 1 << 30)
    assert codes(report(device=cpu, issue_ns=10**9, gpu_states=())) == []
