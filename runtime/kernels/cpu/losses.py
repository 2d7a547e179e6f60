"""Losses over classes in numpy, computed in float32 for narrower floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators.base import OpCall
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.common import widened

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def _log_softmax(x: Array) -> Array:
    shifted: Array = x - np.maximum.reduce(x, 1, keepdims=True)
    shifted -= np.log(np.add.reduce(np.exp(shifted), 1, keepdims=True))
    return shifted


def _counted(call: OpCall, labels: Array, weights: Array | None, classes: int, dtype: Any) -> tuple[Array, Array]:
    """Labels with ignored ones replaced by class 0, and what each counts for; GraphError for one outside."""
    ignored = call.attributes.get("ignore_index")
    kept = np.ones(labels.shape, bool) if ignored is None else labels != ignored
    wrong = labels[kept & ((labels < 0) | (labels >= classes))]
    if wrong.size:
        message = f"{call.node}: {call.op}'s label {wrong.flat[0]} is outside [0, {classes - 1}]"
        raise GraphError(message, code="KG333", help="check the labels, or ignore_index")
    places = np.where(kept, labels, 0)
    counts = kept.astype(dtype) if weights is None else weights[places] * kept
    return places, counts


@on_cpu("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
def loss(call: OpCall) -> HostFunction:
    """The negative logarithm of the labels' probabilities, weighted and reduced; output 1 holds all logarithms."""
    scored, reduction = call.op == "SoftmaxCrossEntropyLoss", call.attributes["reduction"]
    classes = call.input(0).shape[1]

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x, labels = widened(inputs[0]), inputs[1]
        weights = widened(inputs[2]) if len(inputs) > 2 and inputs[2] is not None else None
        assert labels is not None
        places, counts = _counted(call, labels, weights, classes, x.dtype)
        with np.errstate(all="ignore"):
            logs = _log_softmax(x) if scored else x
            result = -np.take_along_axis(logs, places[:, None], 1)[:, 0]
            result = np.where(counts == 0, x.dtype.type(0), result * counts)
            if reduction != "none":
                result = np.add.reduce(result, None)
            if reduction == "mean":
                result = result / np.add.reduce(counts, None)
            np.copyto(outputs[0], result, casting="unsafe")
            if len(outputs) > 1:
                np.copyto(outputs[1], logs, casting="unsafe")

    return run


@on_cpu("SoftmaxCrossEntropyLossGrad")
def loss_gradient(call: OpCall) -> HostFunction:
    """(softmax - one at the label) · gradient · weight, divided by all weights for `mean`."""
    classes, mean = call.input(1).shape[1], call.attributes["reduction"] == "mean"

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        upstream, logs, labels = widened(inputs[0]), widened(inputs[1]), inputs[2]
        weights = widened(inputs[3]) if len(inputs) > 3 and inputs[3] is not None else None
        assert labels is not None
        places, counts = _counted(call, labels, weights, classes, logs.dtype)
        with np.errstate(all="ignore"):
            scale = upstream * counts
            if mean:
                scale = scale / np.add.reduce(counts, None)
            result = np.exp(logs)
            places = places[:, None]
            np.put_along_axis(result, places, np.take_along_axis(result, places, 1) - 1, 1)
            np.copyto(outputs[0], np.where(counts[:, None] == 0, 0, result * scale[:, None]), casting="unsafe")

    return run
