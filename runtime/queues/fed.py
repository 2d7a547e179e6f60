"""One queue of a session at work: what belongs to it, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

from kgrun.graphs.bound import BoundQueue
from kgrun.graphs.records import dataclass
from kgrun.runtime.embedding.cache import EmbeddingCache
from kgrun.runtime.queues.ring import Ring
from kgrun.runtime.queues.settings import QueueSettings
from kgrun.runtime.queues.sources import Batches

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class QueueReport:
    """What a queue did during a run.

    Attributes:
        batches: taken by the runs that counted, of `nbytes` each.
        left: batches that are still to come; None where that is not known or there is no end.
        waited_ns: what the runs waited for batches, all together; `full_ns`, what the feeder waited for room;
            `filled_ns`, what it copied on the host.
        pinned: whether the batches went through pinned memory; None on a device without copies of its own.
    """

    name: str
    source: str
    batches: int
    nbytes: int
    left: int | None
    waited_ns: int
    full_ns: int
    filled_ns: int
    capacity: int
    pinned: bool | None


@dataclass(slots=True)
class Fed:
    """One queue: its ring, where its items go, and the caches that look its items up."""

    queue: BoundQueue
    settings: QueueSettings
    batches: Batches
    ring: Ring
    lane: Any
    targets: dict[int, int] = field(default_factory=dict)
    moved: dict[int, int] = field(default_factory=dict)  # those of the targets that no cache writes to
    writers: dict[int, Callable[[Array], None]] = field(default_factory=dict)
    started: bool = False
    taken: int = 0
    caches: dict[int, EmbeddingCache] = field(default_factory=dict)  # by item
    reported: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def left(self) -> int | None:
        """Batches that were not taken; None where that is not known."""
        return None if self.batches.count is None else self.batches.count - self.taken

    def ids(self, item: int) -> Callable[[int], Array | None]:
        """The ids of a batch by its number, where it is there."""

        def batch(number: int) -> Array | None:
            slot = self.ring.slot_of(number)
            return None if slot is None else self.ring.slots.arrays(slot)[item]

        return batch

    def look_ahead(self) -> None:
        """Look up the batches that are there."""
        for item, cache in self.caches.items():
            cache.look_ahead(self.ids(item))

    @property
    def nbytes(self) -> int:
        """Of a batch."""
        return sum(kind.nbytes for kind in self.ring.types.values())

    def report(self) -> QueueReport:
        """What was done since the last call."""
        now = (self.taken, self.ring.waited_ns, self.ring.full_ns, self.ring.slots.filled_ns)
        batches, waited, full, filled = (new - old for new, old in zip(now, self.reported, strict=True))
        self.reported = now
        pinned = None if self.lane is None else self.lane.pinned
        return QueueReport(
            self.queue.name, self.settings.where, batches, self.nbytes, self.left, waited, full, filled,
            self.settings.capacity, pinned,
        )  # fmt: skip
