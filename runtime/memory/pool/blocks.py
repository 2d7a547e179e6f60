"""Where a pool's blocks come from, and how large the next one is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

# Bytes a pool grows by. Fewer, larger blocks leave fewer borders that no buffer may cross.
UNIT = 512 << 20
# Bytes of a GPU that a pool leaves alone: kernels are loaded and libraries opened after its memory is taken (U2).
HEADROOM = 128 << 20
# How often a smaller block is asked for when a device refuses one.
_RETRIES = 8


class NoRoom(Exception):
    """A source cannot give a block of this size."""


class BlockSource(Protocol):
    """Gives and takes back blocks; the one thing a pool knows of a device."""

    def room(self) -> int:
        """Bytes that may still be taken."""
        ...

    def take(self, nbytes: int) -> int:
        """Address of a fresh block, aligned to 512; NoRoom where there is none."""
        ...

    def give(self, address: int) -> None:
        """Return a block."""
        ...


class DryBlocks:
    """Blocks of a memory that does not exist: plain integers up to a limit. Blocks are never adjacent."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._next = 0
        self._taken: dict[int, int] = {}

    def room(self) -> int:
        """Bytes below the limit."""
        return self._limit - sum(self._taken.values())

    def take(self, nbytes: int) -> int:
        """The next address."""
        if nbytes > self.room():
            raise NoRoom
        address = self._next
        self._taken[address] = nbytes
        self._next += nbytes + 512
        return address

    def give(self, address: int) -> None:
        """Count a block as free again."""
        del self._taken[address]


def block_sizes(needed: int, unit: int, room: int) -> Iterator[int]:
    """Sizes to ask for, in turn: the unit doubled until it holds `needed`, cut to `room` (S69).

    A device may refuse although it has the bytes, in no one piece: then the part beyond what is needed is halved, a few
    times, and at last exactly what is needed is asked for (S70). Nothing where `room` is too small.
    """
    if needed > room:
        return
    size = unit
    while size < needed:
        size *= 2
    size = min(size, room - room % 512)
    for _ in range(_RETRIES):
        if size <= needed:
            break
        yield size
        size = needed + (size - needed) // 2 // 512 * 512
    yield needed
