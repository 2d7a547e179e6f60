"""One step of a small convolutional network, all in one graph, against numeric differentiation of its loss."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgrun.runtime import Session
from tests.support import graph, node, tensor

Array = np.ndarray[Any, Any]
F = "float64"
RATE = 0.25
SHAPES = {"conv_w": (3, 2, 3, 3), "conv_b": (3,), "scale": (27,), "shift": (27,), "fc_w": (27, 5), "fc_b": (5,)}
RNG = np.random.default_rng(21)
VALUES = {name: RNG.uniform(-0.5, 0.5, shape) for name, shape in SHAPES.items()}
IMAGES, LABELS = RNG.standard_normal((4, 2, 8, 8)), RNG.integers(0, 5, 4)
POOL = {"kernel_shape": [2, 2], "strides": [2, 2]}
# name, operator, inputs, outputs, attributes
FORWARD = [
    ("conv", "Conv", ["images", "conv_w", "conv_b"], ["sums"], {}),
    ("gelu", "Gelu", ["sums"], ["active"], {}),
    ("pool", "MaxPool", ["active"], ["pooled", "places"], POOL),
    ("flatten", "Flatten", ["pooled"], ["flat"], {}),
    ("norm", "LayerNormalization", ["flat", "scale", "shift"], ["normal", "mean", "inverse"], {}),
    ("fc", "Gemm", ["normal", "fc_w", "fc_b"], ["scores"], {}),
    ("loss", "SoftmaxCrossEntropyLoss", ["scores", "labels"], ["entropy", "logs"], {}),
]
BACKWARD = [
    ("loss_grad", "SoftmaxCrossEntropyLossGrad", ["one", "logs", "labels"], ["d_scores"], {}),
    ("fc_w_grad", "Gemm", ["normal", "d_scores"], ["d_fc_w"], {"transA": 1}),
    ("fc_b_grad", "ReduceSum", ["d_scores", "axis"], ["d_fc_b"], {"keepdims": 0}),
    ("fc_grad", "Gemm", ["d_scores", "fc_w"], ["d_normal"], {"transB": 1}),
    ("norm_grad", "LayerNormalizationGrad", ["d_normal", "flat", "scale", "mean", "inverse"],
     ["d_flat", "d_scale", "d_shift"], {}),
    ("unflatten", "Reshape", ["d_flat", "pooled_shape"], ["d_pooled"], {}),
    ("pool_grad", "MaxPoolGrad", ["d_pooled", "active", "places"], ["d_active"], POOL),
    ("gelu_grad", "GeluGrad", ["d_active", "sums"], ["d_sums"], {}),
    ("conv_grad", "ConvGrad", ["d_sums", "images", "conv_w"], [None, "d_conv_w", "d_conv_b"], {}),
]  # fmt: skip
TOLD = {f"{name}_new": name for name in SHAPES}
UPDATE = ("update", "SGD", ["rate", *SHAPES, *(f"d_{name}" for name in SHAPES)], list(TOLD), {})


def session(*rows: Any, outputs: list[str], values: dict[str, Array]) -> Session:
    """A graph of `rows` over parameters of these values, the images and their labels."""
    tensors: dict[str, Any] = {"images": tensor("input", (4, 2, 8, 8), F), "labels": tensor("input", (4,), "int64")}
    tensors |= {name: tensor("parameter", shape, F) for name, shape in SHAPES.items()}
    constants = {"rate": (F, RATE), "one": (F, 1.0), "axis": ("int64", [0]), "pooled_shape": ("int64", [4, 3, 3, 3])}
    tensors |= {name: {"role": "constant", "dtype": d, "value": v} for name, (d, v) in constants.items()}
    nodes = [
        node(name, inputs, made, op=op, attributes=attributes, **({"inplace": TOLD} if op == "SGD" else {}))
        for name, op, inputs, made, attributes in rows
    ]
    used = {name for row in rows for name in row[2]}
    return Session(graph(nodes, {n: t for n, t in tensors.items() if n in used}, outputs), device="cpu", values=values)


def entropy(values: dict[str, Array]) -> float:
    """The loss of the network with these parameters."""
    with session(*FORWARD, outputs=["entropy"], values=values) as forward:
        return float(forward.run({"images": IMAGES, "labels": LABELS}).outputs["entropy"])


@pytest.fixture(scope="module")
def stepped() -> tuple[list[float], dict[str, Array]]:
    """The losses of two runs, and the parameters after the first."""
    with session(*FORWARD, *BACKWARD, UPDATE, outputs=["entropy", *TOLD], values=VALUES) as training:
        first = training.run({"images": IMAGES, "labels": LABELS}).outputs
        moved = {name: first[f"{name}_new"].copy() for name in SHAPES}
        losses = [float(first["entropy"]), float(training.run().outputs["entropy"])]
    return losses, moved


@pytest.mark.parametrize("name", SHAPES)
def test_a_step_goes_down_the_numeric_gradient(stepped: tuple[list[float], dict[str, Array]], name: str) -> None:
    found = (VALUES[name] - stepped[1][name]) / RATE
    direction = RNG.standard_normal(SHAPES[name])
    step = 1e-5 * direction
    slope = (entropy({**VALUES, name: VALUES[name] + step}) - entropy({**VALUES, name: VALUES[name] - step})) / 2e-5
    assert (found * direction).sum() == pytest.approx(slope, rel=1e-4, abs=1e-7)


def test_S39_the_next_run_starts_from_the_updated_parameters(stepped: tuple[list[float], dict[str, Array]]) -> None:
    losses, moved = stepped
    assert losses[0] == pytest.approx(entropy(VALUES), rel=1e-12)
    assert losses[1] == pytest.approx(entropy(moved), rel=1e-12)
    assert losses[1] < losses[0]
