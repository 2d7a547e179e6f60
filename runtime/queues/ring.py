"""A bounded ring of batches between the threads that make them and the one that runs the graph (S143 to S145)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from threading import Condition, Lock
from typing import TYPE_CHECKING, Any

from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.errors import GraphError, KgrunError, TimeoutExpired
from kgrun.graphs.operators.base import TensorType

if TYPE_CHECKING:
    import numpy as np

    from kgrun.runtime.queues.slots import Slots

    Array = np.ndarray[Any, Any]


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
        self._dtypes = [numpy_dtype(kind.dtype) for kind in types.values()]
        self._changed = Condition()
        self._filling = Lock()  # one producer at a time fills a slot
        self._producers = 0
        self._ended = self._closed = False
        self._failure: KgrunError | None = None

    # Producers

    def attach(self) -> None:
        """Announce a producer; `close` waits until it has let go."""
        with self._changed:
            self._producers += 1

    def release(self) -> None:
        """A producer lets go: it will touch the ring no more."""
        with self._changed:
            self._producers -= 1
            self._changed.notify_all()

    def push(self, batch: Any, timeout: float | None = None) -> None:
        """Put a batch in: arrays by item name, or in the items' order. They are copied before this returns.

        Args:
            timeout: seconds to wait while the ring is full; None: until there is room or the ring is closed.

        Raises:
            GraphError: KG394 for a batch that is not what the queue takes.
            TimeoutExpired: KG902 when the ring stayed full.
            QueueClosed: the ring was closed.
        """
        arrays = self.checked(batch)
        with self._filling:
            started = time.perf_counter_ns()
            with self._changed:
                self._wait(lambda: self._held < self.slots.capacity or self._closed, timeout, "stayed full")
                if self._closed:
                    raise QueueClosed
            self.full_ns += time.perf_counter_ns() - started
            self.slots.fill(self.pushed % self.slots.capacity, arrays)
            with self._changed:
                self.pushed += 1
                self._changed.notify_all()

    def checked(self, batch: Any) -> tuple[Array, ...]:
        """The batch's arrays in the items' order. GraphError KG394 for one that is not what the queue takes."""
        import numpy as np

        names = list(self.types)
        if isinstance(batch, dict):
            given: Sequence[Any] = [batch.get(name) for name in names]
            unknown = [name for name in batch if name not in self.types]
        else:
            given = list(batch) if isinstance(batch, list | tuple) else [batch]
            unknown = [f"item {i}" for i in range(len(names), len(given))]
        if unknown or len(given) < len(names):
            what = f"has {unknown[0]!r}" if unknown else f"has {len(given)} items"
            raise self._unfit(f"a batch {what}; the queue takes {', '.join(names)}")
        arrays = []
        for name, kind, dtype, item in zip(names, self.types.values(), self._dtypes, given, strict=True):
            if item is None:
                raise self._unfit(f"a batch has no {name!r}")
            array = np.asarray(item)
            if array.dtype != dtype or array.shape != kind.shape:
                raise self._unfit(
                    f"{name!r} is {kind.dtype} {list(kind.shape)}, a batch has {array.dtype} {list(array.shape)}"
                )
            arrays.append(array)
        return tuple(arrays)

    def end(self) -> None:
        """No batch will follow."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def fail(self, error: KgrunError) -> None:
        """No batch will follow, for this reason; the consumer learns it after the batches that are there."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    # The consumer

    def front(self, timeout: float | None) -> int | None:
        """The slot of the oldest batch; None at the end of the data.

        Raises:
            TimeoutExpired: KG902 when none came in time.
            KgrunError: why the producer gave up.
            QueueClosed: the ring was closed.
        """
        started = time.perf_counter_ns()
        with self._changed:
            over = lambda: self._held > 0 or self._ended or self._closed or self._failure is not None  # noqa: E731
            self._wait(over, timeout, "had no batch")
            self.waited_ns += time.perf_counter_ns() - started
            if self._closed:
                raise QueueClosed
            if self._held > 0:
                return self.popped % self.slots.capacity
            if self._failure is not None:
                raise self._failure
            return None

    def peek(self) -> int | None:
        """The slot of the oldest batch; None where none is there yet, or none will come."""
        with self._changed:
            return self.popped % self.slots.capacity if self._held > 0 and not self._closed else None

    def pop(self) -> None:
        """Give the front's slot back to the producers."""
        with self._changed:
            assert self._held > 0, "pop without a front"
            self.popped += 1
            self._changed.notify_all()

    def close(self, timeout: float) -> None:
        """Turn producers away, wait until each has let go, then give the slots back. May be called twice.

        Raises:
            TimeoutExpired: KG903 when a producer did not let go in time; it keeps its slots.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._wait(lambda: self._producers == 0, timeout, "could not be closed: its feeder goes on", "KG903")
        self.slots.close()

    @property
    def _held(self) -> int:
        return self.pushed - self.popped

    def _wait(self, ready: Callable[[], bool], timeout: float | None, what: str, code: str = "KG902") -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not ready():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutExpired(f"queue {self.name!r} {what} for {timeout:g} s", code=code)
            self._changed.wait(left)

    def _unfit(self, message: str) -> GraphError:
        return GraphError(f"queue {self.name!r}: {message}", code="KG394")
