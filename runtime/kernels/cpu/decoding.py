"""TensorScatter, SwiGLU, CausalConvWithState and LinearAttention in numpy."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.decoding import linear_sizes, scatter_axis
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.common import given, widened
from kgrun.runtime.kernels.cpu.elementwise import FUNCTIONS, elementwise

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def _swiglu(x: Array, y: Array, out: Array, alpha: float) -> None:
    np.multiply(x / (1 + np.exp(-alpha * x)), y, out=out)


FUNCTIONS["SwiGLU"] = _swiglu
on_cpu("SwiGLU")(elementwise)


@on_cpu("TensorScatter")
def tensor_scatter(call: OpCall) -> HostFunction:
    """A copy of the cache (or its own memory), with new positions written from each sequence's index on."""
    axis, circular = scatter_axis(call), call.attributes["mode"] == "circular"
    size, count = call.input(0).shape[axis], call.input(1).shape[axis]

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        cache, update, starts = inputs[0], inputs[1], given(inputs, 2)
        assert cache is not None
        assert update is not None
        first = np.zeros(len(cache), np.int64) if starts is None else starts % size if circular and size else starts
        wrong = first[(first < 0) | (first + (0 if circular else count) > size)]
        if wrong.size:
            message = f"{call.node}: TensorScatter's index {wrong.flat[0]} leaves a cache of {size} positions"
            raise GraphError(message, code="KG333", help="check write_indices, or use mode: circular")
        np.copyto(outputs[0], cache)
        lead = (slice(None),) * (axis - 1)
        for sequence, start in enumerate(first.tolist()):
            place = (*lead, np.arange(start, start + count) % max(size, 1))
            outputs[0][sequence][place] = update[sequence]

    return run


@on_cpu("CausalConvWithState")
def causal_conv(call: OpCall) -> HostFunction:
    """A depthwise convolution over what came before and what is new; the state is the end of both."""
    taps, length, activated = call.input(1).shape[2], call.input(0).shape[2], call.attributes["activation"] != "none"

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x, weight, bias, past = inputs[0], widened(inputs[1]), given(inputs, 2), given(inputs, 3)
        assert x is not None
        before = np.zeros((*x.shape[:2], taps - 1), x.dtype) if past is None else past
        whole = np.concatenate([before, x], 2)
        wide, result = widened(whole), np.zeros(x.shape, weight.dtype)
        if bias is not None:
            result += widened(bias)[:, None]
        for tap in range(taps):
            result += weight[:, 0, tap, None] * wide[:, :, tap : tap + length]
        if activated:
            with np.errstate(over="ignore"):
                result /= 1 + np.exp(-result)
        np.copyto(outputs[0], result, casting="unsafe")
        np.copyto(outputs[1], whole[:, :, whole.shape[2] - (taps - 1) :])

    return run


@on_cpu("LinearAttention")
def linear_attention(call: OpCall) -> HostFunction:
    """The recurrence token by token, for all sequences and heads at once, in float32."""
    s = linear_sizes(call)
    decays = call.inputs[4] if len(call.inputs) > 4 else None
    rates = 0 if decays is None else prod(decays.shape[2:]) // s.shared  # one a head, or one for each of its rows
    state_shape = (s.batch, s.shared, s.size, s.value_size)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        q, k, v = (widened(inputs[index]) for index in range(3))
        q = q.reshape(s.batch, s.steps, s.shared, s.heads // s.shared, s.size)
        k = k.reshape(s.batch, s.steps, s.shared, s.size, 1)
        v = v.reshape(s.batch, s.steps, s.shared, 1, s.value_size)
        past, decay, beta = given(inputs, 3), given(inputs, 4), given(inputs, 5)
        state = np.zeros(state_shape, np.float32) if past is None else past.astype(np.float32)
        factor = None if decay is None else np.exp(widened(decay)).reshape(s.batch, s.steps, s.shared, rates, 1)
        rate = None if beta is None else widened(beta).reshape(s.batch, s.steps, s.beta_heads, 1, 1)
        result = outputs[0].reshape(s.batch, s.steps, s.shared, s.heads // s.shared, s.value_size)
        with np.errstate(all="ignore"):
            for t in range(s.steps):
                if factor is not None:
                    state = state * factor[:, t]
                new = v[:, t]
                if rate is not None:
                    new = rate[:, t] * (new - np.matmul(k[:, t].swapaxes(-1, -2), state))
                state = state + k[:, t] * new
                np.copyto(result[:, t], np.float32(s.scale) * np.matmul(q[:, t], state), casting="unsafe")
        np.copyto(outputs[1], state, casting="unsafe")

    return run
