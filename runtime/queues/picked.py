"""Rows of an array that a shuffle picked: they are gathered where they are to lie, and not before."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgrun.graphs.records import dataclass
from kgrun.runtime.host_copies import HostCopies

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Picked:
    """`array[rows]`, whose copy is yet to be made; every row number is in range."""

    array: Array
    rows: Array

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the array."""
        found: np.dtype[Any] = self.array.dtype
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the rows together."""
        return (len(self.rows), *self.array.shape[1:])

    def __len__(self) -> int:
        return len(self.rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found: Array = self.array[self.rows]
        return found if dtype is None else found.astype(dtype, copy=False)


def put(copies: HostCopies, place: Array, item: Array | Picked) -> None:
    """Copy an item of a batch to its place, of the same dtype and shape."""
    if not isinstance(item, Picked):
        copies.copy(place, item)
    elif item.array.flags.c_contiguous:
        copies.gather(item.array, item.rows, place)
    else:
        np.copyto(place, item.array[item.rows])
