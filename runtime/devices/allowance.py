"""How many bytes a device object has handed out, the most at once, and how many it may: limits are kept here."""

from __future__ import annotations

from kgrun.graphs.errors import DoesNotFit


class Allowance:
    """The books of one device's memory. They know sizes, not what is rounded up behind them.

    Args:
        owner: what messages call the device.
        capacity: bytes of a simulated memory; None where the device itself says when it is full.

    Attributes:
        held, peak: bytes handed out now, and most at once.
    """

    def __init__(self, owner: str, capacity: int | None = None) -> None:
        self._owner, self._capacity = owner, capacity
        self._most: int | None = None
        self._sizes: dict[int, int] = {}
        self.held = self.peak = 0

    def limit(self, nbytes: int | None) -> None:
        """Allow at most `nbytes` beyond what is held now; None lifts that limit."""
        self._most = None if nbytes is None else self.held + nbytes

    @property
    def total(self) -> int | None:
        """Most bytes that may be held at once; None without a limit."""
        bounds = [bound for bound in (self._capacity, self._most) if bound is not None]
        return min(bounds) if bounds else None

    def left(self, free: int, headroom: int = 0) -> int:
        """Bytes that can still be had where the device itself has `free`, of which `headroom` are to stay free."""
        own = free if self._capacity is None else min(free, self._capacity - self.held)
        bounds = [own - headroom] if self._most is None else [own - headroom, self._most - self.held]
        return max(min(bounds), 0)

    def check(self, nbytes: int) -> None:
        """DoesNotFit KG410 where `nbytes` more would be too many."""
        total = self.total
        if total is None or self.held + nbytes <= total:
            return
        free = max(total - self.held, 0)
        why = "its memory" if total == self._capacity else "the memory limit"
        raise DoesNotFit(
            f"out of memory on {self._owner}: {nbytes:,} bytes planned, {free:,} of {total:,} free under {why}",
            code="KG410",
            help=f"held by this run: {self.held:,} bytes. Use smaller dimensions, or raise --memory-limit",
            details={"planned_bytes": nbytes, "free_bytes": free, "total_bytes": total, "held_bytes": self.held}
            | {"context_bytes": 0},
        )

    def take(self, address: int, nbytes: int) -> None:
        """Note an allocation."""
        self._sizes[address] = nbytes
        self.held += nbytes
        self.peak = max(self.peak, self.held)

    def give(self, address: int) -> bool:
        """Note that an allocation was freed; whether there was one."""
        nbytes = self._sizes.pop(address, None)
        self.held -= nbytes or 0
        return nbytes is not None

    def clear(self) -> None:
        """Everything is freed at once."""
        self._sizes.clear()
        self.held = 0
