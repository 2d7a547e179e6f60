"""Commands over several ranks: start them (`--ranks`), be one of them, show what all of them found."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgrun.cli import boundary
from kgrun.cli.boundary import Finished
from kgrun.graphs.errors import KgrunError, UsageError
from kgrun.graphs.operators.names import COMMUNICATING

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime.collectives.ranks import RankInfo
    from kgrun.runtime.collectives.world import World
    from kgrun.runtime.report import RunReport

_VARIABLES = ("RANK", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")
_RUNS_ON_CUDA = 3  # warm-up runs: ranks that each looked at their own times would not run equally often


def launched_here(ranks: int | None, limit: float | None, on_cpu: bool) -> None:
    """Where `--ranks` asks for it, run this command as so many processes and end with what became of them."""
    if ranks is None:
        return
    from kgrun.runtime.collectives.ranks import STORE

    if STORE in os.environ:
        return
    from kgrun.runtime.collectives.launch import launch

    words = without_ranks(boundary.command_line())
    if "-" in words:
        raise UsageError(
            "standard input is for one process", code="KG240", help="with --ranks give the graph as a file"
        )
    done = launch([sys.executable, "-P", "-m", "kgrun.cli", *words], ranks, limit, _environment(), mpi=on_cpu)
    if done.error is not None:
        raise done.error
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(done.err)
    boundary.write_stdout(done.out)
    raise Finished(max(done.exits.values(), default=0))


def _environment() -> dict[str, str]:
    paths = [path or os.getcwd() for path in sys.path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def without_ranks(words: Sequence[str]) -> list[str]:
    """The command line of one rank: without `--ranks`, and without the time limit that the launcher keeps."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in ("--ranks", "--timeout"):
            skip = True
        elif not word.startswith(("--ranks=", "--timeout=")):
            kept.append(word)
    return kept


