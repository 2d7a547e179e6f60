"""Start N ranks of one command on this host, watch them, and say what became of them."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kgrun.graphs.errors import DeviceFault, DeviceUnavailable, KgrunError, TimeoutExpired
from kgrun.runtime.collectives import store
from kgrun.runtime.collectives.ranks import LIMIT, STORE, TOKEN, as_rank, outside_of_jobs
from kgrun.runtime.collectives.store import Store
from kgrun.runtime.collectives.world import START_SECONDS

_LAST_WORDS_S = 2.0  # from the first failure to the last rank's word
_END_S = 5.0
_MARGIN = 0.85  # of the time limit for ranks to notice by themselves who is late
_LAST_WORDS = {store.BYE, store.FAILED, store.GONE, store.STATUS}
_WITHOUT = ("KGRUN_RANKS", "KGRUN_TIMEOUT")

Heard = Mapping[int, Mapping[str, Any]]


@dataclass(slots=True)
class Launched:
    """What became of a job.

    Attributes:
        out, err: what its ranks printed.
        error: why it failed; None where it did not.
        exits: exit code of each rank as far as it is known; negative: the signal that ended it.
    """

    out: str = ""
    err: str = ""
    error: KgrunError | None = None
    exits: dict[int, int] = field(default_factory=dict)


def launch(
    command: Sequence[str],
    ranks: int,
    limit: float | None,
    environ: Mapping[str, str] | None = None,
    *,
    mpi: bool = True,
) -> Launched:
    """Run `command` as `ranks` processes; when this returns none of them is left.

    Args:
        limit: seconds for the whole; None: no limit, but a minute for all ranks to come.
        mpi: start them through mpiexec, without which ranks on the CPU could not talk; GPUs need none.

    Raises:
        DeviceUnavailable: KG707 where there is no mpiexec.
    """
    given = outside_of_jobs(os.environ if environ is None else environ)
    env = {key: value for key, value in given.items() if key not in _WITHOUT}
    token = secrets.token_hex(16)
    starts = (
        _through_mpiexec(command, ranks) if mpi else [(list(command), as_rank(rank, ranks)) for rank in range(ranks)]
    )
    meeting = Store("127.0.0.1", 0, token, ranks)
    env |= {STORE: f"127.0.0.1:{meeting.address[1]}", TOKEN: token}
    env.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // ranks)))
    if limit is not None:
        env[LIMIT] = str(time.time() + limit * _MARGIN)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        job = _Job(meeting, ranks, limit)
        try:
            for words, more in starts:
                job.start(words, env | more, out, err)
            job.watch()
            heard = job.heard()  # before the rest is ended, which is nobody's fault
        finally:
            job.end()
        found = Launched(_text(out), _text(err), exits=_exits(heard))
    found.error = job.verdict(heard, found.err)
    return found


def find_mpiexec() -> str | None:
    """The mpiexec beside this Python, else the first of PATH."""
    return shutil.which("mpiexec", path=os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", ""))


def _through_mpiexec(command: Sequence[str], ranks: int) -> list[tuple[list[str], dict[str, str]]]:
    mpiexec = find_mpiexec()
    if mpiexec is None:
        help = "pip install 'kgrun[mpi]' brings mpi4py and MPICH"
        raise DeviceUnavailable("--ranks needs MPI's mpiexec, and there is none", code="KG707", help=help)
    # Open MPI starts nothing as root, nor more ranks than there are cores, unless it is told to; others do not look.
    more = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}
    if os.geteuid() == 0:
        more |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return [([mpiexec, "-n", str(ranks), *command], more)]


def _bound_to_this_process() -> list[str]:
    """What a command starts with that the system is to kill when this process ends (`orphans.die_with_parent`).

    A program of its own, because a function between fork and exec may find the locks of other threads held for ever.
    """
    if sys.platform != "linux":
        return []
    program = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9)"  # PR_SET_PDEATHSIG, SIGKILL
    program += "; os.getppid() == int(sys.argv[1]) or os._exit(1); os.execvp(sys.argv[2], sys.argv[2:])"
    return [sys.executable, "-I", "-S", "-c", program, str(os.getpid())]


def _text(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode("utf-8", "replace"))


class _Job:
    """The processes of a job: mpiexec's, or one a rank."""

    def __init__(self, meeting: Store, ranks: int, limit: float | None) -> None:
        self._store, self._ranks, self._limit = meeting, ranks, limit
        self._processes: list[subprocess.Popen[bytes]] = []
        self._late: list[int] | None = None
        self._started = time.monotonic()

    def start(self, words: Sequence[str], env: Mapping[str, str], out: Any, err: Any) -> None:
        """Start a process; the next rank where there is no mpiexec."""
        self._processes.append(
            subprocess.Popen(
                [*_bound_to_this_process(), *words],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env, start_new_session=True,
            )
        )  # fmt: skip

    def heard(self) -> Heard:
        """What each rank said; of one whose process failed without a word, how that ended."""
        heard = self._store.snapshot()
        if len(self._processes) == self._ranks:
            for rank, process in enumerate(self._processes):
                code = process.poll()
                if code and not heard[rank].keys() & _LAST_WORDS:
                    heard[rank][store.STATUS] = code
        return heard

    def watch(self) -> None:
        """Until all ranks have ended, or the time has."""
        first_failure = None
        while any(process.poll() is None for process in self._processes):
            self._store.wait(0.02, lambda: False)
            now = time.monotonic()
            heard = self.heard()
            over = [r for r in heard if heard[r].keys() & _LAST_WORDS]
            if self._store.events() or any(store.STATUS in heard[r] for r in heard):
                first_failure = first_failure or now
                told = [r for r in over if store.BYE in heard[r] or store.STATUS in heard[r]]
                if len(told) == self._ranks or now - first_failure > _LAST_WORDS_S:
                    return
            waited = now - self._started
            if self._limit is not None and waited > self._limit:
                self._late = [rank for rank in heard if rank not in over]
                return
            absent = [rank for rank in heard if store.HELLO not in heard[rank]]
            if absent and waited > (START_SECONDS if self._limit is None else self._limit):
                self._late = absent
                return

    def end(self) -> None:
        """Leave nothing running: mpiexec, all that came from it, and every rank that said who it is."""
        hellos = [heard[store.HELLO] for heard in self._store.heard.values() if store.HELLO in heard]
        ours = [int(pid) for hello in hellos for pid in (hello["pid"], hello["holder"])]
        for process in self._processes:
            if process.poll() is None:
                ours += _descendants(process.pid)
                with contextlib.suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        deadline = time.monotonic() + _END_S
        for pid in ours:
            _kill(pid, deadline)
        self._store.close()

    def verdict(self, heard: Heard, err: str) -> KgrunError | None:
        """The one error that tells what happened, None where all went well."""
        failed = {rank: words[store.FAILED] for rank, words in heard.items() if store.FAILED in words}
        exits = _exits(heard)
        details: dict[str, object] = {"exits": {str(rank): code for rank, code in sorted(exits.items())}}
        # Ended by its holder because the time was up: it is late, and did not die.
        overdue = [r for r in heard if r not in failed and exits.get(r) == TimeoutExpired.exit]
        lost = [r for r in heard if r not in failed and (store.GONE in heard[r] or exits.get(r, 0) < 0)]
        died = [r for r in lost if r not in overdue]
        if died:
            order = [rank for rank, _ in self._store.events()]
            rank = min(died, key=lambda r: order.index(r) if r in order else len(order))
            how = f"was ended by {signal.Signals(-exits[rank]).name}" if exits.get(rank, 0) < 0 else "ended"
            text = f"rank {rank} {how} before the run was over"
            return DeviceFault(text, code="KG620", help=_last_line(err), details=details | {"rank": rank})
        own = {rank: error for rank, error in failed.items() if error["code"] not in ("KG620", "KG904")}
        if own:
            return _own_fault(own, self._ranks, details)
        if failed:  # who waited in vain knows first; what others only heard of it says less
            rank, error = min(failed.items(), key=lambda said: said[1]["code"] != "KG904")
            kind = TimeoutExpired if error["exit"] == TimeoutExpired.exit else DeviceFault
            return kind(
                error["message"], code=error["code"], help=error["help"], details=error.get("details", {}) | details
            )
        if self._late is None and overdue:
            self._late = overdue
        if self._late is not None:
            names = ", ".join(map(str, self._late))
            limit = START_SECONDS if self._limit is None else self._limit
            text = f"the time limit of {limit:g} s has passed, and rank {names} had not ended"
            rank0 = self._late[0] if self._late else None
            return TimeoutExpired(text, code="KG904", help="raise --timeout", details=details | {"rank": rank0})
        silent = [rank for rank in heard if store.BYE not in heard[rank]]
        if silent:
            rank = min(silent, key=lambda r: store.HELLO in heard[r])
            text = f"rank {rank} ended before it met the others"
            return DeviceFault(text, code="KG620", help=_last_line(err), details=details | {"rank": rank})
        return None


