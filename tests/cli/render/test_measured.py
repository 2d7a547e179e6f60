"""What reports say of their own times: floors, sums, starts, streams, clocks, peaks, advice."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from kgrun.cli.render import documents, timing
from kgrun.cli.render.json import dumps
from kgrun.cli.render.measured import measured_lines, shares
from kgrun.cli.render.schema import report_schema
from kgrun.cli.render.table import plain
from kgrun.runtime.balance import balance
from kgrun.runtime.devices.base import DeviceInfo
from kgrun.runtime.report import GpuState, Roofline, RunReport, StepReport, StreamChoice, TimeStats

STATE = GpuState(1_980, 3_201, 1_980, 40, 300_400)
GRAPH, EVENTS = "graph of repeats", "stream events"


def stats(median: int) -> TimeStats:
    return TimeStats(median, median, median, median, median, median, 0.01, 10)


def row(name: str, ns: int, method: str = GRAPH, floor: int = 1_000, **more: Any) -> StepReport:
    return StepReport(name, "k", "compute", None, None, None, stats(ns), method, more.get("flops"), more.get("nbytes"),
                      (), floor)  # fmt: skip


@pytest.fixture
def measured(report: RunReport) -> RunReport:
    """A run of a long kernel, and of a short one in a chain, on a GPU."""
    steps = (row("long", 100_000, nbytes=400_000_000, flops=1_000_000_000), row("short", 2_500))
    sums = balance(steps, 110_000, [[], [0]], start_ns=6_000, ramp_ns=500)
    return replace(
        report, device=DeviceInfo("cuda", "Test GPU", 0, "sm_90", 1 << 30), steps=steps, total=stats(110_000),
        floors_ns={GRAPH: 1_000}, issue_ns=4_200, balance=sums, gpu_states=(STATE, STATE), comparisons=(),
        roofline=Roofline(4_000_000_000_000, 50_000_000_000_000),
    )  # fmt: skip


def test_time_02_short_kernels_are_marked_overhead_bound_beside_the_floor(measured: RunReport) -> None:
    text = plain(timing.timing_sections(measured, verbose=False))
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ")}
    assert "overhead-bound" in rows["short"]
    assert "overhead-bound" not in rows["long"]
    floor = "graph of repeats: 1.000 µs for a kernel that does nothing; 1 kernel under three times that: overhead-bound"
    assert f"  floor        {floor}" in text
    kernels = documents.run_document(measured)["kernels"]
    assert [(k["floor_ns"], k["overhead_bound"]) for k in kernels] == [(1_000, False), (1_000, True)]


def test_time_04_kernels_total_and_what_is_between_are_printed_by_name(measured: RunReport) -> None:
    lines = list(measured_lines(measured))
    assert lines[0] == (
        "  of which     kernels 102.5 µs, less 1.000 µs of launching hidden by the kernel before, "
        "plus 6.000 µs to start, gaps 2.500 µs (2.3 %)"
    )
    found = documents.run_document(measured)["balance"]
    assert found["kernels_ns"] - found["ramps_ns"] + found["start_ns"] + found["difference_ns"] == found["total_ns"]
    assert found["between_ns"] == 0
    assert found["consistent"] is True


def test_steps_side_by_side_are_explained(measured: RunReport) -> None:
    steps = (row("a", 50_000), row("b", 50_000))
    sums = balance(steps, 57_000, [[], []], start_ns=6_000)
    lines = list(measured_lines(replace(measured, steps=steps, balance=sums, total=stats(57_000))))
    assert "side by side −49.00 µs (86.0 %)" in lines[0]
    assert lines[1] == "  in a row     106.0 µs; longest chain 56.00 µs"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "  started      as one CUDA graph; the host takes 4.200 µs a run"),
        (
            {"not_replayed": "switched off"},
            "  started      kernel by kernel: switched off; the host takes 4.200 µs a run",
        ),
        ({"cache": "cold"}, "  cache        emptied before every run and every kernel timed; its time is taken off"),
        (
            {"streams": StreamChoice(4, 4, 200_000, 80_000)},
            "  streams      200.0 µs on one stream, 80.00 µs on 4: 2.50 × faster",
        ),
        (
            {"streams": StreamChoice(1, 4, 80_000, 100_000)},
            "  streams      80.00 µs on one stream, 100.0 µs on 4: one is kept",
        ),
        ({}, "  GPU          SM 1980 MHz, memory 3201 MHz, temperature 40 °C, power 300 W"),
        (
            {"gpu_states": (STATE, replace(STATE, sm_mhz=1_400, throttle=("power cap",)))},
            "  GPU          SM 1980 → 1400 MHz, memory 3201 MHz, temperature 40 °C, power 300 W, "
            "held down by power cap",
        ),
        ({}, "  peak         memory 4.000 TB/s copied, compute 50.00 TFLOP/s in float32, both measured here"),
        (
            {"issue_ns": 100_000},
            "  advice       enqueue-bound: the host takes 100.0 µs to start a run of 110.0 µs; "
            "more work in a run would use the GPU better",
        ),
    ],
)
def test_each_line_says_what_it_must(measured: RunReport, changes: dict[str, Any], line: str) -> None:
    assert line in list(measured_lines(replace(measured, **changes)))


def test_nothing_is_said_that_was_not_measured(report: RunReport) -> None:
    text = "\n".join(measured_lines(report))
    assert [line.split()[0] for line in text.splitlines()] == ["of"]


def test_shares_are_of_the_measured_peaks(measured: RunReport) -> None:
    assert shares(measured.steps[0], measured) == (1.0, 0.2)
    assert shares(measured.steps[1], measured) == (None, None)
    assert shares(measured.steps[0], replace(measured, roofline=None)) == (None, None)
    text = plain(timing.timing_sections(measured, verbose=False))
    assert "% peak" in text
    assert "100 mem" in text


def test_methods_get_a_column_where_there_are_several(measured: RunReport) -> None:
    assert "method" not in timing.kernel_table(measured).columns
    steps = (row("a", 50_000), row("b", 90_000, EVENTS, 7_000))
    table = timing.kernel_table(replace(measured, steps=steps))
    at = list(table.columns).index("method")
    assert [cells[at] for cells in table.rows] == [GRAPH, EVENTS]
    assert {">min", ">mean", ">p99", ">CV %"} <= set(timing.kernel_table(measured, verbose=True).columns)


@pytest.mark.parametrize("changes", [{}, {"streams": StreamChoice(4, 4, 200_000, 80_000), "not_replayed": "no"}])
def test_the_document_fits_the_schema(
    measured: RunReport, faults: Callable[[Any, Mapping[str, Any]], list[str]], changes: dict[str, Any]
) -> None:
    made = documents.run_document(replace(measured, **changes))
    document = {"schema_version": 1, "ok": True} | json.loads(dumps(made))
    assert faults(document, {"$ref": "#/$defs/execute", "$defs": report_schema()["$defs"]}) == []
    assert {"code", "message"} == set().union(*document["advice"]) or document["advice"] == []
