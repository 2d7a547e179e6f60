"""Rows of a comparison: matching, verdicts, floors, bytes, outputs, warnings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgrun.graphs.errors import GraphError
from kgrun.runtime.diff import Difference, Row, Verdict, compare_reports, document, read_report
from kgrun.runtime.diff.document import MAX_BYTES, Report

from .samples import kernel, report, steady

Document = dict[str, Any]


def read(plain: Document) -> Report:
    return read_report(json.dumps(plain).encode(), "r.json")


def compare(a: Document, b: Document, *metrics: str, bound: float = 0.05, floor_ns: int | None = None) -> Difference:
    chosen = metrics or ("median", "peak_bytes")
    return compare_reports(read(a), read(b), metrics=chosen, bound=bound, floor_ns=floor_ns)


def kernels(found: Difference) -> dict[str, Row]:
    return {row.name: row for row in found.rows if row.kind == "kernel"}


def test_a_report_equals_itself() -> None:
    a = report([kernel("one", steady(20_000)), kernel("two", steady(50_000))])
    found = compare(a, a)
    assert {row.verdict for row in found.rows} == {Verdict.unchanged}
    assert [row.kind for row in found.rows] == ["run", "memory", "memory", "memory", "kernel", "kernel"]
    assert (found.failures, found.outputs, found.warnings) == ([], (), ())


def test_slower_and_faster_kernels_are_told() -> None:
    a = report([kernel("one", steady(20_000)), kernel("two", steady(50_000)), kernel("three", steady(90_000))])
    b = report([kernel("one", steady(26_000)), kernel("two", steady(40_000)), kernel("three", steady(90_000))])
    rows = kernels(compare(a, b))
    assert {name: row.verdict for name, row in rows.items()} == {
        "one": Verdict.regressed,
        "two": Verdict.improved,
        "three": Verdict.unchanged,
    }
    assert rows["one"].change == pytest.approx(0.3)
    assert rows["one"].p is not None
    assert rows["one"].p < 1e-4
    assert [row.name for row in compare(a, b).failures] == ["one"]


def test_changes_below_the_floor_do_not_count() -> None:
    a, b = report([kernel("short", steady(2000))]), report([kernel("short", steady(2400))])
    row = kernels(compare(a, b))["short"]  # 400 ns, and events resolve 500
    assert (row.verdict, row.note) == (Verdict.unchanged, "less than the floor of 500 ns")
    assert kernels(compare(a, b, floor_ns=100))["short"].verdict is Verdict.regressed
    clock_a, clock_b = (report([kernel("short", steady(ns), method="host clock")]) for ns in (2000, 2400))
    assert kernels(compare(clock_a, clock_b))["short"].verdict is Verdict.regressed


def test_renamed_kernels_are_matched_by_operator_and_order() -> None:
    a = report(
        [
            kernel("a1", steady(9000)),
            kernel("same", steady(9000)),
            kernel("a2", steady(30_000)),
            kernel("c", steady(9000), "Conv"),
        ]
    )
    b = report(
        [
            kernel("b1", steady(9000)),
            kernel("same", steady(9000)),
            kernel("b2", steady(40_000)),
            kernel("d", steady(9000), "Gemm"),
        ]
    )
    rows = kernels(compare(a, b))
    assert {name: row.old_name for name, row in rows.items()} == {
        "b1": "a1",
        "same": None,
        "b2": "a2",
        "d": None,
        "c": None,
    }
    assert (rows["b2"].verdict, rows["d"].verdict, rows["c"].verdict) == (
        Verdict.regressed,
        Verdict.added,
        Verdict.removed,
    )
    assert (rows["d"].a, rows["c"].b) == (None, None)


def test_nothing_is_guessed_where_the_numbers_differ() -> None:
    a = report([kernel("a1", steady(9000)), kernel("a2", steady(9000))])
    b = report([kernel("b1", steady(9000))])
    found = compare(a, b)
    assert [row.verdict for row in found.rows if row.kind == "kernel"] == [Verdict.added, *[Verdict.removed] * 2]
    assert [warning.code for warning in found.warnings] == ["W-DIFF-KERNELS"]


def test_equal_names_are_matched_in_order() -> None:
    a = report([kernel("k", steady(9000)), kernel("k", steady(30_000))])
    b = report([kernel("k", steady(9000)), kernel("k", steady(40_000))])
    rows = [row for row in compare(a, b).rows if row.kind == "kernel"]
    assert [row.verdict for row in rows] == [Verdict.unchanged, Verdict.regressed]


@pytest.mark.parametrize(
    ("a", "b", "note"),
    [
        (None, steady(9000), "not timed in A"),
        (steady(9000), None, "not timed in B"),
        (steady(9000, 4), steady(18_000, 4), "too few samples (4; 5 at least)"),
    ],
)
def test_what_cannot_be_compared_says_why(a: list[int] | None, b: list[int] | None, note: str) -> None:
    row = kernels(compare(report([kernel("k", a)]), report([kernel("k", b)])))["k"]
    assert (row.verdict, row.note) == (Verdict.incomparable, note)


def test_times_of_different_methods_are_not_compared() -> None:
    a, b = report([kernel("k", steady(9000))]), report([kernel("k", steady(18_000), method="CUPTI")])
    row = kernels(compare(a, b))["k"]
    assert (row.verdict, row.note) == (Verdict.incomparable, "times by different methods: stream events, CUPTI")


def test_bytes_have_no_noise() -> None:
    a = report([])
    b = report([], memory=a["memory"] | {"peak_bytes": 12_289, "dynamic_bytes": 9000})
    rows = {row.metric: row for row in compare(a, b, bound=0.0).rows if row.kind == "memory"}
    assert rows["peak_bytes"].fails
    assert (rows["dynamic_bytes"].verdict, rows["dynamic_bytes"].fails) == (Verdict.regressed, False)
    assert not compare(a, b).failures
    assert [row.metric for row in compare(a, b, "dynamic_bytes").failures] == ["dynamic_bytes"]
    unknown = {row.metric: row for row in compare(a, b, "measured_peak_bytes").rows}["measured_peak_bytes"]
    assert (unknown.verdict, unknown.note) == (Verdict.incomparable, "unknown in A and B")


def test_bytes_out_of_nothing_regress() -> None:
    a, b = report([], memory={"peak_bytes": 0}), report([], memory={"peak_bytes": 512})
    (row,) = compare(a, b, "peak_bytes").failures
    assert (row.a, row.b, row.change) == (0, 512, None)


def test_bytes_of_kernels() -> None:
    a, b = (report([kernel("k", steady(9000), nbytes=size, shared_bytes=0)]) for size in (1000, 1200))
    (row,) = compare(a, b, "kernel_bytes", "shared_bytes").failures
    assert (row.name, row.metric, row.unit, row.a, row.b) == ("k", "kernel_bytes", "bytes", 1000, 1200)


def test_plans_are_compared_by_bytes_alone() -> None:
    plan = {"schema_version": 1, "ok": True, "graph": {"name": "g"}, "dims": {}, "target": "cuda", "steps": []}
    a, b = (read(plan | {"memory": {"peak_bytes": size, "planner": "x", "optimal": True}}) for size in (1000, 2000))
    found = compare_reports(a, b, metrics=("median", "peak_bytes"), bound=0.05)
    assert [(row.metric, row.verdict) for row in found.rows] == [("peak_bytes", Verdict.regressed)]
    assert found.warnings == ()


def test_outputs_that_changed_are_listed() -> None:
    a = report([], outputs=[{"name": n, "dtype": "float32", "shape": [8], "sha256": "0" * 64} for n in ("y", "z", "w")])
    b = report([], outputs=[
        {"name": "y", "dtype": "float32", "shape": [8], "sha256": "1" * 64},
        {"name": "z", "dtype": "float16", "shape": [4], "sha256": "0" * 64},
        {"name": "v", "dtype": "float32", "shape": [8], "sha256": "0" * 64},
    ])  # fmt: skip
    found = compare(a, b)
    assert [(each.name, each.what.split(":")[0]) for each in found.outputs] == [
        ("y", "other bytes"),
        ("z", "was float32[8], is float16[4]"),
        ("v", "added"),
        ("w", "removed"),
    ]
    assert not found.failures


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"graph": {"name": "h"}}, "W-DIFF-GRAPH"),
        ({"dims": {"n": 9}}, "W-DIFF-DIMS"),
        ({"dims": {}}, "W-DIFF-DIMS"),
        ({"device": {"kind": "cuda", "name": "other", "arch": "sm_90", "versions": {}}}, "W-DIFF-DEVICE"),
        ({"device": report([])["device"] | {"versions": {"driver": "2"}}}, "W-DIFF-DRIVER"),
        ({"target": "cpu"}, "W-DIFF-KIND"),
        ({"ok": False}, "W-DIFF-FAILED"),
    ],
)
def test_what_makes_a_comparison_doubtful_is_warned_of(changes: Document, code: str) -> None:
    assert [warning.code for warning in compare(report([]), report([], **changes)).warnings] == [code]


def test_more_rows_ask_for_more_certainty() -> None:
    few = compare(report([kernel("k", steady(9000))]), report([kernel("k", steady(9000))]))
    many = [kernel(str(at), steady(9000)) for at in range(65)]
    assert few.limits.alpha == pytest.approx(0.001)
    assert compare(report(many), report(many)).limits.alpha == pytest.approx(0.002 / 66)


def test_samples_that_are_not_all_there_are_left_out() -> None:
    row = kernel("k", steady(9000))
    row["samples_ns"] = row["samples_ns"][:2]
    (found,) = read(report([row])).kernels
    assert found.times is not None
    assert found.times.samples == ()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no JSON document"),
        (b"[" * 100_000, "no JSON document"),
        (b"[]", "not a report"),
        (b'{"schema_version": 1, "ok": true, "nodes": []}', "not a report"),
        (b'{"ok": false, "error": {"code": "KG501", "message": "no"}}', "failed: KG501: no"),
        (b'{"schema_version": 2, "memory": {}}', "schema_version is 2"),
        (b'{"schema_version": 1, "memory": []}', "not a report"),
        (b'{"schema_version": 1, "ok": true, "graphs": [], "memory": {}}', "a report on several graphs"),
        (b'{"schema_version": 1, "ok": true, "sizes": []}', "a report on several sizes"),
        (b'{"schema_version": 1, "memory": {"peak_bytes": -1}}', "not a report"),
        (b'{"schema_version": 1, "memory": {"peak_bytes": 1.5}}', "not a report"),
        (b'{"schema_version": 1, "memory": {"dynamic_bytes": 9223372036854775808}}', "not a report"),
        (b'{"schema_version": 1, "memory": {}, "kernels": [{"name": "k", "time_ns": "fast"}]}', "not a report"),
        (b'{"schema_version": 1, "memory": {}, "kernels": [{"name": "k", "samples_ns": [-1]}]}', "not a report"),
    ],
)
def test_what_is_no_report_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(GraphError, match=message) as failure:
        read_report(data, "r.json")
    assert failure.value.code == "KG391"
    assert str(failure.value.where).startswith("r.json")


def test_the_cap_on_size_is_generous() -> None:
    assert MAX_BYTES >= 1 << 28


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs a file that never ends")
def test_a_file_that_never_ends_is_read_to_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MAX_BYTES", 1000)
    with pytest.raises(GraphError, match="more than 1,000 bytes"):
        document.load_report("/dev/zero")
