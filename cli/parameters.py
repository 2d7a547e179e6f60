"""`--load-parameters` and `--save-parameters`: the files a run's parameters come from and go to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kgrun.cli import timeout as watchdog
from kgrun.cli.aftermath import tracing
from kgrun.graphs.bound import Warning
from kgrun.graphs.records import dataclass

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime.eager import EagerSession
    from kgrun.runtime.report import RunReport
    from kgrun.runtime.session import Session


@dataclass(frozen=True, slots=True)
class ParameterFiles:
    """Where parameters come from, and where they go after the run; None: nowhere."""

    load: str | None = None
    save: str | None = None

    def read(self, graph: KernelGraph) -> dict[str, Any]:
        """Arrays by name; also checks, before anything runs, that the file to be written is of a known kind."""
        from kgrun.runtime.parameters import form_of, load_parameters

        if self.save is not None:
            form_of(self.save, "--save-parameters")
        return {} if self.load is None else load_parameters(graph, self.load)

    def write(self, session: Session | EagerSession, report: RunReport, given: Collection[str]) -> RunReport:
        """Write what the run left; the report says which parameters kept their own data: those that `given` has not.

        The file that they came from is not read again. After a long run it may be gone, and the result must not go too.
        """
        from kgrun.runtime.parameters import parameters_of, save_parameters

        missing = [name for name in parameters_of(report.program.graph.source) if name not in given]
        if self.load is not None and missing:
            names = ", ".join(missing[:10]) + (", …" if len(missing) > 10 else "")
            warning = Warning("W-PARAMETERS", f"not in {self.load}, so with their own data: {names}")
            report = replace(report, warnings=(*report.warnings, warning))
        if self.save is not None and not tracing():
            watchdog.commit()
            save_parameters(session, self.save)
        return report


NO_FILES = ParameterFiles()
