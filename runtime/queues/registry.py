"""The queues of one session by name: made once, found, closed in order (S144, S145, B18)."""

from __future__ import annotations

from collections.abc import Iterator

from kgrun.graphs.errors import KgrunError, UsageError, did_you_mean
from kgrun.runtime.queues.ring import Ring

CLOSE_SECONDS = 10.0


class QueueSet:
    """Rings by name."""

    def __init__(self) -> None:
        self._rings: dict[str, Ring] = {}

    def add(self, ring: Ring) -> Ring:
        """Register a ring. UsageError KG276 for a name that is there already (B18)."""
        if ring.name in self._rings:
            raise UsageError(f"queue {ring.name!r} exists already", code="KG276")
        self._rings[ring.name] = ring
        return ring

    def __getitem__(self, name: str) -> Ring:
        """The ring of that name. UsageError KG275 where there is none, or none any more."""
        if name not in self._rings:
            known = ", ".join(self._rings) or "none"
            raise UsageError(
                f"there is no queue {name!r}",
                code="KG275",
                help=did_you_mean(name, self._rings) or f"queues: {known}",
            )
        return self._rings[name]

    def __iter__(self) -> Iterator[Ring]:
        return iter(tuple(self._rings.values()))

    def __len__(self) -> int:
        return len(self._rings)

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Close all rings, each even where another fails.

        Raises:
            TimeoutExpired: KG903, the first, when a feeder did not let go in time.
        """
        failed: list[KgrunError] = []
        for ring in self:
            try:
                ring.close(timeout)
            except KgrunError as error:
                failed.append(error)
            del self._rings[ring.name]
        if failed:
            raise failed[0]
