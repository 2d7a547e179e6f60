"""What a run's results are held against: expected outputs, and every node against a reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgrun.cli.checks import without_result
from kgrun.graphs.errors import CheckFailed, KgrunError, UsageError
from kgrun.graphs.records import dataclass

if TYPE_CHECKING:
    from kgrun.graphs.bound import BoundGraph
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime.divergence import Reference
    from kgrun.runtime.report import NodeDifference, RunReport


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the outputs are compared with."""

    file: str | None
    rtol: float
    atol: float
    equal_nan: bool

    def check(self, graph: KernelGraph) -> None:
        """UsageError or GraphError, before anything runs, for a file that cannot be compared with."""
        if self.file is not None:
            from kgrun.cli.arrays import check_expected

            check_expected(graph, self.file)

    def read(self, bound: BoundGraph) -> Mapping[str, Any] | None:
        """The expected arrays, None where nothing is expected."""
        from kgrun.cli.arrays import read_expected

        return read_expected(bound, "--expected", self.file) if self.file is not None else None

    def judge(self, report: RunReport, expected: Mapping[str, Any] | None) -> tuple[RunReport, KgrunError | None]:
        """The report with its comparisons, and the error that ends the command where they differ."""
        if expected is None:
            return report, None
        from kgrun.runtime.compare import compare

        found = tuple(compare(report.outputs, expected, self.rtol, self.atol, self.equal_nan))
        found = tuple(without_result(each) if each.name in report.uncomputed else each for each in found)
        bad = [each for each in found if not each.ok]
        report = replace(report, comparisons=found)
        if not bad:
            return report, None
        names = ", ".join(each.name for each in bad[:5]) + (", …" if len(bad) > 5 else "")
        message = f"{len(bad)} of {len(found)} outputs differ from {self.file}: {names}"
        help = f"tolerance was atol {self.atol:g} + rtol {self.rtol:g} × |expected|; see --rtol and --atol"
        return report, CheckFailed(message, code="KG801", help=help, details={"outputs": [each.name for each in bad]})


@dataclass(frozen=True, slots=True)
class NodeComparison:
    """`--compare-with`: "cpu", "onnxruntime" or a file of arrays by tensor name; None for no comparison.

    Attributes:
        model: the ONNX model that runs, None for a graph file.
    """

    reference: str | None
    tolerance: Expectation
    model: Path | None = None

    def check(self) -> None:
        """UsageError, before anything runs, for a reference that cannot be."""
        if self.reference == "onnxruntime" and self.model is None:
            raise UsageError(
                "ONNX Runtime runs ONNX models", code="KG240", help="give the model instead of a graph file"
            )
        if self.reference not in (None, "cpu", "onnxruntime"):
            from kgrun.cli.arrays import check_bundle

            if not Path(str(self.reference)).is_file():
                help = "cpu, onnxruntime, or a file of arrays: .npz, .safetensors"
                raise UsageError(f"--compare-with {self.reference}: no such file", code="KG253", help=help)
            check_bundle("--compare-with", str(self.reference))

    def start(self, session: Any) -> Callable[[], None]:
        """What puts parameters back as they are now, before the runs: references start there too.

        Raises:
            UsageError: the run is of a kind that is not compared.
        """
        from kgrun.runtime.session import Session

        if self.reference is None:
            return _nothing
        if not isinstance(session, Session):
            why = session.reason or "leave --memory single out"
            if session.reason is not None and self.model is not None:
                why += "; an ONNX model's inputs decide while it is read if --input gives them"
            text = "--compare-with needs a planned run, and the graph runs node by node"
            raise UsageError(text, code="KG240", help=why)
        if session.bound.queues or session.bound.caches:
            what = "a data queue" if session.bound.queues else "an embedding cache"
            raise UsageError(f"--compare-with needs inputs that stay, and {what} changes them", code="KG240")
        if session.program.offload is not None:
            raise UsageError("tensors that wait on the host cannot be compared", code="KG240", help="use --offload off")
        return session.loaded.snapshot() if session.loaded.updated else _nothing

    def judge(
        self, session: Any, given: Mapping[str, Any], settings: Mapping[str, Any], report: RunReport,
        restart: Callable[[], None],
    ) -> tuple[RunReport, KgrunError | None]:  # fmt: skip
        """The report with every node's difference, and the error that ends the command where one is too large."""
        if self.reference is None:
            return report, None
        from kgrun.runtime.divergence import divergences
        from kgrun.runtime.report import Divergence

        found = self._reference(session, given, settings)
        limits = self.tolerance
        restart()
        rows = divergences(session, found.arrays, limits.rtol, limits.atol, equal_nan=limits.equal_nan)
        divergence = Divergence(found.name, rows)
        report, first = replace(report, divergence=divergence), divergence.first
        if first is None:
            return report, None
        bad = sum(not row.ok for row in rows)
        error = CheckFailed(
            f"node {first.node!r} ({first.op}) is the first to differ from {found.name}: "
            f"{first.mismatched:,} of {first.size:,} elements of {first.tensor!r}; {bad} of {len(rows)} tensors differ",
            code="KG802",
            help=_tolerance_words(limits, first),
            details={"node": first.node, "tensor": first.tensor},
        )
        position = next((i for i, node in enumerate(session.bound.source.nodes) if node.name == first.node), None)
        return report, error if position is None else error.at(session.bound.source.place("nodes", position))

    def _reference(self, session: Any, given: Mapping[str, Any], settings: Mapping[str, Any]) -> Reference:
        from kgrun.cli.arrays import read_expected
        from kgrun.runtime.divergence import Reference, cpu_reference, onnxruntime_reference
        from kgrun.runtime.host_data import host_array

        bound = session.bound
        if self.reference == "cpu":
            return cpu_reference(bound.source, given, settings)
        if self.reference == "onnxruntime" and self.model is not None:
            seed = int(settings.get("seed") or 0)
            feeds = {n: host_array(bound, t, given, seed) for n, t in bound.tensors.items() if t.role == "input"}
            names = [name for node in bound.nodes for name in node.written_names()]
            return onnxruntime_reference(self.model, feeds, names)
        file = str(self.reference)
        return Reference(file, read_expected(bound, "--compare-with", file))


def _nothing() -> None:
    """Nothing has to be put back."""


def _tolerance_words(limits: Expectation, first: NodeDifference) -> str:
    if first.excess is None:
        return "integers and booleans must be equal"
    text = f"tolerance was atol {limits.atol:g} + rtol {limits.rtol:g} × |reference|, at least × its typical magnitude"
    if first.max_ulp is None:
        return f"{text}; numbers between two steps of a quantised type go either way, and need a larger --rtol"
    return f"{text}; see --rtol and --atol"
