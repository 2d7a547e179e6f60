"""Optimizers in numpy. A result may lie in the memory of its input: a block is read whole before any is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.optimizers import results_of, tensors_of
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.common import widened

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_BLOCK = 16_384  # elements: a block's operands and temporaries stay in the cache

# (attributes, rate, count, parameter, gradient, *states) -> the new parameter and states.
Rule = Callable[..., tuple["Array", ...]]


def _sgd(_: Any, rate: float, count: int, x: Array, g: Array) -> tuple[Array, ...]:
    return (x - x.dtype.type(rate) * g,)


def _momentum(attributes: Any, rate: float, count: int, x: Array, g: Array, v: Array) -> tuple[Array, ...]:
    alpha, beta = attributes["alpha"], attributes["beta"] if count > 0 else 1.0
    v = alpha * v + beta * g
    step = v if attributes["mode"] == "standard" else g + alpha * v
    return x - x.dtype.type(rate) * step, v


def _adagrad(attributes: Any, rate: float, count: int, x: Array, g: Array, h: Array) -> tuple[Array, ...]:
    h = h + g * g
    decayed = x.dtype.type(rate / (1 + count * attributes["decay_factor"]))
    return x - decayed * g / (np.sqrt(h) + attributes["epsilon"]), h


def _adam(attributes: Any, rate: float, count: int, x: Array, g: Array, v: Array, h: Array) -> tuple[Array, ...]:
    alpha, beta = attributes["alpha"], attributes["beta"]
    v = alpha * v + (1 - alpha) * g
    h = beta * h + (1 - beta) * g * g
    if count > 0:
        rate = rate * float(np.sqrt(1 - beta**count)) / (1 - alpha**count)
    x = x - x.dtype.type(rate) * v / (np.sqrt(h) + attributes["epsilon"])
    post = attributes["norm_coefficient_post"]
    return (1 - post) * x if post else x, v, h


_RULES: dict[str, Rule] = {"SGD": _sgd, "Momentum": _momentum, "Adagrad": _adagrad, "Adam": _adam}


@on_cpu(*_RULES)
def optimizer(call: OpCall) -> HostFunction:
    """Any rule of _RULES over all its parameters."""
    rule, attributes = _RULES[call.op], call.attributes
    positions = list(zip(tensors_of(call), results_of(call), strict=True))
    decay, counted = attributes["norm_coefficient"], call.op != "SGD"

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        rate = float(_number(inputs[0]))
        count = int(_number(inputs[1])) if counted else 0
        for sources, results in positions:
            operands = [_flat(inputs[position]) for position in sources]
            targets = [outputs[position].reshape(-1) for position in results]
            for start in range(0, operands[0].size, _BLOCK):
                part = slice(start, start + _BLOCK)
                x, g, *states = (widened(operand[part]) for operand in operands)
                if decay:
                    g = x.dtype.type(decay) * x + g
                with np.errstate(all="ignore"):
                    made = rule(attributes, rate, count, x, g, *states)
                for target, result in zip(targets, made, strict=True):
                    np.copyto(target[part], result, casting="unsafe")

    return run


@on_cpu("ApplyMomentum")
def apply_momentum(call: OpCall) -> HostFunction:
    """accumulation · momentum + gradient, and a step along it."""
    nesterov = call.attributes["use_nesterov"]

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x, v, g = (widened(inputs[position]) for position in (0, 1, 3))
        rate, momentum = (x.dtype.type(_number(inputs[position])) for position in (2, 4))
        with np.errstate(all="ignore"):
            v = v * momentum + g
            x = x - rate * (g + v * momentum if nesterov else v)
        for target, result in zip(outputs, (x, v), strict=False):  # the accumulation only where it is wanted
            np.copyto(target, result, casting="unsafe")

    return run


def _number(array: Array | None) -> Any:
    assert array is not None
    return array.reshape(-1)[0]


def _flat(array: Array | None) -> Array:
    assert array is not None
    return array.reshape(-1)
