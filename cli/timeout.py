"""`--timeout`: a supervising process ends the command, even one that hangs inside a native call.

The command runs in a forked child; a thread or a signal handler of its own could not run while a native call holds
the interpreter. Results are written only after `commit`, from which on the child is left alone: a timeout leaves no
half-written output. What the child tells with `tell` lies in memory that both share: so the supervisor can say what
went on when the time was up, and which kernel never ended.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from kgrun.graphs.errors import DeviceFault, InternalError, KgrunError, TimeoutExpired
from kgrun.runtime.orphans import die_with_parent

Expired = Callable[[TimeoutExpired], None]

own_process = False  # whether this process belongs to the command alone, so that it may be forked unasked
_committed: int | None = None  # write end of the pipe to the supervisor, in the child
_board: mmap.mmap | None = None  # what the child says it is doing: a length, then so many bytes of JSON
_BOARD_BYTES = 16_384
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
_LENGTH = 4
_GRACE_S = 0.5  # to remove what is half-written; a native call that hangs lets nothing through
_LONGEST_S = 1e9  # what the system takes as a time to wait; some thirty years


def supervise(seconds: float | None, *, json: bool, expired: Expired | None = None, crashes: bool = False) -> None:
    """Give the rest of this process `seconds` seconds until it commits its results.

    With `crashes` a process of kgrun's own is watched without a limit too: a user's kernel on the CPU can end its
    process with a stray pointer, and somebody must be left to say which kernel that was.

    Returns in the child, which goes on as if nothing had happened; the supervisor never returns: it ends with the
    child's exit code, or with 9 after it has killed the child. `expired` gets the error before it is shown.
    """
    if seconds is None and not (crashes and own_process and hasattr(os, "fork")):
        return
    seconds = None if seconds is None else min(seconds, _LONGEST_S)
    if not hasattr(os, "fork"):
        assert seconds is not None
        timer = threading.Timer(seconds, lambda: os._exit(_say(_expired(seconds, expired), json)))
        timer.daemon = True
        timer.start()
        return
    sys.stdout.flush()
    sys.stderr.flush()
    globals()["_board"] = mmap.mmap(-1, _BOARD_BYTES)
    reader, writer = os.pipe()
    supervisor, child = os.getpid(), os.fork()
    if child == 0:
        os.close(reader)
        die_with_parent(supervisor)
        globals()["_committed"] = writer
        return
    os.close(writer)
    code = 1
    try:
        code = _watch(child, reader, seconds, json, expired)
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)  # the child owns everything else that would be cleaned up


def commit() -> None:
    """Say that the work is done and only its results are left to write; may be called more than once."""
    global _committed
    if _committed is not None:
        with contextlib.suppress(OSError):
            os.write(_committed, b"!")
            os.close(_committed)
        _committed = None


def supervised() -> bool:
    """Whether a supervisor watches this process and reads what is told."""
    return _board is not None and _committed is not None


def tell(doing: Mapping[str, object]) -> None:
    """Say what goes on from now on: `doing` (words), and where known `launch` (words), `where`, `details`."""
    if _board is None:
        return
    data = _encoded(doing)
    _board[:_LENGTH] = bytes(_LENGTH)  # half a message must not be read
    _board[_LENGTH : _LENGTH + len(data)] = data
    _board[:_LENGTH] = len(data).to_bytes(_LENGTH, "little")


def _encoded(doing: Mapping[str, object]) -> bytes:
    import json

    room = _BOARD_BYTES - _LENGTH
    whole = json.dumps(dict(doing)).encode()
    return whole if len(whole) <= room else json.dumps({"doing": str(doing.get("doing", ""))[:1_000]}).encode()


def _told() -> dict[str, Any]:
    import json

    if _board is None:
        return {}
    length = int.from_bytes(_board[:_LENGTH], "little")
    try:
        found = json.loads(_board[_LENGTH : _LENGTH + length]) if length else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _watch(child: int, reader: int, seconds: float | None, json: bool, expired: Expired | None) -> int:
    # A terminal sends Ctrl-C to both, and the child answers it; from elsewhere only this process gets the signal.
    signal.signal(signal.SIGINT, signal.SIG_IGN if _in_foreground() else lambda *_: os.kill(child, signal.SIGINT))
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    # Readable when the child commits, and when it ends: its end of the pipe closes.
    ready, _, _ = select.select([reader], [], [], seconds)
    if not ready:
        assert seconds is not None
        os.kill(child, signal.SIGTERM)  # what it is writing goes (`graphs/termination.py`)
        select.select([reader], [], [], _GRACE_S)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return _say(_expired(seconds, expired), json)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    if -code in (signal.SIGTERM, signal.SIGINT):  # the latter once the command had reported, on its way out
        return 128 - code
    name = signal.Signals(-code).name
    if -code in _CRASHES and _told().get("doing"):
        return _say(_crashed(name), json)
    return _say(
        InternalError(f"the run was ended by {name}", help="set KGRUN_DEBUG=1 to see more, and report it"), json
    )


def _expired(seconds: float, expired: Expired | None) -> TimeoutExpired:
    told = _told()
    doing, launch = told.get("doing"), told.get("launch")
    message = f"the time limit of {seconds:g} s has passed" + (f" while {doing}" if doing else "")
    help = "raise --timeout"
    if launch:
        help = f"{launch}; look for a loop or a barrier that never ends, or raise --timeout"
    error = TimeoutExpired(message, where=told.get("where"), help=help, details=told.get("details"))
    if expired is not None:
        with contextlib.suppress(Exception):  # the time limit is what the user must hear of
            expired(error)
    return error


def _in_foreground() -> bool:
    """Whether this process stands in the foreground of a terminal."""
    for stream in (0, 1, 2):
        with contextlib.suppress(OSError):
            if os.isatty(stream):
                return os.tcgetpgrp(stream) == os.getpgrp()
    return False


def _crashed(name: str) -> DeviceFault:
    """A kernel on the CPU ended its process: the one that was told last."""
    told = _told()
    return DeviceFault(
        f"the process was ended by {name} while {told['doing']}: a stray pointer or an illegal operation",
        code="KG613",
        where=told.get("where"),
        help="run with --check bounds to find the access: its line, tensor, block and thread",
        details=told.get("details"),
    )


def _say(error: KgrunError, json: bool) -> int:
    from kgrun.cli.boundary import error_document, print_error, to_json_text

    if json:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.write(to_json_text(error_document(error)))
            sys.stdout.flush()
    else:
        print_error(error)
    return error.exit
