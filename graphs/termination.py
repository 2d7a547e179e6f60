"""SIGTERM while files are being written: what is temporary is removed, then the process ends as it would have."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Terminated(BaseException):
    """SIGTERM came; raised where the main thread was, so that whoever has something to remove does so."""


@contextmanager
def unwound() -> Iterator[None]:
    """Inside, SIGTERM unwinds the stack up to here before it ends the process; where it has a handler that one stays.

    It is meant for a few lines that write files: a native call that hangs would not let the exception through.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    except Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _raise(*_: object) -> None:
    raise Terminated
