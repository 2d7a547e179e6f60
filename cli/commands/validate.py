"""`kgrun validate`: load, check, infer shapes, lint launches; compile for an architecture; never needs a device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kgrun.cli import options as opt
from kgrun.cli import timeout as watchdog
from kgrun.cli.load import GraphOptions, check_graph
from kgrun.cli.output import Output
from kgrun.cli.progress import phase
from kgrun.cli.values import check_number
from kgrun.graphs.errors import GraphError, UsageError

if TYPE_CHECKING:
    from kgrun.cli.render.table import Table
    from kgrun.graphs.bound import BoundGraph, Warning
    from kgrun.runtime.checks.target import KernelRow


def command(
    file: opt.GraphFile,
    json: opt.Json = False,
    csv: opt.Csv = None,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    no_color: opt.NoColor = False,
    arch: opt.Arch = None,
    target: opt.CompileTarget = None,
    dim: opt.Dims = None,
    strict: opt.Strict = False,
    allow_external_data: opt.ExternalData = False,
    allow_empty: opt.AllowEmpty = False,
    timeout: opt.Timeout = None,
) -> None:
    """Check a graph: its file, its types and shapes, its launches."""
    output = Output(json, csv, quiet, verbose, no_color)
    if target is not None and arch is not None and target != arch:
        raise UsageError(f"--arch {arch} and --target {target} differ", code="KG240", help="--target says both")
    watchdog.supervise(check_number(timeout, "--timeout", positive=True), json=json)
    options = GraphOptions(file, dim, strict, allow_external_data, allow_empty, target or arch)
    with phase(f"checking {file}", output):
        bound = check_graph(options)
    kernels: list[KernelRow] = []
    warnings = list(bound.warnings)
    if target is not None:
        with phase(f"compiling for {target}", output):
            kernels, more = compile_all(bound, target, strict)
        warnings += more
    show(output, bound, target, kernels, warnings)


def compile_all(bound: BoundGraph, target: str, strict: bool) -> tuple[list[KernelRow], list[Warning]]:
    """Compile and compare; with `strict` the warnings are errors. Raises as `check_target`."""
    from kgrun.runtime.checks.target import check_target

    kernels, warnings = check_target(bound, target)
    if strict and warnings:
        errors = [GraphError(w.message, code="KG399", where=bound.source.place(*w.path)) for w in warnings]
        errors[0].others = tuple(errors[1:])
        raise errors[0]
    return kernels, warnings


def show(
    output: Output, bound: BoundGraph, target: str | None, kernels: list[KernelRow], warnings: list[Warning]
) -> None:
    """Print what was found, in the form asked for."""
    from kgrun.cli.render import graph as graph_part

    def report() -> Iterator[Table | str]:
        from kgrun.cli.render.memory import warning_sections

        yield graph_part.summary_line(bound, len(warnings))
        if output.verbose:
            yield graph_part.node_table(bound)
            yield graph_part.tensor_table(bound)
        if target is not None:
            yield graph_part.kernel_table(kernels, target)
        yield from warning_sections(warnings, output.verbose)

    output.emit(
        document=lambda: graph_part.validate_document(bound, target, kernels, warnings),
        report=report,
        rows=lambda: graph_part.tensor_rows(bound),
    )
