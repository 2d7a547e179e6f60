"""Inputs of operators that do not take any number: labels and indices within their range."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.runtime.kernels.base import cpu_kernel

Array = np.ndarray[Any, Any]
Rule = Callable[[OpCall, "list[Array | None]", np.random.Generator], None]


def _indices(position: int, size: Callable[[OpCall], int], *, back: bool) -> Rule:
    """Indices below `size`, from the back too."""

    def fill(call: OpCall, arrays: list[Array | None], rng: np.random.Generator) -> None:
        limit, kind = size(call), call.input(position)
        arrays[position] = rng.integers(-limit if back else 0, limit, kind.shape).astype(kind.dtype)

    return fill


def _gather_size(call: OpCall) -> int:
    return call.input(0).shape[call.attributes["axis"]]


def _gather_grad_size(call: OpCall) -> int:
    return (call.ints(0) or ())[call.attributes["axis"]]


def _largest(call: OpCall, arrays: list[Array | None], rng: np.random.Generator) -> None:
    """The indices that MaxPool finds in an input of the shape of input 1."""
    kind = call.input(1)
    pool = infer("MaxPool", "n", [TensorType("float32", kind.shape)], call.attributes, 2)
    outputs = [np.zeros(out.shape, out.dtype) for out in pool.outputs]
    cpu_kernel("MaxPool")(pool)([rng.random(kind.shape, np.float32)], outputs)
    arrays[2] = outputs[1]


def _positions(position: int, size: Callable[[OpCall], int]) -> Rule:
    """Positions below `size` where the optional input is there."""
    rule = _indices(position, size, back=False)

    def fill(call: OpCall, arrays: list[Array | None], rng: np.random.Generator) -> None:
        if call.optional(position) is not None:
            rule(call, arrays, rng)

    return fill


def _drawn(position: int, draw: Callable[[OpCall, np.random.Generator], Array]) -> Rule:
    """Input `position` as `draw` gives it."""

    def fill(call: OpCall, arrays: list[Array | None], rng: np.random.Generator) -> None:
        arrays[position] = draw(call, rng).astype(call.input(position).dtype)

    return fill


def _element_indices(call: OpCall, rng: np.random.Generator) -> Array:
    """Without a reduction no place is named twice."""
    shape, axis = call.input(1).shape, call.attributes["axis"]
    size = call.input(0).shape[axis]
    if call.op == "GatherElements" or call.attributes.get("reduction", "none") != "none":
        return rng.integers(-size, size, shape)
    whole = (*shape[:axis], size, *shape[axis:][1:])
    return np.take(np.argsort(rng.random(whole), axis), range(shape[axis]), axis)


def _tuple_indices(call: OpCall, rng: np.random.Generator) -> Array:
    batch, shape = call.attributes.get("batch_dims", 0), call.input(1).shape
    sizes = call.input(0).shape[batch : batch + shape[-1]]
    rows, places = math.prod(shape[:-1]), math.prod(sizes)
    repeats = call.op == "GatherND" or call.attributes["reduction"] != "none"
    flat = rng.integers(0, places, rows) if repeats else rng.permutation(places)[:rows]
    found = np.stack(np.unravel_index(flat, sizes), -1).reshape(shape)
    return np.where(rng.random(shape) < 0.3, found - np.array(sizes), found)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("GatherElements", "ScatterElements", "Scatter"), _drawn(1, _element_indices)),
    **dict.fromkeys(("GatherND", "ScatterND"), _drawn(1, _tuple_indices)),
    "GridSample": _drawn(1, lambda call, rng: rng.uniform(-1.6, 1.6, call.input(1).shape)),
    "RoiAlign": _drawn(2, lambda call, rng: rng.integers(0, 2, call.input(2).shape)),
    "MaxUnpool": _drawn(1, lambda call, rng: rng.permutation(48)[:24].reshape(call.input(1).shape)),
    "ReverseSequence": _drawn(1, lambda call, rng: rng.integers(0, 5, call.input(1).shape)),
    "OneHot": _drawn(0, lambda call, rng: rng.integers(-6, 7, call.input(0).shape)),
    "TensorScatter": _positions(2, lambda call: call.input(0).shape[2] - call.input(1).shape[2] + 1),
    "Attention": _positions(6, lambda call: call.input(1).shape[2] + 1),
    "RotaryEmbedding": _positions(3, lambda call: call.input(1).shape[0]),
    "Gather": _indices(1, _gather_size, back=True),
    "GatherGrad": _indices(1, _gather_grad_size, back=True),
    "SoftmaxCrossEntropyLoss": _indices(1, lambda call: call.input(0).shape[1], back=False),
    "NegativeLogLikelihoodLoss": _indices(1, lambda call: call.input(0).shape[1], back=False),
    "SoftmaxCrossEntropyLossGrad": _indices(2, lambda call: call.input(1).shape[1], back=False),
    "MaxPoolGrad": _largest,
}
