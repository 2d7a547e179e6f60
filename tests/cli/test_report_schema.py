"""The published schema of the reports: it is what the command prints, and real documents fit it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kgrun.cli.boundary import error_document
from kgrun.cli.render import documents
from kgrun.cli.render.json import dumps
from kgrun.cli.render.schema import report_schema
from kgrun.graphs.errors import GraphError
from kgrun.runtime.report import RunReport

PUBLISHED = Path(__file__).parents[2] / "docs" / "report.schema.json"
HEAD = {"schema_version": 1, "ok": True}


def definition(name: str) -> dict[str, Any]:
    schema = report_schema()
    return {"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]}


def test_published_schema_is_the_one_printed(kgrun: Any) -> None:
    assert kgrun("schema", "report").out == PUBLISHED.read_text(encoding="utf-8")


def test_schema_of_graphs_has_its_id(kgrun: Any) -> None:
    document = kgrun("schema").json()
    assert document["$id"].endswith("/graph-1.json")
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("change", [{}, {"ok": "yes"}, {"extra": 1}, {"iterations": -1}, {"kernels": [{}]}])
def test_run_document_fits_and_wrong_ones_do_not(report: RunReport, faults: Any, change: dict[str, Any]) -> None:
    document = HEAD | json.loads(dumps(documents.run_document(report))) | change
    assert bool(faults(document, definition("execute"))) == bool(change)


def test_plan_document_fits(report: RunReport, faults: Any) -> None:
    document = HEAD | json.loads(dumps(documents.plan_document(report.program, report.plan)))
    assert faults(document, definition("plan_memory")) == []
    assert document["aliases"] == [{"name": "v", "of": "t", "offset": 16, "why": "view of t"}]


def test_failure_fits(faults: Any) -> None:
    document = json.loads(dumps(error_document(GraphError("wrong", details={"n": 1}, others=[GraphError("too")]))))
    assert faults(document, definition("failure")) == []
    assert faults(document, report_schema()) == []


def test_documents_of_commands_fit(kgrun: Any, graph_file: Any, faults: Any) -> None:
    assert faults(kgrun("validate", graph_file(), "--json").json(), definition("validate")) == []
    assert faults(kgrun("doctor", "--json").json(), definition("doctor")) == []
    assert faults(kgrun("validate", "missing.json", "--json").json(), definition("failure")) == []


def test_every_member_and_column_of_a_run_says_what_it_means(kgrun: Any, report: RunReport) -> None:
    from kgrun.cli.render.metrics import COLUMNS
    from kgrun.cli.render.timing import kernel_table, total_lines

    found = report_schema()["$defs"]
    for name in ("execute", "kernel_row", "stats", "memory"):
        silent = [member for member, schema in found[name]["properties"].items() if not schema.get("description")]
        assert silent == [], name
    assert {column.lstrip(">") for column in kernel_table(report, verbose=True).columns} <= COLUMNS.keys()
    lines = {line[2:15].strip() for line in total_lines(report)} - {""}
    assert lines
    assert lines <= {name for key in COLUMNS for name in key.split(", ")}
    page = kgrun("execute", "--help-metrics").out
    assert all(name in page for name in (*COLUMNS, "balance.difference_ns", "kernels[].overhead_bound"))
