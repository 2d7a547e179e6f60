"""The thread that fills a ring, and how its end, by whatever cause, reaches the consumer."""

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
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        found = GraphError(f"the feeder of queue {ring.name!r} died: {text}", code="KG397")
        found.__cause__ = error
        ring.fail(found)
    finally:
        ring.release()
