"""Progress on stderr for whatever takes more than a second: on a terminal, or everywhere with -v."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kgrun.cli.output import Output

DELAY = 1.0  # seconds before anything is said
INTERVAL = 0.5


@contextmanager
def phase(name: str, output: Output) -> Iterator[None]:
    """Say that `name` goes on, once it has taken a second, and how long it took."""
    tty = sys.stderr.isatty()
    if output.quiet or not (tty or output.verbose):
        yield
        return
    ended = threading.Event()
    start = time.monotonic()
    teller = threading.Thread(target=_tell, args=(name, start, ended, tty), daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join(timeout=INTERVAL)
        seconds = time.monotonic() - start
        if seconds >= DELAY:
            print(f"\r{name}: {seconds:.1f} s" if tty else f"{name}: {seconds:.1f} s", file=sys.stderr, flush=True)


def _tell(name: str, start: float, ended: threading.Event, tty: bool) -> None:
    if ended.wait(DELAY):
        return
    print(f"{name} …", end="" if tty else "\n", file=sys.stderr, flush=True)
    while tty and not ended.wait(INTERVAL):
        print(f"\r{name} … {time.monotonic() - start:.0f} s", end="", file=sys.stderr, flush=True)
