"""`kgrun execute --sweep N=16,32`: one graph at several sizes in one session, each planned once."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kgrun.cli import interrupts
from kgrun.cli import timeout as watchdog
from kgrun.cli.load import GraphOptions, own_names, read_graph
from kgrun.cli.output import Output
from kgrun.cli.values import parse_dims
from kgrun.graphs.errors import UsageError
from kgrun.graphs.records import dataclass

if TYPE_CHECKING:
    from kgrun.cli.render.table import Table
    from kgrun.runtime.report import RunReport

_NOT_SWEPT = ("reuse_outputs", "streams")
Sizes = dict[str, int]


def parse_sweep(words: Iterable[str]) -> list[Sizes]:
    """Every combination of the sizes in `N=16,32` words, the last word's varying fastest.

    Raises:
        UsageError: KG252 for a malformed word or a dimension given twice.
    """
    sizes: dict[str, list[int]] = {}
    for word in words:
        name, _, values = word.partition("=")
        if name in sizes:
            raise UsageError(f"--sweep {name} is given twice", code="KG252", help=f"write --sweep {name}=16,32")
        found = [parse_dims([f"{name}={value.strip()}"])[name] for value in values.split(",")] if name else []
        if not found:
            raise UsageError(
                f"--sweep: {word!r} is not NAME=SIZE,SIZE", code="KG252", help="for example --sweep N=16,32"
            )
        sizes[name] = found
    return [dict(zip(sizes, each, strict=True)) for each in itertools.product(*sizes.values())]


@dataclass(frozen=True, slots=True)
class SweepWork:
    """What to run: a graph file, its inputs as words, the sizes, arguments of `ShapeSession` and of its `run`."""

    graph: GraphOptions
    pairs: Sequence[str]
    bundle: str | None
    sweep: Sequence[Sizes]
    settings: Mapping[str, Any]
    loop: Mapping[str, Any]

    def run(self, output: Output) -> tuple[list[tuple[Sizes, RunReport]], dict[str, int]]:
        """A report each combination of sizes, and what was kept and planned.

        Raises:
            UsageError: KG240 for a memory mode that plans nothing, for a size that is given twice.
            KgrunError: as `ShapeSession`.
        """
        from kgrun.cli.arrays import read_inputs
        from kgrun.cli.progress import phase
        from kgrun.runtime.shapes import ShapeSession

        if self.settings["memory"] == "single":
            raise UsageError("--memory single plans nothing that could be kept", code="KG240")
        if both := self.settings["dims"].keys() & self.sweep[0].keys():
            raise UsageError(f"--sweep and --dim both say what {min(both)} is", code="KG240", help="leave one out")
        with phase(f"loading {self.graph.file}", output):
            graph = read_graph(self.graph)
            given = read_inputs(graph, self.pairs, self.bundle)
        settings = {key: value for key, value in self.settings.items() if key not in _NOT_SWEPT}
        settings["dims"] = own_names(self.graph, graph, settings["dims"])
        tell = watchdog.tell if watchdog.supervised() else None
        reports = []
        with ShapeSession(graph, tell=tell, capacity=max(len(self.sweep), 1), **settings) as session:
            for sizes in self.sweep:
                with phase(f"running {_words(sizes)}", output):
                    dims = own_names(self.graph, graph, sizes)
                    reports.append((sizes, session.run(given, dims=dims, **self.loop)))
            found = session.statistics
        return reports, {"hits": found.hits, "plans": found.plans, "evictions": found.evictions}


def _words(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def execute(work: SweepWork, output: Output, samples: bool, verbose: bool) -> None:
    """Run at every size, show."""
    with interrupts.bounded():
        reports, kept = work.run(output)
    show(output, reports, kept, samples, verbose)


def show(
    output: Output, reports: Sequence[tuple[Sizes, RunReport]], kept: Mapping[str, int], samples: bool, verbose: bool
) -> None:
    """Print a row each combination; with -v the whole report of each."""
    from kgrun.cli.render import documents
    from kgrun.cli.render.table import Table
    from kgrun.cli.render.text import bytes_text, time_text
    from kgrun.cli.show import sections

    def lines() -> Iterator[Table | str]:
        if verbose:
            for _, report in reports:
                yield from sections(report, verbose, alone=False)
                yield ""
        rows = [
            (
                _words(sizes),
                _words(report.program.graph.dims),
                time_text(report.total.median if report.total else None),
                time_text(report.plan.plan_ns),
                bytes_text(report.plan.peak_bytes),
            )
            for sizes, report in reports
        ]
        yield Table("Sizes", ("size", "bound as", ">total", ">planned in", ">peak"), rows, rest="sizes")
        yield f"  kept         {kept['plans']} plans for {len(reports)} sizes, {kept['hits']} found again"

    output.emit(
        document=lambda: {
            "sizes": [{"dims": sizes, "run": documents.run_document(report, samples)} for sizes, report in reports],
            "kept": dict(kept),
        },
        report=lines,
    )
