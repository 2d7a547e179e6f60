"""What numpy kernels of several families share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.operators.scalar_code import compute_dtype

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


@cache  # numpy makes a type's name anew each time, which takes as long as a small sum
def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether elements are computed in a wider type."""
    return compute_dtype(dtype.name) != dtype.name


def widened(array: Array | None) -> Array:
    """`array` in the type it is computed in: float32 for narrower floats, itself otherwise."""
    assert array is not None
    return array.astype(np.float32) if is_narrow(array.dtype) else array


def given(arrays: Sequence[Array | None], index: int) -> Array | None:
    """Operand `index`, or None where it is absent."""
    return arrays[index] if index < len(arrays) else None
