"""What numpy kernels of several families share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.operators.scalar_code import compute_dtype

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def widened(array: Array | None) -> Array:
    """`array` in the type it is computed in: float32 for narrower floats, itself otherwise."""
    assert array is not None
    return array.astype(np.float32) if compute_dtype(array.dtype.name) != array.dtype.name else array


def given(arrays: Sequence[Array | None], index: int) -> Array | None:
    """Operand `index`, or None where it is absent."""
    return arrays[index] if index < len(arrays) else None
