"""What a pool says of itself: its bytes, who holds them, and why it has no more."""

from __future__ import annotations

from collections.abc import Sequence

from kgrun.graphs.records import dataclass

TOP_HOLDERS = 5


@dataclass(frozen=True, slots=True)
class Holder:
    """Bytes in use and the name they were taken for."""

    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """Bytes of a pool (S71).

    Attributes:
        total: of all blocks.
        used: handed out, rounded up to the alignment.
        peak: most that was used at once.
        largest_idle: the largest piece that can be handed out without growing.
        fragments: idle pieces.
        blocks: how many there are.
    """

    total: int
    used: int
    peak: int
    largest_idle: int
    fragments: int
    blocks: int

    @property
    def idle(self) -> int:
        """Bytes in blocks that nobody uses."""
        return self.total - self.used

    @property
    def fragmentation(self) -> float:
        """The share of idle bytes that lies outside the largest piece: 0 where all of it is in one."""
        return 1 - self.largest_idle / self.idle if self.idle else 0.0


class PoolExhausted(Exception):
    """The pool holds no piece large enough and cannot grow by one (S69, S117).

    Attributes:
        name: what the bytes were for.
        needed: bytes asked for, rounded up.
        room: bytes that the pool could still grow by.
        statistics: of the pool when it failed.
        holders: the largest pieces in use, largest first.
    """

    def __init__(
        self, name: str, needed: int, room: int, statistics: PoolStatistics, holders: Sequence[Holder] = ()
    ) -> None:
        super().__init__(f"no room for {needed:,} bytes of {name!r}")
        self.name, self.needed, self.room = name, needed, room
        self.statistics, self.holders = statistics, tuple(holders)


class UnknownAddress(Exception):
    """An address is freed that the pool did not hand out, or that was freed before (S68, S73)."""
