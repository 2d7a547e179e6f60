"""`diff`: exit codes, options, the document, text, Markdown and JUnit."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from kgrun.cli.commands.diff import parse_bound, parse_metrics, parse_time
from kgrun.cli.render.diff_markdown import escaped
from kgrun.cli.render.schema import report_schema
from kgrun.graphs.errors import UsageError
from tests.runtime.diff.samples import kernel, report, steady

NASTY = "a|b`c\n<b>\x00\x1b[31m\ud800 *x* _y_ [z](u)\ufffe"


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    """Write two reports: of kernels by name and time, members replaced."""

    def write(a: dict[str, int], b: dict[str, int], **changes: Any) -> tuple[Path, Path]:
        for file, times, more in (("a.json", a, {}), ("b.json", b, changes)):
            rows = [kernel(name, steady(ns)) for name, ns in times.items()]
            (tmp_path / file).write_text(json.dumps(report(rows, **more)))
        return tmp_path / "a.json", tmp_path / "b.json"

    return write


def test_equal_reports_are_exit_0(kgrun: Any, pair: Any) -> None:
    result = kgrun("diff", *pair({"k": 9000}, {"k": 9000}))
    assert (result.code, result.err) == (0, "")
    assert "5 unchanged (bound 5 %)" in result.out.splitlines()


def test_a_regression_is_exit_10_and_named(kgrun: Any, pair: Any, faults: Any) -> None:
    files = pair({"slow": 20_000, "fast": 20_000}, {"slow": 26_000, "fast": 14_000})
    text = kgrun("diff", *files)
    assert text.code == 10
    assert text.err.startswith("error[KG010]: 1 row of 6 regressed by more than 5 %: slow median +30.0 %\n")
    assert [line.split()[:2] for line in text.out.splitlines() if "median" in line][:3] == [
        ["unchanged", "total"],
        ["regressed", "slow"],
        ["improved", "fast"],
    ]
    result = kgrun("diff", *files, "--json")
    document = result.json()
    assert (result.code, result.err) == (10, "")
    assert faults(document, {"$ref": "#/$defs/diff", "$defs": report_schema()["$defs"]}) == []
    assert document["ok"] is False
    assert document["error"]["code"] == "KG010"
    assert document["error"]["details"]["rows"] == [{"kind": "kernel", "name": "slow", "metric": "median"}]
    assert document["counts"]["improved"] == 1
    assert len(document["rows"]) == 6
    assert kgrun("diff", *files, "--max-regress", "40%").code == 0
    assert kgrun("diff", *files, "--max-regress", "1.4").code == 0
    assert kgrun("diff", *files, "--metric", "peak_bytes").code == 0
    assert kgrun("diff", *files, "--floor", "10us").code == 0
    assert kgrun("diff", *files, "-q").out == ""


def test_reports_of_the_command_itself(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    arguments = ("execute", graph_file(), "--device", "cpu", "--iterations", "12", "--json")
    (tmp_path / "a.json").write_text(kgrun(*arguments, "--samples").out)
    (tmp_path / "b.json").write_text(kgrun(*arguments).out)
    a, b = (json.loads((tmp_path / f"{name}.json").read_text()) for name in "ab")
    assert [len(row["samples_ns"]) for row in a["kernels"]] == [12, 12]
    assert len(a["total_samples_ns"]) == 12
    assert sorted(a["total_samples_ns"])[0] == a["total_ns"]["min"]
    assert "samples_ns" not in b["kernels"][0]
    document = kgrun("diff", tmp_path / "a.json", tmp_path / "b.json", "--json", "--max-regress", "1000x").json()
    assert document["ok"] is True
    assert (document["a"]["samples"], document["b"]["samples"]) == (True, False)
    assert {row["verdict"] for row in document["rows"]} == {"unchanged"}
    assert document["outputs"] == []


def test_samples_need_json(kgrun: Any, graph_file: Any) -> None:
    result = kgrun("execute", graph_file(), "--device", "cpu", "--samples")
    assert (result.code, result.err.splitlines()[0]) == (2, "error[KG240]: --samples adds to the JSON document")


def test_plans_are_compared(kgrun: Any, graph_file: Any, tmp_path: Path) -> None:
    for name, dim in (("a", 8), ("b", 4096)):
        (tmp_path / name).write_text(kgrun("plan-memory", graph_file(), "--dim", f"n={dim}", "--json").out)
    result = kgrun("diff", tmp_path / "a", tmp_path / "b", "--json")
    assert result.code == 10
    document = result.json()
    assert [row["metric"] for row in document["rows"] if row["kind"] == "memory" and row["judged"]] == ["peak_bytes"]
    assert [warning["code"] for warning in document["warnings"]] == ["W-DIFF-DIMS"]
    assert kgrun("diff", tmp_path / "a", tmp_path / "a").code == 0


def test_strict_refuses_what_is_hard_to_compare(kgrun: Any, pair: Any) -> None:
    files = pair({"k": 9000}, {"k": 9000}, dims={"n": 9}, graph={"name": "h"})
    loose = kgrun("diff", *files)
    assert loose.code == 0
    assert "warning[W-DIFF-DIMS]: dimension n: 8, 9" in loose.out
    strict = kgrun("diff", *files, "--strict", "--json")
    assert strict.code == 3
    assert [row["code"] for row in strict.json()["errors"]] == ["KG399", "KG399"]


def test_standard_input_is_a_report(process: Any, pair: Any) -> None:
    a, b = pair({"k": 9000}, {"k": 9000})
    result = process("diff", "-", b, "--json", stdin=a.read_text())
    assert (result.code, result.json()["a"]["file"]) == (0, "-")
    assert process("diff", "-", "-").code == 2


def test_faults_of_the_files(kgrun: Any, pair: Any, tmp_path: Path) -> None:
    a, _ = pair({"k": 9000}, {"k": 9000})
    missing = kgrun("diff", a, tmp_path / "none.json", "--json")
    assert (missing.code, missing.json()["error"]["code"]) == (3, "KG391")
    (tmp_path / "bad.json").write_text("{")
    assert kgrun("diff", a, tmp_path / "bad.json").code == 3
    (tmp_path / "bad.json").write_text(json.dumps(report([kernel("k", steady(9000), op=3)])))
    assert "bad.json: kernels[0].op" in kgrun("diff", a, tmp_path / "bad.json").err


def test_csv_has_every_row(kgrun: Any, pair: Any, tmp_path: Path) -> None:
    assert kgrun("diff", *pair({"k": 9000}, {"k": 9000}), "--csv", tmp_path / "d.csv").code == 0
    rows = list(csv.DictReader((tmp_path / "d.csv").open(encoding="utf-8")))
    assert [row["kind"] for row in rows] == ["run", "memory", "memory", "memory", "kernel"]


def test_markdown_survives_nasty_names(kgrun: Any, pair: Any, tmp_path: Path) -> None:
    files = pair({NASTY: 20_000}, {NASTY: 40_000}, graph={"name": NASTY})
    assert kgrun("diff", *files, "--markdown", tmp_path / "d.md").code == 10
    text = (tmp_path / "d.md").read_text(encoding="utf-8")
    assert text.startswith("### kgrun diff: regressed\n")
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 5
    for line in table:
        assert line.replace("\\|", "").count("|") == 8
    assert "\x1b" not in text
    assert "<b>" not in text
    assert "**regressed**" in table[2]


def test_escaping_keeps_markup_out() -> None:
    assert escaped("a|b`c\\d") == r"a\|b\`c\\d"
    assert escaped("<i>&") == "&lt;i&gt;&amp;"
    assert escaped("one\ntwo") == r"one\\ntwo"
    assert len(escaped("x" * 10_000)) == 300


def test_markdown_is_capped_and_says_so(kgrun: Any, pair: Any, tmp_path: Path) -> None:
    times = {f"k{at}": 9000 for at in range(300)}
    assert kgrun("diff", *pair(times, times | {"k299": 90_000}), "--markdown", tmp_path / "d.md").code == 10
    text = (tmp_path / "d.md").read_text(encoding="utf-8")
    assert text.count("\n| ") == 2 + 200
    assert "\n104 of 304 rows are not shown;" in text
    assert text.index("k299") < text.index("k0 ")


def test_markdown_stays_below_a_mebibyte(
    kgrun: Any, pair: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("# before" + " " * ((1 << 20) - 4000))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    times = {f"k{at}" + "|" * 250: 9000 for at in range(150)}
    assert kgrun("diff", *pair(times, times), "--markdown", summary).code == 0
    data = summary.read_bytes()
    assert data.startswith(b"# before")
    assert len(data) <= 1 << 20
    assert b"rows are not shown" in data
    assert kgrun("diff", *pair(times, times), "--markdown", tmp_path / "own.md").code == 0
    assert (tmp_path / "own.md").read_bytes().startswith(b"### kgrun diff")


def test_junit_is_xml_with_a_case_a_row(kgrun: Any, pair: Any, tmp_path: Path) -> None:
    files = pair({NASTY: 20_000, "gone": 9000}, {NASTY: 40_000})
    assert kgrun("diff", *files, "--junit", tmp_path / "d.xml").code == 10
    root = ElementTree.fromstring((tmp_path / "d.xml").read_bytes())
    (suite,) = root
    cases = list(suite)
    assert suite.attrib["tests"] == str(len(cases)) == "6"
    assert (suite.attrib["failures"], suite.attrib["skipped"]) == ("2", "1")
    assert [case.attrib["classname"] for case in cases if case.find("failure") is not None] == [
        "run.median",
        "kernel.median",
    ]
    (nasty,) = [case for case in cases if case.attrib["name"].startswith("a|b")]
    assert nasty.attrib["name"] == "a|b`c\n<b>[31m *x* _y_ [z](u)"
    assert nasty.attrib["time"] == "0.000040000"


def test_files_that_cannot_be_written_are_exit_2(kgrun: Any, pair: Any, tmp_path: Path) -> None:
    files = pair({"k": 9000}, {"k": 9000})
    assert kgrun("diff", *files, "--junit", tmp_path / "no" / "d.xml").code == 2
    assert kgrun("diff", *files, "--markdown", tmp_path / "no" / "d.md").code == 2


@pytest.mark.parametrize(
    ("text", "bound"), [("5%", 0.05), ("0%", 0), ("12.5 %", 0.125), ("1.05", 0.05), ("1", 0), ("1.5x", 0.5), ("3x", 2)]
)
def test_bounds(text: str, bound: float) -> None:
    assert parse_bound(text) == pytest.approx(bound)


@pytest.mark.parametrize("text", ["", "5", "2", "0.05", "0.5x", "-5%", "five", "5%%", "inf", "nan", "1e3"])
def test_bounds_that_are_none(text: str) -> None:
    with pytest.raises(UsageError) as failure:
        parse_bound(text)
    assert failure.value.code == "KG253"


@pytest.mark.parametrize(
    ("text", "ns"), [("500ns", 500), ("2us", 2000), ("1.5 µs", 1500), ("1ms", 10**6), ("0.001", 10**6)]
)
def test_times(text: str, ns: int) -> None:
    assert parse_time(text, "--floor") == ns


def test_words_that_are_no_time_or_metric(kgrun: Any, pair: Any) -> None:
    files = pair({"k": 9000}, {"k": 9000})
    for option in (("--floor", "soon"), ("--metric", "medain"), ("--metric", ","), ("--max-regress", "5")):
        result = kgrun("diff", *files, *option)
        assert (result.code, result.err[:12]) == (2, "error[KG253]")
    assert "did you mean 'median'" in kgrun("diff", *files, "--metric", "medain").err
    assert parse_metrics("mean, p95,mean") == ("mean", "p95")
