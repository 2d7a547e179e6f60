"""How much memory the host has to give. The system promises more, and ends a process once the bytes are touched."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kgrun.graphs.errors import DoesNotFit

_ALWAYS = 1 << 24  # not worth a look at the system


def total_memory() -> int:
    """Bytes of the machine; 0 where it does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


def available_memory() -> int:
    """Bytes that can be had without swapping: the system's, and those that the container's limit leaves (Linux)."""
    free = total_memory() or 1 << 62
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path("/proc/meminfo").read_text("ascii")
        free = int(text.partition("MemAvailable:")[2].split()[0]) * 1024
    with contextlib.suppress(OSError, ValueError, IndexError):
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text("ascii"))  # "max": no limit, no number
        held = int((group / "memory.stat").read_text("ascii").partition("anon ")[2].split()[0])
        free = min(free, max(limit - held, 0))
    return free


def check_room(nbytes: int, what: str) -> None:
    """DoesNotFit KG402 where the host has not `nbytes` bytes to give for `what`."""
    if nbytes <= _ALWAYS:
        return
    free = available_memory()
    if nbytes > free:
        raise DoesNotFit(
            f"the host has no room for {what}: {nbytes:,} bytes, {free:,} are free",
            code="KG402",
            help="use smaller dimensions; `kgrun plan-memory` shows what takes the bytes",
        )
