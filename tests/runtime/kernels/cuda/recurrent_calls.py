"""Calls of recurrent operators for the tests of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import OpCall, TensorType

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
Ints = tuple[int, ...]
FLOATS = ("float32", "float16", "bfloat16", "float64")


def recurrent(op: str) -> Iterator[OpCall]:
    """Every direction, layout, optional input and output once."""
    gates, outputs = _GATES[op], 3 if op == "LSTM" else 2

    def call(
        dtype: str, steps: int, batch: int, size: int, hidden: int, given: str = "", outputs: int = outputs, **more: Any
    ) -> OpCall:
        """`given` has b for biases, l for lengths, h and c for initial states, p for peepholes."""
        both = 2 if more.get("direction") == "bidirectional" else 1
        first = bool(more.get("layout"))
        state = (batch, both, hidden) if first else (both, batch, hidden)
        shapes: list[Ints | None] = [
            (batch, steps, size) if first else (steps, batch, size),
            (both, gates * hidden, size),
            (both, gates * hidden, hidden),
            (both, 2 * gates * hidden) if "b" in given else None,
            (batch,) if "l" in given else None,
            state if "h" in given else None,
            state if "c" in given else None,
            (both, 3 * hidden) if "p" in given else None,
        ]
        kinds = [
            None if shape is None else TensorType("int32" if index == 4 else dtype, shape)
            for index, shape in enumerate(shapes)
        ]
        return infer(op, f"{op}_{dtype}_{given}", kinds[: 8 if op == "LSTM" else 6], more, outputs)

    for dtype in FLOATS:
        yield call(dtype, 3, 2, 5, 7, "bh")
    yield call("float32", 4, 3, 5, 33, "blhcp" if op == "LSTM" else "blh", direction="bidirectional")
    yield call("float32", 4, 3, 5, 6, "bl", direction="reverse", layout=1)
    yield call("float32", 4, 3, 5, 6, "bh", direction="bidirectional", layout=1, clip=0.4)
    yield call("float32", 1, 1, 40, 4, outputs=1)
    named = {"RNN": 1, "GRU": 2, "LSTM": 3}[op]
    for activations in (("LeakyRelu", "Softsign", "ScaledTanh"), ("HardSigmoid", "Affine", "Elu")):
        constants = {"activation_alpha": [0.3, 0.4, 0.5], "activation_beta": [0.2, 0.6]}
        yield call("float32", 3, 2, 4, 5, "b", activations=list(activations[:named]), **constants)
    yield call("float32", 3, 2, 4, 5, "b", activations=["relu", "Softplus", "ThresholdedRelu"][:named])
    if op == "GRU":
        yield call("float32", 3, 2, 4, 5, "bh", linear_before_reset=1)
    if op == "LSTM":
        yield call("float32", 3, 2, 4, 5, "bcp", input_forget=1)


FAMILIES = {"recurrent": recurrent}
