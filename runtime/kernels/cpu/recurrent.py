"""RNN, GRU and LSTM in numpy: one product for the inputs of all steps, one a step for the state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.recurrent import GATES, Activation, Recurrence, recurrence
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.common import given, widened

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

Function = Callable[["Array"], "Array"]
_FUNCTIONS: dict[str, Callable[[Any, float, float], Any]] = {
    "Relu": lambda x, a, b: np.maximum(x, 0),
    "Tanh": lambda x, a, b: np.tanh(x),
    "Sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "Softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "Softplus": lambda x, a, b: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "LeakyRelu": lambda x, a, b: np.where(x < 0, a * x, x),
    "ThresholdedRelu": lambda x, a, b: np.where(x >= a, x, x.dtype.type(0)),
    "Elu": lambda x, a, b: np.where(x < 0, a * np.expm1(x), x),
    "Affine": lambda x, a, b: a * x + b,
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
}


def _function(activation: Activation, clip: float | None) -> Function:
    function = _FUNCTIONS[activation.name]

    def apply(x: Array) -> Array:
        limited = x if clip is None else np.clip(x, -clip, clip)
        return np.asarray(function(limited, activation.alpha, activation.beta))

    return apply


# A cell takes what the inputs give the gates at one step, and the states; it returns the new states.
States = tuple["Array", ...]
Cell = Callable[["Array", States], States]


def _rnn(call: OpCall, functions: Sequence[Function], weights: Array, late: Array, peepholes: Array | None) -> Cell:
    turned = weights.T

    def cell(x: Array, states: States) -> States:
        return (functions[0](x + states[0] @ turned),)

    return cell


def _gru(call: OpCall, functions: Sequence[Function], weights: Array, late: Array, peepholes: Array | None) -> Cell:
    size, (f, g) = weights.shape[1], functions
    turned, gated, candidate = weights.T, weights[: 2 * size].T, weights[2 * size :].T

    def reset_last(x: Array, states: States) -> States:
        (state,) = states
        product = state @ turned
        gates = f(x[:, : 2 * size] + product[:, : 2 * size])
        update = gates[:, :size]
        made = g(x[:, 2 * size :] + gates[:, size:] * (product[:, 2 * size :] + late))
        return ((1 - update) * made + update * state,)

    def reset_first(x: Array, states: States) -> States:
        (state,) = states
        gates = f(x[:, : 2 * size] + state @ gated)
        update = gates[:, :size]
        made = g(x[:, 2 * size :] + (gates[:, size:] * state) @ candidate)
        return ((1 - update) * made + update * state,)

    return reset_last if call.attributes["linear_before_reset"] else reset_first


def _lstm(call: OpCall, functions: Sequence[Function], weights: Array, late: Array, peepholes: Array | None) -> Cell:
    size, coupled, turned = weights.shape[1], call.attributes["input_forget"], weights.T
    f, g, h = functions
    at = [slice(gate * size, (gate + 1) * size) for gate in range(4)]

    def cell(x: Array, states: States) -> States:
        state, memory = states
        gates = x + state @ turned
        of_input, of_output, of_forget = gates[:, at[0]], gates[:, at[1]], gates[:, at[2]]
        if peepholes is not None:
            of_input = of_input + peepholes[at[0]] * memory
            of_forget = of_forget + peepholes[at[2]] * memory
        taken = f(of_input)
        kept = 1 - taken if coupled else f(of_forget)
        memory = kept * memory + taken * g(gates[:, at[3]])
        if peepholes is not None:
            of_output = of_output + peepholes[at[1]] * memory
        return f(of_output) * h(memory), memory

    return cell


_CELLS = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}


@on_cpu("RNN", "GRU", "LSTM")
def recurrent(call: OpCall) -> HostFunction:
    """Every direction over all steps; past its length a sequence keeps its state and gives zeros."""
    r, make, clip = recurrence(call), _CELLS[call.op], call.attributes.get("clip")
    width, count = GATES[call.op] * r.hidden, 2 if call.op == "LSTM" else 1

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x, w, weights = (widened(inputs[position]) for position in range(3))
        x = x.swapaxes(0, 1) if r.batch_first else x
        bias, lengths, peepholes = given(inputs, 3), given(inputs, 4), given(inputs, 7)
        for d in range(r.directions):
            early, late = _biases(call, np.zeros(2 * width, x.dtype) if bias is None else widened(bias)[d], r.hidden)
            projected = x.reshape(r.steps * r.batch, r.inputs) @ w[d].T + early
            functions = [_function(activation, clip) for activation in r.activations[d]]
            held = None if peepholes is None else widened(peepholes)[d]
            cell = make(call, functions, weights[d], late, held)
            first = [_initial(given(inputs, 5 + kind), r, d, x.dtype) for kind in range(count)]
            series = outputs[0].swapaxes(0, 1) if r.batch_first and outputs else outputs[0] if outputs else None
            target = None if series is None else series[:, :, d] if r.batch_first else series[:, d]
            states = _walk(cell, projected.reshape(r.steps, r.batch, width), first, lengths, r.reverse[d], target)
            for kind, output in enumerate(outputs[1:]):
                place = output[:, d] if r.batch_first else output[d]
                np.copyto(place, states[kind], casting="unsafe")

    return run


def _biases(call: OpCall, both: Array, hidden: int) -> tuple[Array, Array]:
    """The biases of inputs and state, added up once, and the one that a GRU adds to a product before its reset."""
    early, late = both.reshape(2, -1)
    if call.op == "GRU" and call.attributes["linear_before_reset"]:
        late = late[-hidden:]
        return early + np.concatenate([both[len(early) : -hidden], np.zeros_like(late)]), late
    return early + late, late[:0]


def _initial(array: Array | None, r: Recurrence, direction: int, dtype: Any) -> Array:
    if array is None:
        return np.zeros((r.batch, r.hidden), dtype)
    return widened(array)[:, direction] if r.batch_first else widened(array)[direction]


def _walk(
    cell: Cell, projected: Array, first: Sequence[Array], lengths: Array | None, reverse: bool, target: Array | None
) -> States:
    """The states after all steps; `target` [steps, batch, hidden] takes state 0 of each."""
    states: States = tuple(first)
    order = range(len(projected) - 1, -1, -1) if reverse else range(len(projected))
    with np.errstate(all="ignore"):
        for t in order:
            made = cell(projected[t], states)
            shown = made[0]
            if lengths is not None:
                live = (lengths > t)[:, None]
                made = tuple(np.where(live, new, old) for new, old in zip(made, states, strict=True))
                shown = np.where(live, shown, shown.dtype.type(0))
            states = made
            if target is not None:
                np.copyto(target[t], shown, casting="unsafe")
    return states
