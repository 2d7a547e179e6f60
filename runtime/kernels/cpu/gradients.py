"""Gradients in numpy; narrower floats are computed in float32. Convolution and pooling are in `window_gradients`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.shapes import axis_of
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu import window_gradients
from kgrun.runtime.kernels.cpu.common import widened
from kgrun.runtime.kernels.cpu.elementwise import FUNCTIONS, elementwise
from kgrun.runtime.kernels.cpu.special import erf

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

__all__ = ["window_gradients"]  # imported for its registration
_ROOT_2_BY_PI = 0.7978845608028654


def _gelu(x: Array, y: Array, out: Array, approximate: str) -> None:
    if approximate == "tanh":
        inner = np.tanh(_ROOT_2_BY_PI * (y + 0.044715 * (y * y * y)))
        slope = _ROOT_2_BY_PI * (1 + 0.134145 * (y * y))
        factor = 0.5 * (1 + inner + y * (1 - inner * inner) * slope)
    else:
        factor = 0.5 * (1 + erf(y * y.dtype.type(0.7071067811865476)))
        factor = factor + y * (0.3989422804014327 * np.exp(-0.5 * (y * y)))
    np.multiply(x, factor, out=out)


_SCALAR: dict[str, Callable[..., Any]] = {
    "ReluGrad": lambda x, y, out: np.copyto(out, np.where(y > 0, x, x.dtype.type(0))),
    "SigmoidGrad": lambda x, y, out: np.multiply(x, y * (1 - y), out=out),
    "TanhGrad": lambda x, y, out: np.multiply(x, 1 - y * y, out=out),
    "GeluGrad": _gelu,
}
FUNCTIONS.update(_SCALAR)
on_cpu(*_SCALAR)(elementwise)


@on_cpu("SoftmaxGrad", "LogSoftmaxGrad")
def row_wise(call: OpCall) -> HostFunction:
    """y·(dy - Σ dy·y), and dy - exp(y)·Σ dy, along `axis`."""
    axis, logarithm = axis_of(call), call.op == "LogSoftmaxGrad"

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        dy, y = widened(inputs[0]), widened(inputs[1])
        with np.errstate(all="ignore"):
            total = np.add.reduce(dy if logarithm else dy * y, axis, keepdims=True)
            result = dy - np.exp(y) * total if logarithm else y * (dy - total)
        np.copyto(outputs[0], result, casting="unsafe")

    return run


@on_cpu("LayerNormalizationGrad")
def layer_normalization(call: OpCall) -> HostFunction:
    """Gradients of input, scale and bias from the mean and inverse deviation that the forward operator gave."""
    axis, rank = axis_of(call), len(call.input(1).shape)
    normal, rows = tuple(range(axis, rank)), tuple(range(axis))
    count = prod(call.input(1).shape[axis:])
    work = np.dtype("float64" if call.input(1).dtype == "float64" else "float32")

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        dy, x, scale = (widened(array) for array in inputs[:3])
        mean, inverse = (widened(array).astype(work) for array in inputs[3:5])
        with np.errstate(all="ignore"):
            unit = (x - mean) * inverse
            scaled = dy * scale
            along = np.add.reduce(scaled * unit, normal, keepdims=True) / count
            result = inverse * (scaled - np.add.reduce(scaled, normal, keepdims=True) / count - unit * along)
            np.copyto(outputs[0], result, casting="unsafe")
            if len(outputs) > 1:
                np.copyto(outputs[1], np.add.reduce(dy * unit, rows), casting="unsafe")
            if len(outputs) > 2:
                np.copyto(outputs[2], np.add.reduce(dy, rows), casting="unsafe")

    return run


@on_cpu("GatherGrad")
def gather(call: OpCall) -> HostFunction:
    """Rows of the gradient added up where Gather took them, equal indices in their order; zeros elsewhere."""
    shape = call.outputs[0].shape
    axis = call.axis(call.attributes["axis"], len(shape))
    outer, size, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        indices, gradient = inputs[1], widened(inputs[2])
        assert indices is not None
        wrong = indices[(indices < -size) | (indices >= size)]
        if wrong.size:
            message = f"{call.node}: GatherGrad's index {wrong.flat[0]} is outside [-{size}, {size - 1}]"
            raise GraphError(message, code="KG333", help="check the indices, or the axis")
        outputs[0].fill(0)
        if gradient.size == 0:
            return
        rows = np.where(indices < 0, indices + size, indices).reshape(-1)
        order = np.argsort(rows, kind="stable")
        starts = np.flatnonzero(np.diff(rows[order], prepend=-1))
        taken = gradient.reshape(outer, rows.size, inner)[:, order]
        target = outputs[0].reshape(outer, size, inner)
        target[:, rows[order[starts]]] = np.add.reduceat(taken, starts, axis=1).astype(outputs[0].dtype)

    return run
