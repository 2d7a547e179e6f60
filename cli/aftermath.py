"""What follows a failed run: the fault traced to its kernel by one more run in a fresh process, and `--repro`."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from kgrun.cli import boundary
from kgrun.cli import timeout as watchdog
from kgrun.cli.boundary import Finished
from kgrun.cli.output import Output
from kgrun.graphs.errors import CheckFailed, DeviceFault, KgrunError, TimeoutExpired, UsageError
from kgrun.runtime.orphans import die_with_parent
from kgrun.runtime.phases import Phases

if TYPE_CHECKING:
    from kgrun.graphs.bound import BoundGraph
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime.report import RunReport
    from kgrun.runtime.repro import Bundle

_AGAIN = "_KGRUN_TRACING"  # in the environment of a second run
_PATIENCE_S = 60.0
_PATIENCE = 5.0  # times what the first run took
_BUNDLED = (1, 4, 5, 6, 8, 9)  # exits that a bundle can reproduce


def tracing() -> bool:
    """Whether this process is the second run of another, which wants to know the kernel at fault and nothing else."""
    return os.environ.get(_AGAIN) == "1"


class Work(Protocol):
    """What is run: `cli.execution.Work`."""

    settings: dict[str, Any]
    loop: dict[str, Any]
    expectation: Any
    nodes: Any
    team: Any

    def load(self, output: Output) -> tuple[KernelGraph, Mapping[str, Any]]: ...
    def run(
        self, output: Output, graph: KernelGraph, given: Mapping[str, Any]
    ) -> tuple[RunReport, KgrunError | None]: ...


class Aftermath:
    """One run of `work` and what follows where it fails.

    Args:
        words: the command line.
        repro: folder for a bundle, None for none; `always`: also of a run that does not fail, with its outputs.
        timeout: of the command, for the bundle of a run that it ends.

    Attributes:
        phases: of what happens before the session.
    """

    def __init__(
        self, work: Any, words: Sequence[str], repro: str | None, timeout: float | None, *, always: bool = False
    ) -> None:
        self.work: Work = work
        self.words, self.timeout, self.always = words, timeout, always
        self.repro = None if repro is None or tracing() else Path(repro)
        if self.repro is not None:
            from kgrun.runtime.repro.folder import check_folder

            check_folder(self.repro)
        self.phases = Phases()
        self.graph: KernelGraph | None = None
        self.given: Mapping[str, Any] = {}
        self.started = time.monotonic()

    def run(self, output: Output) -> tuple[RunReport, KgrunError | None]:
        """The report, and the error that ends the command after it; a fault is raised with its kernel's name."""
        try:
            self._load(output)
            assert self.graph is not None
            with self.phases("import the runtime"):
                importlib.import_module("kgrun.runtime.session")
            boundary.started()
            report, problem = self.work.run(output, self.graph, self.given)
        except KgrunError as error:
            if isinstance(error, DeviceFault) and self.graph is not None and _untraced(error) and not tracing():
                self._trace(error, self.graph)
            self._keep(error)
            raise
        if problem is not None:
            self._keep(problem)
        elif self.always and self.repro is not None:
            from kgrun.graphs.bind.unsupported import RunTimeOnly
            from kgrun.graphs.operators.base import ValueUnknown

            watchdog.commit()
            try:
                bundle = self._bundle(None, self.graph, self.repro, report.outputs)
            except (RunTimeOnly, ValueUnknown) as error:
                raise _needs_a_plan(error.message) from None
            report = dataclasses.replace(report, repro=bundle.command)
        return report, problem

    def trace_here(self, output: Output) -> NoReturn:
        """Be the second run: wait after each step, print nothing but whether that failed."""
        die_with_parent(os.getppid())
        work = self.work
        settings = {"sync_each": True} | ({"streams": "file"} if "streams" in work.settings else {})
        once = {"iterations": 1, "warmup": 0, "duration": None, "per_step": False, "dump": None}
        self.work = dataclasses.replace(work, settings=work.settings | settings, loop=work.loop | once)  # type: ignore
        self.run(output)
        output.emit(document=dict, report=list)
        raise Finished(0)

    def at_time_limit(self, error: TimeoutExpired) -> None:
        """In the supervisor, which has loaded nothing: load what ran, and write the bundle."""
        if self.repro is not None:
            self._load(Output(quiet=True))
            self._keep(error)

    def _load(self, output: Output) -> None:
        with self.phases("load graph and inputs"):
            self.graph, self.given = self.work.load(output)
        from kgrun.graphs.control import run_time_reason

        if self.always and (why := run_time_reason(self.graph)) is not None:  # said before a run whose result is lost
            raise _needs_a_plan(why)

    def _keep(self, error: KgrunError) -> None:
        """Write the bundle where one is wanted, and say so in the error's help."""
        if self.repro is None or self.graph is None or error.exit not in _BUNDLED:
            return
        watchdog.commit()  # the fault came in time: writing it down is not cut short
        try:
            bundle = self._bundle(error, self.graph, self.repro)
        except Exception as other:  # the error that is being reported matters more
            text = other.message if isinstance(other, KgrunError) else f"{type(other).__name__}: {other}"
            _add_help(error, f"no bundle was written: {text}")
            return
        error.details["repro"] = str(bundle.folder)
        _add_help(error, f"to run it again: {bundle.command}")

    def _trace(self, error: DeviceFault, graph: KernelGraph) -> None:
        """Run once more, waiting after each step, and lay `error` to the step that fails then."""
        limit = _PATIENCE_S + _PATIENCE * (time.monotonic() - self.started)
        watchdog.tell({"doing": "a second run looked for the kernel at fault"})
        code, found = _run_again(self.words, _as_stdin(self.words, graph), limit)
        culprit = found.get("error") if isinstance(found.get("error"), dict) else None
        details = culprit.get("details", {}) if culprit else {}
        if culprit is None or code != error.exit or "node" not in details:
            _add_help(error, _not_found(code, culprit, limit))
            return
        error.message = str(culprit["message"])
        error.args = (error.message,)
        error.details |= {**details, "suspects": error.details.get("suspects", [])}
        error.help = f"{culprit['help']}; found by a second run that waited after each step"
        position = next((i for i, node in enumerate(graph.nodes) if node.name == details["node"]), None)
        if position is not None:
            error.where = graph.place("nodes", position)

    def _bundle(
        self, error: KgrunError | None, graph: KernelGraph, folder: Path, outputs: Mapping[str, Any] | None = None
    ) -> Bundle:
        from kgrun.cli.bundled import held_against, settings_words
        from kgrun.graphs.bind.given import bind_given
        from kgrun.runtime.repro import Case, write_bundle

        settings = self.work.settings
        dims, empty = settings.get("dims") or {}, bool(settings.get("allow_empty"))
        options, files = settings_words({**settings, **self.work.loop})
        node = None if error is None else error.details.get("node")
        notes: list[str] = []
        if isinstance(error, CheckFailed):
            judged, kept, notes = held_against(self.work, whole=node is None)
            options, files = [*options, *judged], files | kept
        if self.work.team is not None:
            notes += self.work.team.notes()
        if isinstance(error, TimeoutExpired) and self.timeout is not None:
            options += ["--timeout", f"{self.timeout:g}"]
        bound = bind_given(graph, dims, self.given, allow_empty=empty)
        case = Case(
            bound=bound,
            given=self.given if not bound.queues else {**self.given, **_first_batches(bound, settings)},
            seed=int(settings.get("seed") or 0),
            node=node if isinstance(node, str) else None,
            options=options,
            error=None if error is None else boundary.error_document(error),
            command=self.words,
            arch=_arch(str(settings.get("device"))),
            files=files,
            outputs=outputs or {},
            notes=notes,
        )
        return write_bundle(folder, case)


