"""Writes the seeded weights and input of encoder.yaml and encoder_ops.yaml, and what numpy gives for them in float64.

Writes data/encoder.safetensors, data/encoder.npz and data/encoder.expected.npz. The layer is that of "Attention Is All
You Need" (Vaswani et al., 2017) with GELU in place of ReLU; a product is `x @ weight`.
"""

from __future__ import annotations

from math import erf, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

Array = NDArray[np.float64]

DATA = Path(__file__).resolve().parent.parent / "data"
SEQUENCE, WIDTH, HEADS, HIDDEN = 64, 128, 4, 512
LENGTHS = (64, 41)  # tokens of the two sentences; the second one is padded
EPSILON = 1e-5


def seeded_weights(generator: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    """Weights that keep the spread of what flows through them, and small biases."""

    def linear(name: str, rows: int, columns: int) -> dict[str, Array]:
        return {
            f"{name}.weight": generator.normal(0, 1 / sqrt(rows), (rows, columns)),
            f"{name}.bias": generator.normal(0, 0.1, columns),
        }

    def norm(name: str) -> dict[str, Array]:
        return {
            f"{name}.scale": generator.uniform(0.8, 1.2, WIDTH),
            f"{name}.bias": generator.normal(0, 0.1, WIDTH),
        }

    weights = linear("query", WIDTH, WIDTH) | linear("key", WIDTH, WIDTH) | linear("value", WIDTH, WIDTH)
    weights |= linear("output", WIDTH, WIDTH) | norm("norm1")
    weights |= linear("expand", WIDTH, HIDDEN) | linear("shrink", HIDDEN, WIDTH) | norm("norm2")
    return {name: weight.astype(np.float32) for name, weight in weights.items()}


def normalised(x: Array, scale: Array, bias: Array) -> Array:
    """Layer normalisation over the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    result: Array = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON) * scale + bias
    return result


def encoded(tokens: Array, mask: NDArray[np.bool_], w: dict[str, Array]) -> Array:
    """The layer's output [batch, sequence, width] for `tokens` of that shape; false in `mask` hides a key."""
    attended = np.zeros_like(tokens)
    head_width = WIDTH // HEADS
    for sentence, x in enumerate(tokens):
        query, key, value = (x @ w[f"{part}.weight"] + w[f"{part}.bias"] for part in ("query", "key", "value"))
        for head in range(HEADS):
            part = slice(head * head_width, (head + 1) * head_width)
            powers = np.exp(query[:, part] @ key[:, part].T / sqrt(head_width)) * mask[sentence]
            attended[sentence][:, part] = powers / powers.sum(axis=1, keepdims=True) @ value[:, part]
    mixed = tokens + attended @ w["output.weight"] + w["output.bias"]
    mixed = normalised(mixed, w["norm1.scale"], w["norm1.bias"])
    product = mixed @ w["expand.weight"] + w["expand.bias"]
    activated = 0.5 * product * (1 + np.vectorize(erf)(product / sqrt(2)))
    result = mixed + activated @ w["shrink.weight"] + w["shrink.bias"]
    return normalised(result, w["norm2.scale"], w["norm2.bias"])


def main() -> None:
    """Write the three files."""
    generator = np.random.default_rng(1706)
    weights = seeded_weights(generator)
    tokens = generator.normal(0, 1, (len(LENGTHS), SEQUENCE, WIDTH)).astype(np.float32)
    mask = np.arange(SEQUENCE) < np.array(LENGTHS)[:, None]
    result = encoded(tokens.astype(np.float64), mask, {name: w.astype(np.float64) for name, w in weights.items()})
    save_file(weights, DATA / "encoder.safetensors")
    np.savez(DATA / "encoder.npz", tokens=tokens, mask=mask)
    np.savez(DATA / "encoder.expected.npz", encoded=result.astype(np.float32))


if __name__ == "__main__":
    main()
