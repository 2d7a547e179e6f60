"""A process that must not outlive the one that started it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def die_with_parent(parent: int) -> None:
    """Have this process killed when `parent`, which started it, ends, where the system can; now where it has ended."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)
