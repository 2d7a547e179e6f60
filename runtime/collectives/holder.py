"""A process that holds a rank: MPI's own launcher ends a job as soon as one of its processes dies, before the others
can say whose fault it was; so the rank is a child, and its parent stays until they have.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time

from kgrun.graphs.errors import TimeoutExpired
from kgrun.runtime.collectives import store
from kgrun.runtime.collectives.ranks import RankInfo
from kgrun.runtime.orphans import die_with_parent

_GRACE_SECONDS = 4.0  # from the limit on, for the ranks to say who is late, and for a launcher of kgrun's to act on it
_ANSWER_SECONDS = 4.0  # from a signal to the end; more than Ctrl-C has in a process alone
_STAY_SECONDS = 5.0  # for the other ranks to say what they have to


_holder: int | None = None
_release: int | None = None  # write end of the pipe on which the rank says that it ended well


def held_by() -> int:
    """The process that holds this rank; the rank itself where nobody does."""
    return os.getpid() if _holder is None else _holder


def release() -> None:
    """Say that this rank has ended well, whatever its exit code."""
    if _release is not None:
        with contextlib.suppress(OSError):
            os.write(_release, b"!")


def hold(info: RankInfo, limit: float | None = None) -> None:
    """Fork: return in the child, which is the rank; the parent waits for it and ends with its exit code.

    A rank that is still there `limit` seconds from now is ended, once it had time to end by itself; the exit is then 9.
    """
    if not hasattr(os, "fork"):
        return
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        os.close(reader)
        globals()["_release"] = writer
        globals()["_holder"] = parent
        os.setsid()  # what ends the holder's process group must not end the rank before it has spoken
        die_with_parent(parent)
        return
    os.close(writer)
    if not info.hosted:
        die_with_parent(os.getppid())  # MPI's launcher may end before it knows of this process
    code = 1
    try:
        code = _watch(child, info, limit, reader)
    finally:
        os._exit(code)


def _watch(child: int, info: RankInfo, limit: float | None, reader: int) -> int:
    late = False

    def end(*_: object) -> None:
        nonlocal late
        late = True
        os.kill(child, signal.SIGKILL)

    def pass_on(number: int, _: object) -> None:
        os.kill(child, number)
        # A rank inside of a call of MPI that waits for the others never gets to answer.
        signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, _ANSWER_SECONDS)

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, pass_on)
    if limit is not None:
        signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, limit + _GRACE_SECONDS)
    _, status = os.waitpid(child, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    code = os.waitstatus_to_exitcode(status)
    well = os.read(reader, 1) == b"!"  # MPI was finalised: its launcher misses nothing
    if (code or not well) and (info.hosted or _told(info, TimeoutExpired.exit if late else code)):
        time.sleep(_STAY_SECONDS)  # a launcher of kgrun's ends this sooner
    if late:
        return TimeoutExpired.exit
    return code if code >= 0 else 128 - code


def _told(info: RankInfo, code: int) -> bool:
    """Tell the launcher how the rank ended; False where it is gone itself, and nobody is to be waited for."""
    assert info.store is not None
    found = store.connect(info.store, 1.0)
    if found is not None:
        line = {"from": info.rank, "token": info.token, store.STATUS: code}
        with contextlib.suppress(OSError), found:
            found.sendall(json.dumps(line).encode() + b"\n")
    return found is not None
