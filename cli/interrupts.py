"""Ctrl-C while a kernel hangs: Python cannot raise anything inside the native call that waits, so a thread ends it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kgrun.graphs.errors import Interrupted

GRACE_S = 3.0  # for the ordinary way out: KeyboardInterrupt, then everything is closed


@contextmanager
def bounded() -> Iterator[None]:
    """Inside, Ctrl-C ends the process with exit 130 after `GRACE_S` seconds at the latest.

    The driver releases the context of a process that ends, whatever its kernels do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    left = threading.Event()
    threading.Thread(target=_wait, args=(reader, left), daemon=True).start()
    try:
        yield
    finally:
        left.set()
        signal.set_wakeup_fd(before)
        os.close(writer)  # ends the thread


def _wait(reader: int, left: threading.Event) -> None:
    while number := os.read(reader, 1):
        if number[0] == signal.SIGINT and not left.wait(GRACE_S):
            _end()
    os.close(reader)


def _end() -> None:
    from kgrun.cli.boundary import command_line, report_failure

    with suppress(Exception):
        report_failure(Interrupted("interrupted while the device did not answer"), command_line())
    os._exit(Interrupted.exit)