class Team:
    """This process as a rank of a job, for one command."""

    def __init__(self, info: RankInfo, limit: float | None) -> None:
        self.info, self._limit = info, limit
        self._world: World | None = None
        self._read: KernelGraph | None = None

    @property
    def first(self) -> bool:
        """Whether this is rank 0, which speaks for all."""
        return self.info.rank == 0

    def enter(self) -> None:
        """Find the other ranks; from now on a failure here is told to them."""
        from kgrun.runtime.collectives.world import enter

        self._world = enter(self.info, self._limit)
        boundary.on_failure(self._fail)

    def _fail(self, error: KgrunError) -> None:
        if self._world is not None:
            self._world.fail(error)

    def device(self, name: str, on_cpu: bool) -> str:
        """The device that the user's `name` means here: the GPU of the local rank, unless one is named (S4)."""
        if name in ("cuda", "auto") and not (name == "auto" and on_cpu):
            return f"cuda:{self.info.local_rank}"
        return "cpu" if name == "auto" else name

    def loop(self, loop: Mapping[str, Any], on_cpu: bool) -> dict[str, Any]:
        """How often to run: as often on every rank, which nothing that a rank measures may decide."""
        if loop.get("duration") is not None:
            raise UsageError(
                "--duration is for one rank", code="KG240", help="give --iterations: all ranks run equally often"
            )
        fixed = dict(loop)
        if not on_cpu:
            fixed |= {"timing": "events", "roofline": False}
            fixed["warmup"] = _RUNS_ON_CUDA if loop.get("warmup") is None else loop["warmup"]
        return fixed

    def greet(self, graph: KernelGraph, settings: Mapping[str, Any], loop: Mapping[str, Any]) -> None:
        """Meet the others and see that all run the same."""
        assert self._world is not None
        graph = self._read or graph  # as the file has it: names of data may differ by rank
        options = {key: repr(value) for key, value in {**settings, **loop}.items() if key not in ("device", "queues")}
        document = graph.model_dump(mode="json", by_alias=True, exclude_unset=True)
        text = json.dumps(document) + repr(sorted(options.items()))
        kind = str(settings["device"]).partition(":")[0]
        communicates = any(getattr(node, "op", None) in COMMUNICATING for node in graph.nodes)
        self._world.greet(hashlib.sha256(text.encode()).hexdigest(), kind, communicates=communicates)

    def remember(self, graph: KernelGraph) -> None:
        """What was read, to be compared with what the others read."""
        self._read = graph

    def settle(self) -> None:
        """See, before the first run, that all ranks are about to do the same."""
        assert self._world is not None
        self._world.settle()

    def dims(self, graph: KernelGraph) -> dict[str, int]:
        """The dimensions that the job tells, where the file has none of that name."""
        told = {"rank": self.info.rank, "world_size": self.info.size}
        return {name: value for name, value in told.items() if name not in graph.dims}

    def words(self, words: Sequence[str]) -> list[str]:
        """`{rank}` and `{world_size}` in files that options name."""
        return [self.path(word) for word in words]

    def path(self, text: str) -> str:
        """`text` with `{rank}` and `{world_size}` replaced."""
        return placed(text, self.info.rank, self.info.size)

    def folder(self, folder: str | None) -> str | None:
        """Where this rank's outputs go: rank 0's to the folder itself."""
        return folder if folder is None or self.first else str(Path(folder) / f"rank_{self.info.rank}")

    def bundle(self, folder: str | None) -> str | None:
        """Where this rank's `--repro` goes: each has one of its own, since all may fail at once."""
        return folder if folder is None or self.info.size == 1 else str(Path(folder) / f"rank_{self.info.rank}")

    def notes(self) -> list[str]:
        """What whoever runs this rank's bundle should know."""
        rank, size = self.info.rank, self.info.size
        return [] if size == 1 else [f"this was rank {rank} of {size}; here it runs alone, as a job of one rank"]

    def ran(self) -> None:
        """Wait until every rank is done with its runs: what is written from now on is of a run that went well.

        Raises:
            DeviceFault, TimeoutExpired: a rank did not get here.
        """
        from kgrun.runtime.collectives.world import WAIT_SECONDS

        assert self._world is not None
        limit = WAIT_SECONDS if self._limit is None else None
        self._world.meeting.gather("ran", 0, self._world.everyone, "ending the run", limit)

    def report(self, report: RunReport) -> RunReport:
        """Rank 0's report with what all ranks found."""
        from kgrun.runtime.collectives.summary import merged, told

        assert self._world is not None
        meeting, everyone = self._world.meeting, self._world.everyone
        meeting.post("report", told(report), to=0)
        if not self.first:
            return report
        return replace(report, ranks=merged(meeting.collect("report", everyone, "gathering reports")))

    def leave(self) -> None:
        """End together with the others; a rank that does not speak ends the process here."""
        assert self._world is not None
        self._world.finish()
        boundary.on_failure(None)
        if not self.first:
            raise Finished(0)


def find_team(timeout: float | None) -> Team | None:
    """The job that this process is a rank of, None where it is alone. Forks: the rank is a child of its holder.

    A job of one rank that a launcher of others started runs as a process alone does, but through its device's engine.
    """
    if not any(name in os.environ for name in _VARIABLES):
        return None
    from kgrun.runtime.collectives.holder import hold
    from kgrun.runtime.collectives.ranks import LIMIT, ranks_from_environment

    info = ranks_from_environment()
    if info is None:
        return None
    if info.size == 1 and info.hosted:
        from kgrun.runtime.collectives.world import enter

        enter(info)
        return None
    until = os.environ.get(LIMIT)
    limit = max(0.1, float(until) - time.time()) if until else timeout
    hold(info, limit)
    return Team(info, limit)


def at_rank(graph: KernelGraph, team: Team | None) -> KernelGraph:
    """The graph with `{rank}` and `{world_size}` in names of data files replaced; by 0 and 1 in a process alone."""
    rank, size = (0, 1) if team is None else (team.info.rank, team.info.size)
    if team is not None:
        team.remember(graph)
    changed = {
        name: spec.model_copy(update={"data": placed(spec.data, rank, size)})
        for name, spec in graph.tensors.items()
        if isinstance(spec.data, str) and "{" in spec.data
    }
    return graph.model_copy(update={"tensors": {**graph.tensors, **changed}}) if changed else graph


def placed(text: str, rank: int, size: int) -> str:
    """`text` with `{rank}` and `{world_size}` replaced."""
    return text.replace("{rank}", str(rank)).replace("{world_size}", str(size))
