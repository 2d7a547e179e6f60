"""A bounded ring of batches between the threads that make them and the one that runs the graph (S143 to S145)."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Condition, Lock
from typing import TYPE_CHECKING, Any

from kgrun.graphs.errors import KgrunError, TimeoutExpired
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.queues.batches import checked_batch

if TYPE_CHECKING:
    from kgrun.runtime.queues.slots import Slots


class QueueClosed(Exception):
    """The ring was closed; who waits on it has nothing more to do."""


class Ring:
    """One queue's slots. Producers push, the consumer looks at the front and pops it.

    Every wait looks at its condition again whenever it wakes (B27), so that a wake-up for nothing changes nothing.

    Args:
        types: of the items of a batch, by item name.
        slots: where the batches lie.

    Attributes:
        pushed, popped: batches so far.
        waited_ns: what the consumer waited for batches; `full_ns`, what producers waited for room.
    """

    def __init__(self, name: str, types: dict[str, TensorType], slots: Slots) -> None:
        self.name, self.types, self.slots = name, types, slots
        self.pushed = self.popped = self.waited_ns = self.full_ns = 0
        lock = Lock()
        # Who waits for a batch, for room, or for the others to let go: each is told of nothing else.
        self._filled, self._room, self._released = Condition(lock), Condition(lock), Condition(lock)
        self._filling = Lock()  # one producer at a time fills a slot
        self._users = 0
        self._ended = self._closed = False
        self._failure: KgrunError | None = None

    # Producers, and others who use the slots

    def attach(self) -> None:
        """Announce a user of the slots; `close` waits until it has let go."""
        with self._released:
            self._users += 1

    def release(self) -> None:
        """Let go: who calls this will touch the ring no more."""
        with self._released:
            self._users -= 1
            self._released.notify_all()

    def push(self, batch: Any, timeout: float | None = None) -> None:
        """Put a batch in: arrays by item name, or in the items' order. They are copied before this returns.

        Args:
            timeout: seconds to wait while the ring is full; None: until there is room or the ring is closed.

        Raises:
            GraphError: KG394 for a batch that is not what the queue takes.
            TimeoutExpired: KG902 when the ring stayed full.
            QueueClosed: the ring was closed.
        """
        arrays = checked_batch(self.name, self.types, batch)
        with self._filling:
            started = time.perf_counter_ns()
            with self._room:
                free = lambda: self._held < self.slots.capacity or self._closed  # noqa: E731
                self._wait(self._room, free, timeout, "stayed full")
                if self._closed:
                    raise QueueClosed
            self.full_ns += time.perf_counter_ns() - started
            self.slots.fill(self.pushed % self.slots.capacity, arrays)
            with self._filled:
                self.pushed += 1
                self._filled.notify_all()

    def end(self) -> None:
        """No batch will follow."""
        with self._filled:
            self._ended = True
            self._filled.notify_all()

    def fail(self, error: KgrunError) -> None:
        """No batch will follow, for this reason; the consumer learns it after the batches that are there."""
        with self._filled:
            self._failure = self._failure or error
            self._filled.notify_all()

    # The consumer

    def front(self, timeout: float | None) -> int | None:
        """The slot of the oldest batch; None at the end of the data.

        Raises:
            TimeoutExpired: KG902 when none came in time.
            KgrunError: why the producer gave up.
            QueueClosed: the ring was closed.
        """
        if self._held > 0 and not self._closed:
            return self.popped % self.slots.capacity
        started = time.perf_counter_ns()
        with self._filled:
            self._room.notify_all()  # of what was popped quietly
            self._wait(self._filled, lambda: self._held > 0 or self._over, timeout, "had no batch")
            self.waited_ns += time.perf_counter_ns() - started
            if self._closed:
                raise QueueClosed
            if self._held > 0:
                return self.popped % self.slots.capacity
            if self._failure is not None:
                raise self._failure
            return None

    def wait_for(self, number: int) -> bool:
        """Wait until the batch of that number was pushed; False where the queue is over before."""
        with self._filled:
            while self.pushed <= number and not self._over:
                self._filled.wait()
            return self.pushed > number and not self._closed

    def slot_of(self, number: int) -> int | None:
        """The slot of a batch by its number from the first ever; None where it is not there, or no more."""
        return number % self.slots.capacity if self.popped <= number < self.pushed else None

    def pop(self, quiet: bool = False) -> None:
        """Give the front's slot back to the producers; `quiet`, they learn it at the next `wake`, `front` or `close`.

        A producer that wakes wants the interpreter just when the consumer has a run to start.
        """
        with self._room:
            assert self._held > 0, "pop without a front"
            self.popped += 1
            if not quiet:
                self._room.notify_all()

    def wake(self) -> None:
        """Tell producers of the slots that were given back quietly."""
        with self._room:
            self._room.notify_all()

    def close(self, timeout: float) -> None:
        """Turn producers away, wait until each user has let go, then give the slots back. May be called twice.

        Raises:
            TimeoutExpired: KG903 when a producer did not let go in time; it keeps its slots.
        """
        with self._released:
            self._closed = True
            self._room.notify_all()
            self._filled.notify_all()
            free = lambda: self._users == 0  # noqa: E731
            self._wait(self._released, free, timeout, "could not be closed: its feeder goes on", "KG903")
        self.slots.close()

    @property
    def _held(self) -> int:
        return self.pushed - self.popped

    @property
    def _over(self) -> bool:
        return self._ended or self._closed or self._failure is not None

    def _wait(
        self, told: Condition, ready: Callable[[], bool], timeout: float | None, what: str, code: str = "KG902"
    ) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not ready():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutExpired(f"queue {self.name!r} {what} for {timeout:g} s", code=code)
            told.wait(left)
