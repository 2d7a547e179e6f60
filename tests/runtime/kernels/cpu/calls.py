"""Calls of CPU kernels on arrays, for the tests of every family."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgrun.graphs.operators import all_schemas, infer
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.runtime.kernels.base import cpu_kernel

Array = np.ndarray[Any, Any]


def dtype_of(name: str) -> np.dtype[Any]:
    """numpy's dtype of a kgrun dtype."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name, name))


def typed(array: Array, known: bool = False) -> TensorType:
    """The array's type, with its value if wanted."""
    return TensorType(array.dtype.name, array.shape, tuple(array.reshape(-1).tolist()) if known else None)


def call_of(op: str, arrays: list[Array | None], count: int = 1, **attributes: Any) -> OpCall:
    """The operator over arrays; host inputs have their values."""
    host = all_schemas()[op].host_inputs
    types = [None if a is None else typed(a, index in host) for index, a in enumerate(arrays)]
    return infer(op, "node", types, attributes, count)


def run(op: str, *arrays: Array | None, count: int = 1, **attributes: Any) -> list[Array]:
    """The outputs of an operator."""
    call = call_of(op, list(arrays), count, **attributes)
    outputs = [np.zeros(type_.shape, dtype_of(type_.dtype)) for type_ in call.outputs]
    cpu_kernel(op)(call)(arrays, outputs)
    return outputs
