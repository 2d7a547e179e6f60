"""One graph, run once: what is loaded, what runs, what is written afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgrun.cli import timeout as watchdog
from kgrun.cli.judging import Expectation, NodeComparison
from kgrun.cli.load import GraphOptions, read_graph, read_graph_for
from kgrun.cli.output import Output
from kgrun.cli.parameters import NO_FILES, ParameterFiles
from kgrun.cli.ranks import Team, at_rank
from kgrun.graphs.errors import KgrunError
from kgrun.graphs.records import dataclass

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime.report import RunReport


@dataclass(frozen=True, slots=True)
class Saving:
    """Files to write after the run."""

    folder: str | None = None
    bundle: str | None = None
    trace: str | None = None

    def write(self, report: RunReport) -> None:
        """Write what was asked for; each file is complete or absent."""
        from kgrun.cli import arrays

        watchdog.commit()
        if self.folder is not None:
            arrays.write_folder(Path(self.folder), report.outputs)
        if self.bundle is not None:
            arrays.write_bundle(Path(self.bundle), report.outputs)
        if self.trace is not None:
            from kgrun.cli.render.trace import write_trace

            write_trace(Path(self.trace), report)


@dataclass(frozen=True, slots=True)
class Work:
    """What to run: `settings` are Session's arguments, `loop` those of its `run`."""

    graph: GraphOptions
    pairs: Sequence[str]
    bundle: str | None
    settings: dict[str, Any]
    loop: dict[str, Any]
    expectation: Expectation
    parameters: ParameterFiles = NO_FILES
    nodes: NodeComparison | None = None
    team: Team | None = None

    def load(self, output: Output) -> tuple[KernelGraph, Mapping[str, Any]]:
        """Graph and given arrays."""
        from kgrun.cli.arrays import read_inputs
        from kgrun.cli.progress import phase

        with phase(f"loading {self.graph.file}", output):
            graph = read_graph(self.graph)
            given = self.parameters.read(graph) | read_inputs(graph, self.pairs, self.bundle)
            graph = at_rank(read_graph_for(self.graph, graph, given), self.team)
            self.expectation.check(graph)
        return graph, given

    def run(self, output: Output, graph: KernelGraph, given: Mapping[str, Any]) -> tuple[RunReport, KgrunError | None]:
        """The report, and the error that ends the command after it where outputs differ."""
        from kgrun.cli.progress import phase
        from kgrun.runtime.sessions import open_session

        with phase("preparing", output):
            tell = watchdog.tell if watchdog.supervised() else None
            settings = dict(self.settings)
            if self.team is not None:
                self.team.greet(graph, settings, self.loop)
                settings["dims"] = self.team.dims(graph) | settings["dims"]
            session = open_session(graph, values=given, tell=tell, **settings)
        with session, phase("running", output):
            if self.team is not None:
                self.team.settle()
            # Nothing that an earlier run left may pass for what is compared.
            restart = self.nodes.start(session) if self.nodes is not None else None
            report = session.run(given, poison=self.expectation.file is not None, **self.loop)
            if self.team is not None:
                self.team.ran()
            wanted = self.expectation.read(report.program.graph)
            report = self.parameters.write(session, report, given)
            problem: KgrunError | None = None
            if self.nodes is not None and restart is not None:
                report, problem = self.nodes.judge(session, given, self.settings, report, restart)
        from kgrun.cli.checks import judge_checks

        report, error = judge_checks(*self.expectation.judge(report, wanted))
        return report, error or problem
