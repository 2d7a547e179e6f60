"""`kgrun validate`: load, check, infer shapes, lint launches; never needs a device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kgrun.cli import options as opt
from kgrun.cli import timeout as watchdog
from kgrun.cli.load import GraphOptions, bind_graph
from kgrun.cli.output import Output
from kgrun.cli.progress import phase
from kgrun.cli.values import check_number

if TYPE_CHECKING:
    from kgrun.cli.render.table import Table


def command(
    file: opt.GraphFile,
    json: opt.Json = False,
    csv: opt.Csv = None,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    no_color: opt.NoColor = False,
    arch: opt.Arch = None,
    dim: opt.Dims = None,
    strict: opt.Strict = False,
    allow_external_data: opt.ExternalData = False,
    allow_empty: opt.AllowEmpty = False,
    timeout: opt.Timeout = None,
) -> None:
    """Check a graph: its file, its types and shapes, its launches."""
    output = Output(json, csv, quiet, verbose, no_color)
    watchdog.supervise(check_number(timeout, "--timeout", positive=True), json=json)
    options = GraphOptions(file, dim, strict, allow_external_data, allow_empty, arch)
    with phase(f"checking {file}", output):
        bound = bind_graph(options)
    from kgrun.cli.render import graph as graph_part

    def report() -> Iterator[Table | str]:
        from kgrun.cli.render.memory import warning_sections

        yield graph_part.summary_line(bound)
        if verbose:
            yield graph_part.node_table(bound)
            yield graph_part.tensor_table(bound)
        yield from warning_sections(bound.warnings, verbose)

    output.emit(
        document=lambda: graph_part.validate_document(bound),
        report=report,
        rows=lambda: graph_part.tensor_rows(bound),
    )
