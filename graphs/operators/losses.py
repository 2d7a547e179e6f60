"""Losses over classes, and the gradient of the one that trains classifiers.

Scores are [batch, classes, spatial …], labels [batch, spatial …], weights [classes]. A label equal to `ignore_index`
counts for nothing; `mean` divides by the weights of the labels that count.
"""

from __future__ import annotations

from kgrun.graphs.dtypes import WIDE_FLOATS
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.shapes import like, needs_dtype, same_dtype

_ATTRIBUTES = {
    "ignore_index": Attribute("int"),
    "reduction": Attribute("string", "mean", choices=("none", "sum", "mean")),
}


def _checked(call: OpCall, scores: int) -> TensorType:
    """Input `scores`, with the labels and weights after it checked against it; its shape without classes."""
    source, labels, weights = call.input(scores), call.input(scores + 1), call.optional(scores + 2)
    shape = source.shape
    needs_dtype(call, scores + 1, ("int32", "int64"))
    if len(shape) < 2:
        call.fail(f"{call.op} takes [batch, classes, …], got {list(shape)}", "inputs", scores)
    if shape[1] == 0:
        call.fail(f"{call.op} needs one class at least, got {list(shape)}", "inputs", scores)
    if labels.shape != (shape[0], *shape[2:]):
        message = f"{call.op}: labels of shape {list(labels.shape)} for scores of shape {list(shape)}"
        call.fail(message, "inputs", scores + 1)
    if weights is not None and weights.shape != shape[1:2]:
        call.fail(f"{call.op}: weights of shape {list(weights.shape)} for {shape[1]} classes", "inputs", scores + 2)
    return TensorType(source.dtype, labels.shape if call.attributes["reduction"] == "none" else ())


def _loss(call: OpCall) -> list[TensorType]:
    same_dtype(call, 0, 2)
    return [_checked(call, 0), like(call.input(0))][: call.output_count]


def _gradient(call: OpCall) -> list[TensorType]:
    same_dtype(call, 0, 1, 3)
    loss = _checked(call, 1)
    if call.input(0).shape != loss.shape:
        found, wanted = list(call.input(0).shape), list(loss.shape)
        call.fail(f"{call.op}: the loss's gradient has shape {found}, not {wanted}", "inputs", 0)
    return [like(call.input(1))]


register(
    OpSchema(
        "SoftmaxCrossEntropyLoss",
        "losses",
        (2, 3),
        _loss,
        outputs=(1, 2),
        dtypes=WIDE_FLOATS,
        attributes=_ATTRIBUTES,
        flops=lambda call: 5 * call.input(0).size,
    ),
    OpSchema(
        "NegativeLogLikelihoodLoss",
        "losses",
        (2, 3),
        _loss,
        dtypes=WIDE_FLOATS,
        attributes=_ATTRIBUTES,
        flops=lambda call: 2 * call.input(1).size,
    ),
    # (gradient of the loss, log_prob of the loss, labels, weights): the gradient of the scores.
    OpSchema(
        "SoftmaxCrossEntropyLossGrad",
        "losses",
        (3, 4),
        _gradient,
        dtypes=WIDE_FLOATS,
        attributes=_ATTRIBUTES,
        flops=lambda call: 3 * call.input(1).size,
        domain="kgrun",
    ),
)
