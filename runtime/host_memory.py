"""How much memory the host has to give, and how much of it a run may hold.

The system promises more than it has, and ends a process once the bytes are touched: so it is asked before.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kgrun.graphs.errors import DoesNotFit

OFFLOADED = "the block of offloaded tensors"  # what `HostMemory` calls it
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


class HostMemory:
    """Host bytes that a run holds for its device: copies on their way, outputs, snapshots, pinned blocks.

    Arrays that the caller gives, and memory-mapped files, are not counted. On the CPU the device's own memory is none
    of it: that has its own limit.

    Args:
        limit: most bytes to hold at once; None: what the host has.

    Attributes:
        peak: most bytes held at once.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.peak = 0
        self._held: dict[str, int] = {}

    @property
    def held(self) -> int:
        """Bytes held now."""
        return sum(self._held.values())

    def ahead(self) -> int:
        """Bytes that may be held besides, ahead of what needs them: none under a limit."""
        return 0 if self.limit is not None else available_memory() // 4

    def hold(self, what: str, nbytes: int) -> None:
        """Note that `what` takes `nbytes` from now on, in place of what it took before.

        Raises:
            DoesNotFit: KG404 over the limit, KG402 where the host has not so many; `what` then holds nothing.
        """
        self._held.pop(what, None)
        held = self.held
        if self.limit is not None and held + nbytes > self.limit:
            most = max(self._held, key=self._held.__getitem__, default=None)
            by = f", most by {most} ({self._held[most]:,})" if most is not None else ""
            raise DoesNotFit(
                f"{what} takes {nbytes:,} bytes of host memory; the limit is {self.limit:,}, {held:,} are held{by}",
                code="KG404",
                help="raise --host-memory-limit",
                details={"needed_bytes": nbytes, "limit_bytes": self.limit, "held_bytes": held, "name": what},
            )
        check_room(nbytes, what)
        self._held[what] = nbytes
        self.peak = max(self.peak, held + nbytes)

    def drop(self, what: str) -> None:
        """Note that `what` holds nothing any more."""
        self._held.pop(what, None)


def pinned_refused(nbytes: int, why: str) -> DoesNotFit:
    """KG403: the system gives no pinned host memory, which has to do with the host alone, not with the GPU (U1)."""
    return DoesNotFit(
        f"the host gives no {nbytes:,} bytes of pinned memory: {why}",
        code="KG403",
        help="the GPU's memory is not to blame: look at `ulimit -l`, free host memory, or --host-memory-limit",
        details={"pinned_bytes": nbytes},
    )