def _untraced(error: DeviceFault) -> bool:
    return error.code in ("KG600", "KG601") and "node" not in error.details


def _add_help(error: KgrunError, text: str) -> None:
    error.help = f"{error.help}\n  {text}" if error.help else text


def _as_stdin(words: Sequence[str], graph: KernelGraph) -> str | None:
    """What the second run gets on standard input, where the graph came from there."""
    return json.dumps(graph.model_dump(mode="json", by_alias=True, exclude_unset=True)) if "-" in words else None


def _run_again(words: Sequence[str], stdin: str | None, limit: float) -> tuple[int | None, dict[str, Any]]:
    """Exit code (None after `limit` seconds) and JSON document of the same command in a fresh process."""
    command = [sys.executable, "-P", "-m", "kgrun.cli", words[0], "--json", *words[1:]]
    paths = [path or os.getcwd() for path in sys.path]
    environment = {**os.environ, _AGAIN: "1", "PYTHONPATH": os.pathsep.join(paths)}
    sys.stdout.flush()
    try:
        done = subprocess.run(
            command,
            input=stdin or "",
            capture_output=True,
            encoding="utf-8",
            env=environment,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, {}
    except OSError as error:
        return 1, {"error": {"message": f"it could not be started: {error.strerror or error}"}}
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = {}
    return done.returncode, found if isinstance(found, dict) else {}


def _not_found(code: int | None, error: Mapping[str, Any] | None, limit: float) -> str:
    if code == 0:
        return (
            "a second run that waited after each step did not fail: look for a race, or for an address that depends on "
            "what ran before; compute-sanitizer may tell more"
        )
    if code is None:
        return f"a second run that waited after each step did not end within {limit:.0f} s"
    said = f": {error['message']}" if error else ""
    ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit {code}"
    return f"a second run that waited after each step {ended} and named no kernel{said}"


def _arch(device: str) -> str | None:
    """The architecture that kernels are compiled for on `device`; None for the CPU and without a GPU."""
    kind, _, ordinal = device.partition(":")
    if kind == "cpu":
        return None
    try:
        from kgrun.runtime.devices.cuda_pycuda import load_pycuda

        major, minor = load_pycuda().Device(int(ordinal or 0)).compute_capability()
    except Exception:  # no GPU, or one that does not answer any more: a bundle without cubins is one all the same
        return None
    return f"sm_{major}{minor}"


def _first_batches(bound: BoundGraph, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What the data queues give first; nothing where that cannot be had."""
    from kgrun.runtime.queues.batches import first_batches

    try:
        return first_batches(bound, settings.get("queues") or {})
    except KgrunError:
        return {}


def _needs_a_plan(why: str) -> UsageError:
    text = "--repro-always needs a planned run, and the graph runs node by node"
    return UsageError(text, code="KG240", help=why)
