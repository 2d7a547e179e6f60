"""The threads beside a ring: one fills it, one looks its batches up; and how their end reaches the consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

from kgrun.graphs.errors import GraphError, KgrunError
from kgrun.runtime.queues.ring import QueueClosed, Ring


def start_feeder(ring: Ring, batches: Callable[[], Iterator[Any]]) -> Thread:
    """Push all batches into the ring from a thread of its own.

    It waits without limit while the ring is full. The ring learns how it ends: the data's end, or the error.
    """
    ring.attach()
    thread = Thread(target=_feed, args=(ring, batches), name=f"kgrun queue {ring.name}", daemon=True)
    thread.start()
    return thread


def start_lookups(ring: Ring, look_ahead: Callable[[], None]) -> Thread:
    """Call `look_ahead` from a thread of its own whenever there are further batches, until the ring is over.

    Filling and looking up take about as long as a short run each: together they would be slower than it.
    """
    ring.attach()
    thread = Thread(target=_look, args=(ring, look_ahead), name=f"kgrun lookups {ring.name}", daemon=True)
    thread.start()
    return thread


def _look(ring: Ring, look_ahead: Callable[[], None]) -> None:
    seen = 0
    try:
        while ring.wait_for(seen):
            seen = ring.pushed
            look_ahead()
    except BaseException as error:
        ring.fail(_died("the lookups", ring, error))
    finally:
        ring.release()


def _feed(ring: Ring, batches: Callable[[], Iterator[Any]]) -> None:
    try:
        for batch in batches():
            ring.push(batch)
        ring.end()
    except QueueClosed:
        pass
    except KgrunError as error:
        ring.fail(error)
    except BaseException as error:
        # Also SystemExit and the like: nothing else would tell the consumer, who would wait for nothing.
        ring.fail(_died("the feeder", ring, error))
    finally:
        ring.release()


def _died(who: str, ring: Ring, error: BaseException) -> GraphError:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    found = GraphError(f"{who} of queue {ring.name!r} died: {text}", code="KG397")
    found.__cause__ = error
    return found
