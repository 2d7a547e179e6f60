"""What a batch is: an array for each item of its queue; and the first batch of every queue of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kgrun.graphs.bound import BoundGraph
from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.queues.picked import Picked
from kgrun.runtime.queues.settings import as_feed, settle
from kgrun.runtime.queues.sources import open_batches

Array = np.ndarray[Any, Any]


def checked_batch(queue: str, types: Mapping[str, TensorType], batch: Any) -> tuple[Array | Picked, ...]:
    """The arrays of a batch in the items' order. GraphError KG394 for one that is not what the queue takes (S143)."""
    names = list(types)
    if isinstance(batch, dict):
        given: Sequence[Any] = [batch.get(name) for name in names]
        unknown = [name for name in batch if name not in types]
    else:
        given = list(batch) if isinstance(batch, list | tuple) else [batch]
        unknown = [f"item {i}" for i in range(len(names), len(given))]
    if unknown or len(given) < len(names):
        what = f"has {unknown[0]!r}" if unknown else f"has {len(given)} items"
        raise _unfit(queue, f"a batch {what}; the queue takes {', '.join(names)}")
    arrays: list[Array | Picked] = []
    for (name, kind), item in zip(types.items(), given, strict=True):
        if item is None:
            raise _unfit(queue, f"a batch has no {name!r}")
        array = item if isinstance(item, Picked) else np.asarray(item)
        if array.dtype != numpy_dtype(kind.dtype) or array.shape != kind.shape:
            found = f"{array.dtype} {list(array.shape)}"
            raise _unfit(queue, f"{name!r} is {kind.dtype} {list(kind.shape)}, a batch has {found}")
        arrays.append(array)
    return tuple(arrays)


def first_batches(bound: BoundGraph, feeds: Mapping[str, Any]) -> dict[str, Array]:
    """The first batch of every queue, by item. Raises as opening the queues does."""
    found: dict[str, Array] = {}
    for queue in bound.queues:
        settings = settle(bound.source, queue.name, queue.spec, as_feed(feeds.get(queue.name)))
        types = {name: bound.tensors[name].type for name in queue.items}
        batch = next(open_batches(queue.name, types, settings).start(), None)
        if batch is not None:
            found |= zip(types, map(np.asarray, checked_batch(queue.name, types, batch)), strict=True)
    return found


def _unfit(queue: str, message: str) -> GraphError:
    return GraphError(f"queue {queue!r}: {message}", code="KG394")
