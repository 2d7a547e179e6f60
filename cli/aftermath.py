"""What follows a failed run: the fault traced to its kernel by one more run in a fresh process, and `--repro`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgrun.cli import timeout as watchdog
from kgrun.graphs.errors import DeviceFault, InternalError, KgrunError, UsageError

if TYPE_CHECKING:
    from kgrun.graphs.bound import BoundGraph
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime.repro import Bundle

_AGAIN = "_KGRUN_TRACING"  # in the environment of a second run
_PATIENCE_S = 60.0
_PATIENCE = 5.0  # times what the first run took
_BUNDLED = (1, 4, 5, 6, 8, 9)  # exits that a bundle can reproduce
_OPTION_OF = {
    "device": "--device",
    "memory": "--memory",
    "memory_limit": "--memory-limit",
    "planner": "--planner",
    "time_limit": "--planner-time",
    "seed": "--seed",
    "max_chunk": "--max-chunk",
    "streams": "--streams",
    "iterations": "--iterations",
    "warmup": "--warmup",
    "duration": "--duration",
}
_FLAG_OF = {"strict": "--strict", "allow_empty": "--allow-empty", "sync_each": "--sync-each"}


def tracing() -> bool:
    """Whether this process is the second run of another, which wants to know the kernel at fault and nothing else."""
    return os.environ.get(_AGAIN) == "1"


@dataclass(slots=True)
class Aftermath:
    """What is known of a run when it fails.

    Attributes:
        words: the command line.
        repro: folder for a bundle, None for none.
        settings, loop: arguments of Session and of its `run`.
        more: further words that a second run needs.
        files: files that a bundle keeps besides, by their names in it.
        graph, given: as soon as they are loaded.
    """

    words: Sequence[str]
    repro: str | None
    settings: Mapping[str, Any]
    loop: Mapping[str, Any]
    more: Sequence[str] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    graph: KernelGraph | None = None
    given: Mapping[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def of(self, error: KgrunError) -> KgrunError:
        """The error that ends the command: the fault laid to its kernel where that can be found, the bundle named."""
        if tracing():
            return error
        if isinstance(error, DeviceFault) and self.graph is not None and _untraced(error):
            self._trace(error, self.graph)
        return self.kept(error)

    def kept(self, error: KgrunError) -> KgrunError:
        """Write the bundle where one is wanted, and say so in the error's help."""
        if self.repro is None or self.graph is None or error.exit not in _BUNDLED or tracing():
            return error
        try:
            bundle = self._bundle(error, self.graph)
        except Exception as other:
            text = other.message if isinstance(other, KgrunError) else f"{type(other).__name__}: {other}"
            _add_help(error, f"no bundle was written: {text}")
            return error
        error.details["repro"] = str(bundle.folder)
        _add_help(error, f"to run it again: {bundle.command}")
        return error

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

    def _bundle(self, error: KgrunError, graph: KernelGraph) -> Bundle:
        from kgrun.runtime.repro import Case, write_bundle
        from kgrun.runtime.session import bind_given

        settings = self.settings
        bound: BoundGraph = bind_given(
            graph, settings.get("dims") or {}, self.given, allow_empty=bool(settings.get("allow_empty"))
        )
        node = error.details.get("node")
        document = {"schema_version": 1, "ok": False, "error": error.to_json()}
        case = Case(
            bound=bound,
            given=self.given,
            seed=int(settings.get("seed") or 0),
            node=node if isinstance(node, str) else None,
            options=[*_options(settings), *_options(self.loop), *self.more],
            error=document,
            command=self.words,
            arch=None if settings.get("device") == "cpu" else _arch(),
            files=self.files,
        )
        assert self.repro is not None
        return write_bundle(Path(self.repro), case)


def _untraced(error: DeviceFault) -> bool:
    return error.code == "KG601" and "node" not in error.details


def _add_help(error: KgrunError, text: str) -> None:
    error.help = f"{error.help}\n  {text}" if error.help else text


def _as_stdin(words: Sequence[str], graph: KernelGraph) -> str | None:
    """What the second run gets on standard input, where the graph came from there."""
    return graph.model_dump_json(by_alias=True, exclude_unset=True) if "-" in words else None


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


def _options(arguments: Mapping[str, Any]) -> list[str]:
    """Arguments of the Python interface as words of the command line."""
    words: list[str] = []
    for name, value in arguments.items():
        if name in _FLAG_OF and value:
            words.append(_FLAG_OF[name])
        elif name in _OPTION_OF and value is not None:
            words += [_OPTION_OF[name], str(value)]
    return words


def _arch() -> str | None:
    """The architecture that the graph's kernels are compiled for here; None without a GPU."""
    try:
        from kgrun.runtime.devices.cuda_driver import load_pycuda

        major, minor = load_pycuda().Device(0).compute_capability()
    except Exception:  # no GPU, or one that does not answer any more: a bundle without cubins is one all the same
        return None
    return f"sm_{major}{minor}"


def timed_out(aftermath: Aftermath, error: KgrunError, load: Any) -> None:
    """In the supervisor, which has loaded nothing yet: load graph and inputs, then write the bundle."""
    if aftermath.repro is None or isinstance(error, (UsageError, InternalError)):
        return
    aftermath.graph, aftermath.given = load()
    aftermath.kept(error)
