"""Rows on their way between the tables on the host and the cache on the device: at once, where both are host memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from kgrun.graphs.bound import BoundCache, BoundTable
from kgrun.graphs.data import numpy_dtype
from kgrun.runtime.devices.cpu import array_at
from kgrun.runtime.embedding.index import Block, Lookup
from kgrun.runtime.host_copies import HostCopies
from kgrun.runtime.program import ArrayRef, Pointer

if TYPE_CHECKING:
    from kgrun.graphs.operators.base import TensorType
    from kgrun.runtime.devices.base import Device

Array = np.ndarray[Any, Any]


class Rows(Protocol):
    """Moves the rows of one cache, in the order of the lookups and of the steps."""

    overlaps: bool  # whether `move` is worth while when a run goes on

    def attach(self, places: Mapping[str, int], ids: int | None) -> None:
        """Where the caches of the tables lie, and the ids; everything is zero from now on."""
        ...

    def block(self, number: int) -> Block:
        """Where the lookup of batch `number` is to be written; waits until nobody reads an older one there.

        Any thread may ask. What is written there is read until that many batches later as there are blocks.
        """
        ...

    def move(self, lookup: Lookup) -> None:
        """Let evicted rows go home if they may have been updated, and missing ones take their places."""
        ...

    def put_ids(self, lookup: Lookup) -> None:
        """Put the indices of cached rows where the graph reads ids, in the order of the steps; `move` comes before."""
        ...

    def settle(self) -> None:
        """Wait for what is on its way, home or to the device."""
        ...

    def read(self, table: BoundTable, out: Array) -> None:
        """All cached rows of a table."""
        ...

    def close(self) -> None:
        """Give memory back."""
        ...


def host_blocks(ids: TensorType, count: int) -> list[Block]:
    """Blocks in ordinary memory."""
    return [Block.new(ids.size, numpy_dtype(ids.dtype)) for _ in range(count)]


class HostRows:
    """Rows of a device that steps through host memory: straight from array to array."""

    overlaps = False

    def __init__(
        self, device: Device, cache: BoundCache, tables: Mapping[str, Array], ids: TensorType, blocks: int
    ) -> None:
        self._device, self._cache, self._tables = device, cache, tables
        self._blocks = host_blocks(ids, blocks)
        self._copies = HostCopies()
        self._views: dict[str, Array] = {}
        self._ids: int | None = None

    def attach(self, places: Mapping[str, int], ids: int | None) -> None:
        """Make views of the caches."""
        self._ids = ids
        for table in self._cache.tables:
            if table.name in places:
                ref = ArrayRef(Pointer(0), table.dtype, (self._cache.rows + 1, *table.shape[1:]))
                self._views[table.name] = array_at(ref, lambda _, at=places[table.name]: at)  # type: ignore[misc]
                self._views[table.name][:] = 0

    def block(self, number: int) -> Block:
        """They are taken in turn."""
        return self._blocks[number % len(self._blocks)]

    def move(self, lookup: Lookup) -> None:
        """Write evicted rows to the tables, then read missing ones from them."""
        for each in self._cache.tables:
            table, view = self._tables[each.name], self._views.get(each.name)
            if view is None:
                continue
            if each.updated:
                self._copies.scatter(table, lookup.evicted, view[lookup.freed])
            self._copies.scatter(view, lookup.places, table[lookup.missing])
            if lookup.outside and each.updated:
                view[-1] = 0  # an update may have written to it

    def put_ids(self, lookup: Lookup) -> None:
        """Write them."""
        if self._ids is not None:
            self._device.upload(self._ids, np.ascontiguousarray(lookup.slots))

    def settle(self) -> None:
        """Nothing is on its way."""

    def read(self, table: BoundTable, out: Array) -> None:
        """Copy them."""
        np.copyto(out, self._views[table.name])

    def close(self) -> None:
        """End the copying threads."""
        self._copies.close()
