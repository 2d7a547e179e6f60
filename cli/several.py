"""`kgrun execute A B …`: several graphs in one session: their inputs by graph, one run each in order, one report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgrun.cli import interrupts
from kgrun.cli import timeout as watchdog
from kgrun.cli.load import GraphOptions, read_graph
from kgrun.cli.output import Output
from kgrun.graphs.errors import UsageError
from kgrun.graphs.records import dataclass

if TYPE_CHECKING:
    from kgrun.cli.render.table import Table
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime.report import RunReport

# Settings and loops of a run that hold for one graph alone.
_ONE_GRAPH_ONLY = ("checks", "schedule", "allow_skip", "reuse_outputs", "streams")


@dataclass(frozen=True, slots=True)
class SeveralWork:
    """What to run: graph files, arrays as words, arguments of `Graphs` and of its `run`."""

    files: Sequence[str]
    allow_external_data: bool
    pairs: Sequence[str]
    bundle: str | None
    settings: Mapping[str, Any]
    loop: Mapping[str, Any]

    def run(self, output: Output) -> tuple[dict[str, RunReport], dict[str, int]]:
        """Reports by graph, and the memory of all together.

        Raises:
            UsageError: KG240 for a memory mode that is for one graph. KgrunError: as `Graphs`.
        """
        from kgrun.cli.progress import phase
        from kgrun.runtime.several import Graphs

        if self.settings["memory"] == "single":
            raise UsageError("--memory single runs one graph", code="KG240")
        with phase("loading", output):
            options = [GraphOptions(file, allow_external_data=self.allow_external_data) for file in self.files]
            graphs = [read_graph(each) for each in options]
            given = self._given(graphs)
        settings = {key: value for key, value in self.settings.items() if key not in _ONE_GRAPH_ONLY}
        tell = watchdog.tell if watchdog.supervised() else None
        with phase("preparing", output):
            session = Graphs(graphs, values=given, tell=tell, **settings)
        with session, phase("running", output):
            reports = session.run(given, **self.loop)
            memory = {
                "static_bytes": session.static_bytes,
                "arena_bytes": session.arena_bytes,
                "peak_bytes": session.peak_bytes,
                "apart_bytes": sum(report.plan.dynamic_bytes for report in reports.values()) + session.static_bytes,
                "measured_peak_bytes": session.device.peak_memory(),
            }
        return reports, memory

    def _given(self, graphs: Sequence[KernelGraph]) -> dict[str, dict[str, Any]]:
        """Arrays by graph and name: `GRAPH.NAME=FILE`, or `NAME=FILE` where one graph alone has the name."""
        from kgrun.cli.arrays import known_inputs
        from kgrun.graphs.data import load_inputs

        owners: dict[str, list[tuple[str, str]]] = {}
        known = {}
        for graph in graphs:
            for name, kind in known_inputs(graph).items():
                owners.setdefault(name, []).append((graph.name, name))
                owners[f"{graph.name}.{name}"] = [(graph.name, name)]
                known[f"{graph.name}.{name}"] = known[name] = kind
        bundles = [self.bundle] if self.bundle is not None else []
        arrays = load_inputs(self.pairs, bundles, known) if self.pairs or bundles else {}
        given: dict[str, dict[str, Any]] = {}
        for word, array in arrays.items():
            if len(owners[word]) > 1:
                names = ", ".join(f"{graph}.{name}" for graph, name in owners[word])
                raise UsageError(f"input {word!r} is of several graphs", code="KG272", help=f"name one of {names}")
            ((graph_name, name),) = owners[word]
            given.setdefault(graph_name, {})[name] = array
        return given


def execute(work: SeveralWork, output: Output, folder: str | None, bundle: str | None, samples: bool) -> None:
    """Run, write what is to be kept, show."""
    with interrupts.bounded():
        reports, memory = work.run(output)
    save(reports, folder, bundle)
    show(output, reports, memory, samples)


def save(reports: Mapping[str, RunReport], folder: str | None, bundle: str | None) -> None:
    """Outputs as `FOLDER/GRAPH/NAME.npy`, and in one .npz as `GRAPH.NAME`."""
    from kgrun.cli import arrays
    from kgrun.graphs.data import file_name

    watchdog.commit()
    if folder is not None:
        for name, report in reports.items():
            arrays.write_folder(Path(folder) / file_name(name), report.outputs)
    if bundle is not None:
        outputs = {f"{graph}.{name}": a for graph, report in reports.items() for name, a in report.outputs.items()}
        arrays.write_bundle(Path(bundle), outputs)


def show(output: Output, reports: Mapping[str, RunReport], memory: Mapping[str, int], samples: bool) -> None:
    """Print a report a graph, and the memory of all."""
    from kgrun.cli.render import documents
    from kgrun.cli.render.text import bytes_text
    from kgrun.cli.show import sections

    def lines() -> Iterator[Table | str]:
        for report in reports.values():
            yield from sections(report, output.verbose, alone=False)
            yield ""
        yield f"Together: {len(reports)} graphs"
        yield f"  static       {bytes_text(memory['static_bytes'])}"
        yield f"  arena        {bytes_text(memory['arena_bytes'])}, used by the graphs in turn"
        saved = memory["apart_bytes"] - memory["peak_bytes"]
        yield f"  planned      {bytes_text(memory['peak_bytes'])}, {bytes_text(saved)} less than with an arena each"
        yield f"  measured     {bytes_text(memory['measured_peak_bytes'])}"

    output.emit(
        document=lambda: {
            "graphs": [documents.run_document(report, samples) for report in reports.values()],
            "memory": dict(memory),
        },
        report=lines,
    )
