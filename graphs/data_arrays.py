"""Element types and inline values as numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kgrun.graphs.data_values import check_shape, typed_elements
from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.errors import Place, placed

Array = np.ndarray[Any, Any]
DType = np.dtype[Any]

# Types that numpy lacks; ml_dtypes adds them.
EXTRA = frozenset({"bfloat16", "float8_e4m3fn", "float8_e5m2"})


def numpy_dtype(name: str) -> DType:
    """The numpy dtype of a name of `graphs.dtypes.DTYPES`, in native byte order."""
    if name in EXTRA:
        import ml_dtypes

        extra: DType = np.dtype(getattr(ml_dtypes, name))
        return extra
    return np.dtype(name)


def value_array(
    value: object,
    dtype: str,
    shape: tuple[int, ...] | None,
    dims: Mapping[str, int],
    where: Place | None = None,
) -> Array:
    """An inline value as an array; one number spreads over any shape. Raises as `constant_value`."""
    with placed(where):
        _, found, elements = typed_elements(value, dtype, dims)
        if shape is not None:
            check_shape(found, shape)
    # Through the widest type of the kind: ml_dtypes' types cannot be made from Python lists of mixed numbers.
    wide = {"float": "float64", "int": "int64", "uint": "uint64", "bool": "bool"}[DTYPES[dtype].kind]
    array = np.array(elements, dtype=wide).astype(numpy_dtype(dtype))
    if shape is None or found == shape:
        return array.reshape(found)
    return np.full(shape, array[0], dtype=array.dtype)


def string_array(text: str) -> Array:
    """The UTF-8 bytes of `text`: uint8 of shape [length]."""
    return np.frombuffer(text.encode("utf-8"), dtype=np.uint8)
