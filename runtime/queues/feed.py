"""What a session's queues do for its runs: the next batch in the graph's inputs before each run that counts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from kgrun.graphs.bound import BoundGraph, BoundQueue
from kgrun.graphs.errors import GraphError, KgrunError
from kgrun.runtime.devices.base import Device
from kgrun.runtime.embedding.cache import EmbeddingCache, EmbeddingReport
from kgrun.runtime.program import Pointer, Program
from kgrun.runtime.queues.base import Feed, Writers, no_writer
from kgrun.runtime.queues.fed import Fed, QueueReport
from kgrun.runtime.queues.feeder import start_feeder, start_lookups
from kgrun.runtime.queues.registry import QueueSet
from kgrun.runtime.queues.ring import Ring
from kgrun.runtime.queues.settings import QueueFeed, as_feed, settle
from kgrun.runtime.queues.slots import HostSlots, LaneSlots, Slots
from kgrun.runtime.queues.sources import open_batches

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


class GraphFeed(Feed):
    """The queues and embedding caches of one graph on one device.

    Args:
        feeds: what feeds each queue, by name.
        given, seed: data of tables, as for other parameters.

    Raises:
        UsageError: KG275 for a feed of a queue that the graph has not, KG277 for a queue without data.
        GraphError: data that do not fit.
    """

    def __init__(
        self, bound: BoundGraph, device: Device, feeds: Mapping[str, Any], given: Mapping[str, Array], seed: int
    ) -> None:
        self._device, self._source = device, bound.source
        self._rings = QueueSet()
        self._fed: list[Fed] = []
        self._primed = self._held = False
        self._attach: tuple[Program, Callable[[Pointer], int]] | None = None
        try:
            for queue in bound.queues:
                self._fed.append(self._open(bound, queue, as_feed(feeds.get(queue.name))))
            for cache in bound.caches:
                fed = next(fed for fed in self._fed if cache.ids in fed.queue.items)
                made = EmbeddingCache(bound, cache, device, given, seed, fed.settings.capacity)
                fed.caches[fed.queue.items.index(cache.ids)] = made
        except BaseException:
            self.close(failed=True)
            raise

    def _open(self, bound: BoundGraph, queue: BoundQueue, feed: QueueFeed) -> Fed:
        types = {name: bound.tensors[name].type for name in queue.items}
        place = bound.source.place("queues", queue.name)
        try:
            settings = settle(bound.source, queue.name, queue.spec, feed)
            batches = open_batches(queue.name, types, settings)
        except KgrunError as error:
            raise error.at(place) from None
        lane = self._device.copy_lane()
        slots: Slots
        if lane is None:
            slots = HostSlots(self._device, list(types.values()), settings.capacity)
        else:
            looked_up = {cache.ids for cache in bound.caches}  # on the host
            sent = [name not in looked_up for name in types]
            slots = LaneSlots(self._device, lane, list(types.values()), settings.capacity, batches.held, sent)
        return Fed(queue, settings, batches, self._rings.add(Ring(queue.name, types, slots)), lane)

    def attach(self, program: Program, address: Callable[[Pointer], int], writer: Writers = no_writer) -> None:
        """Find the addresses of the items; those that no step reads have none."""
        self._attach = program, address
        for fed in self._fed:
            slots = {i: program.slots[name] for i, name in enumerate(fed.queue.items) if name in program.slots}
            writers = ((i, writer(slot.buffer)) for i, slot in slots.items())
            fed.writers = {i: write for i, write in writers if write is not None}
            fed.targets = {i: address(slot) for i, slot in slots.items() if i not in fed.writers}
            fed.moved = {i: at for i, at in fed.targets.items() if i not in fed.caches}
        self.in_line = all(fed.lane is not None and not fed.writers for fed in self._fed)
        self._primed = False

    def reload(self) -> None:
        """Start with empty caches, and with the next batch still to be placed."""
        assert self._attach is not None
        program, address = self._attach
        self._primed = False
        for fed, item, cache in self._caches():
            names = [table.name for table in cache.cache.tables if table.name in program.slots]
            places = {name: address(program.slots[name]) for name in names}
            cache.attach(places, fed.targets.get(item), fed.ring.popped)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let runs leave the next batch in its queue."""
        self.prime()
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def table(self, name: str) -> Array | None:
        """The whole table, with what is cached written home."""
        return next((found for *_, cache in self._caches() if (found := cache.table(name)) is not None), None)

    def prime(self) -> None:
        """Have the next batch in place, and leave it in the queue."""
        if not self._primed:
            self._place()
            self._primed = True

    def next(self) -> None:
        """Have the next batch in place, and take it out of the queue."""
        if self._held:
            self.prime()
            return
        if not self._primed:
            self._place()
        self._primed = False
        for fed in self._fed:
            fed.ring.pop(quiet=fed.lane is not None)  # else nothing is said before the run ends
            fed.taken += 1

    def ahead(self) -> None:
        """Have rows moved for the next batch, if it is there, once the run has ended; then let feeders fill up."""
        if self._held:
            return
        for fed in self._fed:
            for item, cache in fed.caches.items():
                cache.move_ahead(fed.ids(item))
            fed.ring.wake()

    def more(self) -> bool:
        """Whether every queue has a further batch."""
        return all(self._front(fed) is not None for fed in self._fed)

    def runs(self) -> int | None:
        """Batches left in the queue that ends first; a number beyond all where that is not known."""
        left = [fed.left for fed in self._fed if fed.left is not None]
        if all(fed.batches.endless for fed in self._fed):
            return None
        return min(left, default=sys.maxsize)

    def check(self, iterations: int) -> None:
        """Count before anything runs."""
        for fed in self._fed:
            if fed.left is not None and iterations > fed.left:
                raise GraphError(
                    f"queue {fed.queue.name!r} has {fed.left:,} batches left, {iterations:,} iterations were asked for",
                    code="KG395",
                    where=self._source.place("queues", fed.queue.name),
                    help="ask for fewer, or give the queue more epochs; epochs=0 goes on without end",
                    details={"left": fed.left, "iterations": iterations},
                )

    def reports(self) -> tuple[QueueReport, ...]:
        """What each queue did since the last call."""
        return tuple(fed.report() for fed in self._fed)

    def cache_reports(self) -> tuple[EmbeddingReport, ...]:
        """What each cache did since the last call."""
        return tuple(cache.report() for *_, cache in self._caches())

    def close(self, failed: bool = False) -> None:
        """Write home what is to persist, then stop the feeders."""
        caches = [cache for *_, cache in self._caches()]
        for fed in self._fed:
            fed.caches = {}
        try:
            with ExitStack() as ends:  # the rings' comes last, and all of them
                ends.callback(self._rings.close)
                for cache in caches:
                    ends.callback(cache.close, failed)
        except KgrunError:
            if not failed:
                raise

    def _caches(self) -> Iterator[tuple[Fed, int, EmbeddingCache]]:
        return ((fed, item, cache) for fed in self._fed for item, cache in fed.caches.items())

    def _place(self) -> None:
        for fed in self._fed:
            slot = self._front(fed)
            if slot is None:
                raise GraphError(
                    f"queue {fed.queue.name!r} is at its end after {fed.taken:,} batches",
                    code="KG395",
                    where=self._source.place("queues", fed.queue.name),
                    help="epochs=0 goes on without end",
                    details={"taken": fed.taken},
                )
            for item, cache in fed.caches.items():
                cache.place(fed.ids(item))
            for i, write in fed.writers.items():
                write(fed.ring.slots.arrays(slot)[i])
            fed.ring.slots.take(slot, fed.moved)

    def _front(self, fed: Fed) -> int | None:
        if not fed.started:
            fed.started = True
            start_feeder(fed.ring, fed.batches.start)
            if fed.caches:
                start_lookups(fed.ring, fed.look_ahead)
        try:
            return fed.ring.front(fed.settings.timeout)
        except KgrunError as error:
            if isinstance(error, GraphError):
                self._device.synchronize()  # a device that is lost says so itself
            raise error.at(self._source.place("queues", fed.queue.name)) from None
