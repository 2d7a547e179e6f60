"""What a run asks of data queues, and the answer of a graph that has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from kgrun.graphs.bound import BoundGraph
    from kgrun.runtime.devices.base import Device
    from kgrun.runtime.embedding.cache import EmbeddingReport
    from kgrun.runtime.program import Pointer, Program
    from kgrun.runtime.queues.fed import QueueReport

    Array = np.ndarray[Any, Any]

UNDER_WAY = 2  # runs that may be going on when the next one is issued, where batches take their places in line

Writers = Callable[[int], "Callable[[Array], None] | None"]


def no_writer(buffer: int) -> None:
    """Every buffer has one address."""


class Feed:
    """Nothing to feed: what a graph without queues has, and what the others share.

    Attributes:
        in_line: whether a batch takes its place in the order of the steps, while earlier runs may still go on.
    """

    in_line = False

    def attach(self, program: Program, address: Callable[[Pointer], int], writer: Writers = no_writer) -> None:
        """The program that will run, where its buffers lie, and what writes those that are on the host meanwhile."""

    def prime(self) -> None:
        """Have the next batch in place without taking it: for runs that do not count."""

    def more(self) -> bool:
        """Whether a further run would find a batch; waits until that is known."""
        return True

    def next(self) -> None:
        """Take the next batch and have it in place: before each run that counts.

        Raises:
            GraphError: KG395 at the end of the data; what ended the feeder.
            TimeoutExpired: KG902 when no batch came in time.
        """

    def ahead(self) -> None:
        """What can be prepared for the next run while this one goes on."""

    def runs(self) -> int | None:
        """How many runs the data are for; None where they have no end, or there are none."""
        return None

    def check(self, iterations: int) -> None:
        """GraphError KG395 where so many runs are surely more than the data are for."""

    def amount(self, iterations: int | None, default: int, duration: float | None) -> tuple[int, bool]:
        """How many runs are meant, and whether the end of the data ends them; raises as `check`."""
        if iterations is not None:
            if duration is None:
                self.check(iterations)
            return iterations, False
        runs = self.runs()
        return (default, False) if runs is None else (runs or 1, True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Meanwhile no run takes a batch: all have the next one in place."""
        yield

    def reload(self) -> None:
        """Parameters are loaded afresh: cached rows are forgotten, not written home."""

    def table(self, name: str) -> Array | None:
        """The whole table of that name, where it stays on the host."""
        return None

    def reports(self) -> tuple[QueueReport, ...]:
        """What each queue did since the last call."""
        return ()

    def cache_reports(self) -> tuple[EmbeddingReport, ...]:
        """What each embedding cache did since the last call."""
        return ()

    def close(self, failed: bool = False) -> None:
        """Stop the feeders, then give memory back. With `failed` an earlier error is under way: raise none."""

    def ended(self, kind: object, *_: object) -> None:
        """`close` as the end of a `with` block has it."""
        self.close(failed=kind is not None)


def open_feed(
    bound: BoundGraph, device: Device, feeds: Mapping[str, Any], given: Mapping[str, Array], seed: int
) -> Feed:
    """The feed of a graph: one that does nothing where it has no queues."""
    if not feeds and not bound.queues:
        return Feed()
    from kgrun.runtime.queues.feed import GraphFeed  # threads, sources and caches: only graphs with queues need them
    from kgrun.runtime.queues.settings import check_feeds

    check_feeds(bound.source, feeds)
    return GraphFeed(bound, device, feeds, given, seed) if bound.queues else Feed()
