"""Einsum and Det in numpy; float16 and bfloat16 are computed in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.contraction import equation
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.common import widened

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


@on_cpu("Einsum")
def einsum(call: OpCall) -> HostFunction:
    """numpy's einsum, along a path chosen once: pairs go to BLAS where they are products of matrices."""
    found = equation(call)
    text = f"{','.join(found.terms)}->{found.output}"
    shapes = [np.broadcast_to(np.float32(0), type_.shape) for type_ in call.inputs if type_ is not None]
    path, _ = np.einsum_path(text, *shapes, optimize="greedy")

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        with np.errstate(all="ignore"):
            result = np.einsum(text, *(widened(array) for array in inputs), optimize=path)
            np.copyto(outputs[0], result, casting="unsafe")

    return run


@on_cpu("Det")
def det(call: OpCall) -> HostFunction:
    """The determinant of every matrix, by LU decomposition."""

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        with np.errstate(all="ignore"):
            np.copyto(outputs[0], np.linalg.det(widened(inputs[0])), casting="unsafe")

    return run
