"""How a run is shown: the text report section by section, the JSON document, the CSV's rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kgrun.cli.output import Output
from kgrun.graphs.errors import KgrunError

if TYPE_CHECKING:
    from kgrun.cli.cold import ColdReport
    from kgrun.cli.render.table import Table
    from kgrun.runtime.report import RunReport


def show_run(
    output: Output, report: RunReport, error: KgrunError | None, samples: bool = False, cold: ColdReport | None = None
) -> None:
    """Print the report in the form asked for; `error` is what ends the command after it."""
    from kgrun.cli.render import documents, timing

    def text() -> Iterator[Table | str]:
        yield from sections(report, output.verbose)
        if cold is not None:
            from kgrun.cli.render.cold import cold_sections

            yield from cold_sections(cold)

    output.emit(
        document=lambda: documents.run_document(report, samples) | ({"cold": cold.document()} if cold else {}),
        report=text,
        rows=lambda: timing.kernel_rows(report),
        error=error,
    )


def sections(report: RunReport, verbose: bool, *, alone: bool = True) -> Iterator[Table | str]:
    """The text report of a run; what the device counted is of this run where it was `alone` in its session."""
    from kgrun.cli.dump import dump_line
    from kgrun.cli.render import documents, timing
    from kgrun.cli.render import memory as memory_part
    from kgrun.cli.render.checks import check_sections
    from kgrun.cli.render.offload import offload_sections
    from kgrun.cli.render.ranks import rank_sections

    yield timing.head_line(report)
    yield from timing.timing_sections(report, verbose)
    yield from rank_sections(report)
    yield from memory_part.memory_sections(report.program, report.plan, report.measured_peak_bytes if alone else None)
    yield from offload_sections(report.program, report)
    yield from memory_part.decision_sections(report.program.decisions)
    yield from check_sections(report)
    yield timing.output_table(report.outputs)
    if report.comparisons:
        yield timing.comparison_table(report.comparisons)
    if report.divergence is not None:
        from kgrun.cli.render.divergence import divergence_sections

        yield from divergence_sections(report.divergence, verbose)
    warnings = documents.all_warnings(report.program, *report.warnings)
    yield from memory_part.warning_sections(warnings, verbose)
    if report.dump is not None:
        yield dump_line(report.dump)
    if report.repro is not None:
        yield f"\nto run it again: {report.repro}"
