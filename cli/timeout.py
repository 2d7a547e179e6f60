"""`--timeout`: a supervising process ends the command, even one that hangs inside a native call.

The command runs in a forked child; a thread or a signal handler of its own could not run while a native call holds
the interpreter. Results are written only after `commit`, from which on the child is left alone: a timeout leaves no
half-written output.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time

from kgrun.graphs.errors import InternalError, KgrunError, TimeoutExpired

_committed: int | None = None  # write end of the pipe to the supervisor, in the child


def supervise(seconds: float | None, *, json: bool) -> None:
    """Give the rest of this process `seconds` seconds until it commits its results.

    Returns in the child, which goes on as if nothing had happened; the supervisor never returns: it ends with the
    child's exit code, or with 9 after it has killed the child.
    """
    if seconds is None:
        return
    if not hasattr(os, "fork"):
        timer = threading.Timer(seconds, lambda: os._exit(_expired(seconds, json)))
        timer.daemon = True
        timer.start()
        return
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _die_with_parent()
        globals()["_committed"] = writer
        return
    os.close(writer)
    code = 1
    try:
        code = _watch(child, reader, seconds, json)
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


def _watch(child: int, reader: int, seconds: float, json: bool) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the child gets Ctrl-C too and answers it
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    end = time.monotonic() + seconds
    # Readable when the child commits, and when it ends: its end of the pipe closes.
    ready, _, _ = select.select([reader], [], [], max(0.0, end - time.monotonic()))
    if not ready:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return _expired(seconds, json)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    if -code == signal.SIGTERM:
        return 128 + signal.SIGTERM
    name = signal.Signals(-code).name
    return _say(
        InternalError(f"the run was ended by {name}", help="set KGRUN_DEBUG=1 to see more, and report it"), json
    )


def _expired(seconds: float, json: bool) -> int:
    return _say(TimeoutExpired(f"the time limit of {seconds:g} s has passed", help="raise --timeout"), json)


def _say(error: KgrunError, json: bool) -> int:
    from kgrun.cli.boundary import error_document, print_error, to_json_text

    if json:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.write(to_json_text(error_document(error)))
            sys.stdout.flush()
    else:
        print_error(error)
    return error.exit


def _die_with_parent() -> None:
    # Linux: when the supervisor is killed outright the command must not live on. 1 is PR_SET_PDEATHSIG.
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