def _exits(heard: Heard) -> dict[int, int]:
    """Exit codes by rank, as far as they are known."""
    found = {}
    for rank, said in heard.items():
        if store.STATUS in said:
            found[rank] = said[store.STATUS]
        elif store.FAILED in said:
            found[rank] = said[store.FAILED]["exit"]
        elif store.BYE in said:
            found[rank] = said[store.BYE]
    return found


def _own_fault(own: Mapping[int, Mapping[str, Any]], ranks: int, details: dict[str, object]) -> KgrunError:
    """What one rank found wrong; where all say the same, just that."""
    rank, error = next(iter(own.items()))
    known = {kind.exit: kind for kind in KgrunError.__subclasses__()}
    more = {**error.get("details", {}), **details}
    shared = error["code"] in ("KG621", "KG622", "KG623")  # they name the rank already
    if shared or (len(own) == ranks and len({each["message"] for each in own.values()}) == 1):
        kind = known.get(error["exit"], DeviceFault)
        return kind(error["message"], code=error["code"], where=error["where"], help=error["help"], details=more)
    text = f"rank {rank} failed: {error['message']} [{error['code']}]"
    return DeviceFault(text, code="KG620", where=error["where"], help=error["help"], details=more | {"rank": rank})


def _last_line(text: str) -> str | None:
    lines = [
        line for line in text.strip().splitlines() if line and not line.startswith(("=", "This typically", "Please"))
    ]
    return f"its last words: {lines[0]}" if lines else None


def _kill(pid: int, deadline: float) -> None:
    """End a rank, and wait until it has."""
    while time.monotonic() < deadline:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            return
        if _status(pid)[:1] == ["Z"]:
            return
        time.sleep(0.01)


def _descendants(pid: int) -> list[int]:
    """Children of `pid`, and theirs, as far as the system tells."""
    parents = {int(path.name): _status(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
    found, queue = [], [pid]
    while queue:
        parent = str(queue.pop())
        children = [child for child, status in parents.items() if status[1:2] == [parent]]
        found += children
        queue += children
    return found


def _status(pid: int) -> list[str]:
    """State and parent of a process; nothing where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:2]
    except OSError:
        return []
