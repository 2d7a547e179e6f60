"""Random numbers in numpy, the same as on CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.random_values import FIRST, GOLDEN, SECOND, stream
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.common import widened

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_BLOCK = 1 << 16


def _uniform(start: int, first: int, last: int, word: int) -> Array:
    """Numbers in [0, 1) of 53 bits: random word 0 or 1 of elements first … last."""
    index = np.arange(2 * first + word + 1, 2 * last + word + 1, 2, dtype=np.uint64)
    with np.errstate(over="ignore"):
        state = index * np.uint64(GOLDEN) + np.uint64(start)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(FIRST)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(SECOND)
    state ^= state >> np.uint64(31)
    return np.asarray((state >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def _normal(start: int, first: int, last: int) -> Array:
    """Box and Muller's transformation of two uniform numbers."""
    radius = np.sqrt(-2 * np.log1p(-_uniform(start, first, last, 0)))
    return np.asarray(radius * np.cos(2 * np.pi * _uniform(start, first, last, 1)))


@on_cpu("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def random(call: OpCall) -> HostFunction:
    """mean + scale · a normal number, or a number between low and high."""
    start, a = stream(call), call.attributes
    normal = call.op.startswith("RandomNormal")
    base, factor = (a["mean"], a["scale"]) if normal else (a["low"], a["high"] - a["low"])

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        target = outputs[0].reshape(-1)
        for first in range(0, target.size, _BLOCK):
            last = min(first + _BLOCK, target.size)
            drawn = _normal(start, first, last) if normal else _uniform(start, first, last, 0)
            np.copyto(target[first:last], base + factor * drawn, casting="unsafe")

    return run


@on_cpu("Bernoulli")
def bernoulli(call: OpCall) -> HostFunction:
    """1 with the probability that the input gives."""
    start = stream(call)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        chances, target = widened(inputs[0]).reshape(-1), outputs[0].reshape(-1)
        np.copyto(target, _uniform(start, 0, target.size, 0) < chances, casting="unsafe")

    return run


@on_cpu("Multinomial")
def multinomial(call: OpCall) -> HostFunction:
    """Classes drawn with the probabilities that unnormalised logarithms give."""
    start, (batch, samples) = stream(call), call.outputs[0].shape

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        logs = widened(inputs[0]).astype(np.float64)
        with np.errstate(all="ignore"):
            sums = np.add.accumulate(np.exp(logs - np.maximum.reduce(logs, 1, keepdims=True)), 1)
        drawn = _uniform(start, 0, batch * samples, 0).reshape(batch, samples) * sums[:, -1:]
        for row in range(batch):
            outputs[0][row] = np.minimum(np.searchsorted(sums[row], drawn[row], side="right"), logs.shape[1] - 1)

    return run
