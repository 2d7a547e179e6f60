"""Tables, units, JSON, CSV and traces: safe names, whole names, no escape codes, no NaN."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from typing import Any

import pytest

from kgrun.cli.output import Output
from kgrun.cli.render import documents, memory, timing
from kgrun.cli.render.csv import to_csv
from kgrun.cli.render.json import dumps
from kgrun.cli.render.lifetimes import live_dynamic_bytes
from kgrun.cli.render.table import ROWS_SHOWN, Table, plain, show
from kgrun.cli.render.text import bytes_text, percent, printable, rate_text, time_text, width
from kgrun.cli.render.trace import trace_text
from kgrun.runtime.report import RunReport

NASTY = 'a"b\\c\n<T,8> [red]é\x1b[31m'


def test_units() -> None:
    assert [bytes_text(n) for n in (0, 512, 1024, 1536, 3 << 30)] == ["0 B", "512 B", "1 KiB", "1.50 KiB", "3 GiB"]
    assert [time_text(n) for n in (None, 999, 1500, 12_345_678, 2_000_000_000)] == [
        "-", "999 ns", "1.500 µs", "12.35 ms", "2.000 s",
    ]  # fmt: skip
    assert rate_text(4.24e12, "B/s") == "4.240 TB/s"
    assert rate_text(None, "B/s") == "-"
    assert (percent(1, 3), percent(1, 0)) == ("33.3", "-")


def test_names_cannot_steer_the_terminal() -> None:
    assert printable(NASTY) == 'a"b\\c\\n<T,8> [red]é\\x1b[31m'
    assert printable("a\u202eb") == "a\\u202eb"
    assert width("né") == 2
    assert width("行列") == 4


def test_plain_table_keeps_whole_names_and_aligns() -> None:
    long, endless = "a_long_kernel_name_" * 3, "a_very_long_kernel_name_" * 10
    text = plain([Table("Kernels", ("kernel", ">time"), [(long, "1 µs"), ("行列", "12 µs")])])
    lines = text.splitlines()
    assert lines[0] == "Kernels"
    assert lines[2] == f"  {long}   1 µs"
    assert lines[3] == "  行列" + " " * (len(long) - 4) + "  12 µs"
    text = plain([Table("Kernels", ("kernel", ">time"), [(endless, "1 µs"), ("行列", "12 µs")])])
    assert text.splitlines()[2:] == [f"  {endless}   1 µs", "  行列" + " " * 68 + "  12 µs"]  # moves its own row alone


def test_long_table_is_cut_and_says_so() -> None:
    rows = [(str(index),) for index in range(ROWS_SHOWN + 3)]
    table = Table("Placement", ("tensor",), rows, rest="tensors")
    assert plain([table]).splitlines()[-1] == "  … and 3 more tensors; -v, --csv and --json have all of them"
    assert len(plain([table], verbose=True).splitlines()) == len(rows) + 2


@pytest.mark.usefixtures("terminal")
def test_terminal_gets_colours_and_whole_escaped_names() -> None:
    text = show([Table("Kernels", ("kernel",), [("[red]x" + "y" * 80,)]), "a line"], Output())
    assert "\x1b[" in text
    assert "[red]x" in text
    assert text.count("y") == 80
    assert "\x1b[31m" not in text.replace("\x1b[0m", "")


@pytest.mark.parametrize("variable", ["NO_COLOR", "option"])
@pytest.mark.usefixtures("terminal")
def test_no_color_leaves_no_escape_code(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    if variable == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    text = show([Table("Kernels", ("kernel",), [("x",)])], Output(no_color=variable == "option"))
    assert "\x1b" not in text
    assert text == "Kernels\n  kernel\n  x\n"


@pytest.mark.usefixtures("terminal")
def test_narrow_terminal_drops_columns_before_it_wraps_names(report: RunReport) -> None:
    steps = tuple(replace(step, name="a_name_that_fits") for step in report.steps)
    text = show([timing.kernel_table(replace(report, steps=steps))], Output())
    assert "a_name_that_fits" in text
    assert "cum %" not in text
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert max(map(width, lines)) <= 60


def test_json_01_no_nan_in_json() -> None:
    text = dumps({"a": float("nan"), "b": [{"c": float("inf")}, {"c": 1.5}], "d": {"e": [float("-inf")]}})
    assert json.loads(text, parse_constant=pytest.fail) == {
        "a": None, "b": [{"c": None}, {"c": 1.5}], "d": {"e": [None]},
    }  # fmt: skip
    assert text.isascii()


def test_csv_keeps_names_whole() -> None:
    text = to_csv([{"name": NASTY, "grid": (4, 1, 1), "none": None}])
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["name", "grid", "none"], [NASTY, "4x1x1", ""]]
    assert to_csv([]) == ""


def test_fmt_03_trace_survives_any_name(report: RunReport) -> None:
    trace = json.loads(trace_text(report), parse_constant=pytest.fail)
    events = trace["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in spans] == [NASTY, "act"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {1: "stream compute", 2: "stream comm"}
    assert spans[0]["tid"] != spans[1]["tid"]
    assert (spans[1]["ts"], spans[1]["dur"]) == (2.5, 1.0)


def test_trace_counts_live_memory(report: RunReport) -> None:
    events = json.loads(trace_text(report))["traceEvents"]
    counters = [event for event in events if event["ph"] == "C"]
    assert [event["args"] for event in counters] == [
        {"dynamic live": 512, "static": 1024},
        {"dynamic live": 512, "static": 1024},
        {"dynamic live": 0, "static": 1024},
    ]
    assert [event["ts"] for event in counters] == [0, 2.5, 3.5]


def test_trace_events_of_a_track_do_not_overlap(report: RunReport) -> None:
    steps = tuple(replace(step, stream="compute") for step in report.program.steps)
    one_stream = replace(report, program=replace(report.program, steps=steps))
    spans = [event for event in json.loads(trace_text(one_stream))["traceEvents"] if event["ph"] == "X"]
    assert spans[0]["ts"] + spans[0]["dur"] <= spans[1]["ts"]


def test_live_bytes_follow_lifetimes(report: RunReport) -> None:
    places = tuple(
        replace(report.plan.placements[1], first_step=first, last_step=last, aligned=nbytes)
        for first, last, nbytes in ((0, 1, 100), (1, 2, 10), (2, 9, 1))
    )
    assert live_dynamic_bytes(replace(report.plan, placements=places), 4) == [100, 110, 11, 1]


def test_text_report_of_a_run(report: RunReport) -> None:
    text = plain([timing.head_line(report), *timing.timing_sections(report, verbose=False)])
    lines = text.splitlines()
    assert lines[0] == "tiny on test cpu: 3 iterations after 1 warm-up"
    assert lines[2] == "Kernels (events)"
    assert lines[3].split("  ")[1] == "kernel"
    row = next(line for line in lines if "<T,8>" in line)
    assert "[red]é" in row
    for cell in ("2 × 64", "3.000 µs", "3.010 µs", "100.0", "21.33 MB/s", "2.667 MFLOP/s"):
        assert cell in row
    total = "median 4.000 µs, min 3.990 µs, mean 4.000 µs, p95 4.010 µs, p99 4.020 µs, max 4.030 µs, CV 5.0 %"
    assert f"  total        {total}" in lines
    assert "  of which     kernels 3.000 µs, gaps 1.000 µs" in lines
    assert "  upload       32 bytes in 100 ns (320.0 MB/s)" in lines
    assert "  download     32 bytes in 0 ns (-)" in lines


def test_text_report_of_memory(report: RunReport) -> None:
    text = plain(memory.memory_sections(report.program, report.plan, measured=2048))
    assert text.splitlines() == [
        "Memory by class",
        "  class         region   bytes  buffers",
        "  input         static   512 B        1",
        "  output        static   512 B        1",
        "  intermediate  dynamic  512 B        1",
        "",
        "  static       1 KiB",
        "  dynamic      512 B, the least possible (lower bound 512 B)",
        "  reuse saves  0 B of 512 B (0.0 %)",
        '  peak         step 0, a"b\\c',  # a line break in a free line stays one
        "<T,8> [red]é\\x1b[31m: 512 B live",
        "               t 512 B",
        "  planned      1.50 KiB, by skyline in 1.000 µs, verified",
        "  measured     2 KiB (512 B more than planned)",
    ]


def test_outputs_show_small_values(report: RunReport) -> None:
    row = documents.output_row("y", report.outputs["y"])
    assert row["value"] == [0.0, 0.1, None, None, 1.0, 2.0, 3.0, 4.0]
    assert row["shape"] == [8]
    assert len(row["sha256"]) == 64


def test_decisions_and_warnings(report: RunReport) -> None:
    decisions = memory.decision_sections(report.program.decisions)
    warnings = memory.warning_sections(report.program.graph.warnings, verbose=False)
    text = plain([*decisions, *warnings])
    assert text.splitlines() == [
        "In place",
        "  node  output  input  decision  reason",
        "  act   y       t      refused   y is a graph output",
        "",
        "warning[W-TEST]: look here (at nodes[0])",
    ]


def test_run_document_is_plain_json(report: RunReport) -> None:
    document = json.loads(dumps(documents.run_document(report)), parse_constant=pytest.fail)
    assert document["kernels"][0]["name"] == NASTY
    assert document["kernels"][1]["time_ns"] is None
    assert document["comparisons"][0]["max_rel"] is None
    assert document["memory"]["measured_peak_bytes"] == 2048


@pytest.mark.parametrize("dtype", ["float64", "int8", "bool", "bfloat16", "float8_e4m3fn"])
def test_values_of_every_dtype(dtype: str) -> None:
    import numpy as np

    from kgrun.graphs.data import numpy_dtype

    array: Any = np.ones((2, 1), dtype=numpy_dtype(dtype))
    assert documents.output_row("y", array)["value"] == [[1], [1]]
    assert documents.output_row("y", array.reshape(2)[0].reshape(()))["value"] == 1
    assert documents.output_row("y", array[:0])["value"] == []
    assert timing.range_text(array) == "1 … 1, mean 1"


def test_values_that_are_no_numbers_have_their_names_in_the_table() -> None:
    import numpy as np

    from kgrun.cli.render.timing import output_table

    table = output_table(
        {"y": np.array([[1.5, np.nan], [np.inf, -np.inf]], np.float32), "z": np.float32(np.nan)[()].reshape(())}
    )
    assert [row[2] for row in table.rows] == ["[[1.5, nan], [inf, -inf]]", "nan"]
