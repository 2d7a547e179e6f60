"""Recurrent operators beyond ONNX's node tests: directions and lengths against each other, activations by formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import TensorType
from tests.runtime.kernels.cpu.calls import run

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(11)
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
STEPS, BATCH, SIZE, HIDDEN = 5, 3, 4, 6


def weights(op: str, directions: int = 1) -> list[Array]:
    """W, R and B."""
    gates = GATES[op] * HIDDEN
    shapes = ((directions, gates, SIZE), (directions, gates, HIDDEN), (directions, 2 * gates))
    return [RNG.uniform(-1, 1, shape) for shape in shapes]


def outputs(op: str) -> int:
    """How many outputs an operator has."""
    return 3 if op == "LSTM" else 2


@pytest.mark.parametrize("op", GATES)
def test_a_reversed_direction_reads_each_sequence_from_its_own_end(op: str) -> None:
    x, lengths = RNG.uniform(-1, 1, (STEPS, BATCH, SIZE)), np.array([5, 2, 3], np.int32)
    both = weights(op)
    found = run(op, x, *both, lengths, count=outputs(op), direction="reverse")
    for sequence, length in enumerate(lengths):
        alone = x[:length, sequence : sequence + 1][::-1]
        want = run(op, alone, *both, count=outputs(op))
        np.testing.assert_allclose(found[0][:length, 0, sequence], want[0][::-1, 0, 0], rtol=1e-12)
        assert not found[0][length:, 0, sequence].any()
        for index in range(1, outputs(op)):
            np.testing.assert_allclose(found[index][0, sequence], want[index][0, 0], rtol=1e-12)


@pytest.mark.parametrize("op", GATES)
def test_two_directions_are_two_networks_in_either_layout(op: str) -> None:
    x, both = RNG.uniform(-1, 1, (STEPS, BATCH, SIZE)), weights(op, 2)
    state = RNG.uniform(-1, 1, (2, BATCH, HIDDEN))
    found = run(op, x, *both, None, state, count=outputs(op), direction="bidirectional")
    for d, direction in enumerate(("forward", "reverse")):
        own = [array[d : d + 1] for array in both]
        alone = run(op, x, *own, None, state[d : d + 1], count=outputs(op), direction=direction)
        np.testing.assert_allclose(found[0][:, d], alone[0][:, 0], rtol=1e-12)
        np.testing.assert_allclose(found[1][d], alone[1][0], rtol=1e-12)
    turned = run(
        op, x.swapaxes(0, 1).copy(), *both, None, state.swapaxes(0, 1).copy(), count=outputs(op),
        direction="bidirectional", layout=1,
    )  # fmt: skip
    np.testing.assert_array_equal(turned[0], found[0].transpose(2, 0, 1, 3))
    np.testing.assert_array_equal(turned[1], found[1].swapaxes(0, 1))


FORMULAS: dict[str, Any] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Tanh": np.tanh,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Softplus": lambda x: np.log(1 + np.exp(x)),
    "LeakyRelu": lambda x: np.where(x < 0, 0.3 * x, x),
    "ThresholdedRelu": lambda x: np.where(x >= 0.3, x, 0),
    "Elu": lambda x: np.where(x < 0, 0.3 * (np.exp(x) - 1), x),
    "Affine": lambda x: 0.3 * x + 0.2,
    "ScaledTanh": lambda x: 0.3 * np.tanh(0.2 * x),
    "HardSigmoid": lambda x: np.clip(0.3 * x + 0.2, 0, 1),
}


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("name", FORMULAS)
def test_activations_and_clip(name: str, clip: float | None) -> None:
    x, (w, r, b) = RNG.uniform(-2, 2, (1, BATCH, SIZE)), weights("RNN")
    more = {} if clip is None else {"clip": clip}
    constants = {"activation_alpha": [0.3], "activation_beta": [0.2]}
    found = run("RNN", x, w, r, b, count=2, activations=[name.upper()], **constants, **more)
    inner = x[0] @ w[0].T + b[0, :HIDDEN] + b[0, HIDDEN:]
    inner = inner if clip is None else np.clip(inner, -clip, clip)
    np.testing.assert_allclose(found[1][0], FORMULAS[name](inner), rtol=1e-12)


def test_coupled_gates_forget_what_is_not_taken() -> None:
    x, (w, r, b) = RNG.uniform(-1, 1, (1, BATCH, SIZE)), weights("LSTM")
    memory = RNG.uniform(-1, 1, (1, BATCH, HIDDEN))
    zeros = np.zeros_like(memory)
    found = run("LSTM", x, w, r, b, None, zeros, memory, count=3, input_forget=1)[2][0]
    gates = x[0] @ w[0].T + b[0, : 4 * HIDDEN] + b[0, 4 * HIDDEN :]
    taken = 1 / (1 + np.exp(-gates[:, :HIDDEN]))
    np.testing.assert_allclose(found, (1 - taken) * memory[0] + taken * np.tanh(gates[:, 3 * HIDDEN :]), rtol=1e-12)


@pytest.mark.parametrize(
    ("position", "shape", "attributes", "text"),
    [
        (1, (1, 23, 4), {}, r"not \[1, 24, 4\]"),
        (3, (1, 24), {}, r"not \[1, 48\]"),
        (0, (0, 3, 4), {}, "over no steps"),
        (0, (5, 3, 4), {"activations": ["Tanh"]}, "1 activations, 3 are needed"),
        (0, (5, 3, 4), {"activations": ["Tanh", "Wave", "Tanh"]}, "no activation 'Wave'"),
        (0, (5, 3, 4), {"hidden_size": 7}, "hidden_size differs"),
    ],
)
def test_what_does_not_fit_is_refused(
    position: int, shape: tuple[int, ...], attributes: dict[str, Any], text: str
) -> None:
    shapes = [(5, 3, 4), (1, 24, 4), (1, 24, 6), (1, 48)]
    shapes[position] = shape
    with pytest.raises(GraphError, match=text):
        infer("LSTM", "n", [TensorType("float32", shape) for shape in shapes], attributes)
