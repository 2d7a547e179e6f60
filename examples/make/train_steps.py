"""The steps of train_digits.yaml in plain numpy: a two-layer network, mean cross-entropy, momentum.

    python examples/make/train_steps.py

Writes data/digits_train.npz (the 1,347 digits that train_digits.py does not hold out), data/digits_start.safetensors
(the weights before the first step) and data/digits_mlp.safetensors (after the last), and prints the accuracy on the
digits of digits.npz, which the training never sees. Needs scikit-learn and safetensors; takes a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Weights = dict[str, Array]

DATA = Path(__file__).resolve().parent.parent / "data"
HIDDEN = 64
BATCH = 64
EPOCHS = 20
SHUFFLE = 7
RATE = 0.05
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4


def start(generator: np.random.Generator) -> Weights:
    """He's initialisation (He et al., "Delving Deep into Rectifiers", 2015)."""

    def normal(fan_in: int, fan_out: int) -> Array:
        return generator.normal(0, np.sqrt(2 / fan_in), (fan_in, fan_out)).astype(np.float32)

    return {
        "hidden_weight": normal(64, HIDDEN),
        "hidden_bias": np.zeros(HIDDEN, np.float32),
        "digit_weight": normal(HIDDEN, 10),
        "digit_bias": np.zeros(10, np.float32),
    }


def forward(weights: Weights, images: Array) -> tuple[Array, Array, Array]:
    """Pixels [N, 64] from 0 to 1, hidden layer [N, HIDDEN] and scores [N, 10] of `images` [N, 1, 8, 8]."""
    pixels = images.reshape(len(images), 64) / 16
    hidden = np.maximum(pixels @ weights["hidden_weight"] + weights["hidden_bias"], 0)
    return pixels, hidden, hidden @ weights["digit_weight"] + weights["digit_bias"]


def gradients(weights: Weights, images: Array, labels: Array) -> Weights:
    """The gradient of the mean cross-entropy with respect to every weight."""
    pixels, hidden, scores = forward(weights, images)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    error = powers / powers.sum(axis=1, keepdims=True)
    error[np.arange(len(labels)), labels] -= 1
    error /= len(labels)
    back = (error @ weights["digit_weight"].T) * (hidden > 0)
    return {
        "hidden_weight": pixels.T @ back,
        "hidden_bias": back.sum(axis=0),
        "digit_weight": hidden.T @ error,
        "digit_bias": error.sum(axis=0),
    }


def batches(images: Array, labels: Array) -> Iterator[tuple[Array, Array]]:
    """What the queue of train_digits.yaml gives: epoch e in the order of numpy's generator seeded [SHUFFLE, e]."""
    for epoch in range(EPOCHS):
        order = np.random.default_rng([SHUFFLE, epoch]).permutation(len(images))
        for first in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[first : first + BATCH]
            yield images[chosen], labels[chosen]


def trained(weights: Weights, images: Array, labels: Array) -> Weights:
    """Weights after all steps, computed in float64."""
    weights = {name: w.astype(np.float64) for name, w in weights.items()}
    speed = {name: np.zeros_like(w) for name, w in weights.items()}
    for some, digits in batches(images.astype(np.float64), labels):
        for name, gradient in gradients(weights, some, digits).items():
            speed[name] = MOMENTUM * speed[name] + gradient + WEIGHT_DECAY * weights[name]
            weights[name] = weights[name] - RATE * speed[name]
    return weights


def accuracy(weights: Weights, images: Array, labels: Array) -> float:
    """Share of the digits that are recognised."""
    return float(np.mean(forward(weights, images)[2].argmax(axis=1) == labels))


def main() -> None:
    """Write the files."""
    from safetensors.numpy import save_file
    from sklearn.datasets import load_digits
    from train_digits import HELD_OUT, SEED

    digits = load_digits()
    images, labels = digits.images.astype(np.float32)[:, None], digits.target.astype(np.int64)
    rest = np.random.default_rng(SEED).permutation(len(images))[HELD_OUT:]
    np.savez_compressed(DATA / "digits_train.npz", images=images[rest], labels=labels[rest])
    weights = start(np.random.default_rng(SEED))
    save_file(weights, DATA / "digits_start.safetensors")
    weights = trained(weights, images[rest], labels[rest])
    save_file({name: w.astype(np.float32) for name, w in weights.items()}, DATA / "digits_mlp.safetensors")
    held = np.load(DATA / "digits.npz")
    print(f"accuracy: {accuracy(weights, held['images'], held['labels']):.4f} on {len(held['labels'])} held-out digits")


if __name__ == "__main__":
    main()
