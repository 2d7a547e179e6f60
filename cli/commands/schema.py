"""`kgrun schema`: the JSON Schema of graph files, or of the reports."""

from __future__ import annotations

import json as encoder
from enum import StrEnum
from typing import Annotated

from kgrun.cli import options as opt
from kgrun.cli.boundary import write_stdout


class Kind(StrEnum):
    """What has a schema."""

    graph = "graph"
    report = "report"


def command(
    kind: Annotated[Kind, opt.argument("[graph|report]", "Of graph files, or of what --json prints.")] = Kind.graph,
    json: opt.Json = False,
) -> None:
    """Print the JSON Schema of graph files (for editors), or of the JSON reports."""
    if kind is Kind.report:
        from kgrun.cli.render.schema import report_schema

        document = report_schema()
    else:
        from kgrun.graphs.schema.graph import json_schema

        document = json_schema()
    write_stdout(encoder.dumps(document, indent=2) + "\n")
