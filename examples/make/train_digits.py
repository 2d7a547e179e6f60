"""Trains the network of digits.yaml in plain numpy; writes its weights, the held-out digits and the expected outputs.

The images are the test part of the UCI set "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak,
1998), as scikit-learn ships it: 1,797 digits of 8 × 8 pixels with values from 0 to 16. A seeded shuffle holds 450 of
them out; they are used for nothing but the figures at the end.

    python examples/make/train_digits.py

Writes data/digits.safetensors, data/digits.npz, data/digits.expected.npz, data/digits16.npz and
data/digits16.expected.npz. Needs scikit-learn and safetensors; takes some ten seconds on one core.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

Array = NDArray[np.float32]
Weights = dict[str, Array]

DATA = Path(__file__).resolve().parent.parent / "data"
SEED = 20_240_601
HELD_OUT = 450
EPOCHS = 60
BATCH = 64
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 1e-4


def initial_weights(generator: np.random.Generator) -> Weights:
    """He's initialisation (He et al., "Delving Deep into Rectifiers", 2015) for all layers."""

    def normal(*shape: int) -> Array:
        fan_in = int(np.prod(shape[1:]))
        return generator.normal(0, np.sqrt(2 / fan_in), shape).astype(np.float32)

    return {
        "conv1.weight": normal(16, 1, 3, 3),
        "conv1.bias": np.zeros(16, np.float32),
        "conv2.weight": normal(32, 16, 3, 3),
        "conv2.bias": np.zeros(32, np.float32),
        "linear.weight": normal(10, 128),
        "linear.bias": np.zeros(10, np.float32),
    }


def patches(x: Array) -> Array:
    """The 3 × 3 neighbourhoods of `x` [N, C, H, W], zero-padded, as rows [N, H, W, C · 9]."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    count, channels, height, width = x.shape
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(count, height, width, channels * 9)


def spread(rows: Array, shape: tuple[int, ...]) -> Array:
    """The transpose of `patches`: adds the rows back where they came from, to `shape` [N, C, H, W]."""
    count, channels, height, width = shape
    padded = np.zeros((count, channels, height + 2, width + 2), np.float32)
    cells = rows.reshape(count, height, width, channels, 3, 3).transpose(0, 3, 1, 2, 4, 5)
    for row in range(3):
        for column in range(3):
            padded[:, :, row : row + height, column : column + width] += cells[..., row, column]
    return padded[:, :, 1:-1, 1:-1]


def convolve(x: Array, weight: Array, bias: Array) -> tuple[Array, Array]:
    """A 3 × 3 convolution with padding 1, and the patches that its gradient needs."""
    rows = patches(x)
    return (rows @ weight.reshape(weight.shape[0], -1).T + bias).transpose(0, 3, 1, 2), rows


def pool(x: Array) -> tuple[Array, Array]:
    """The maximum of each 2 × 2 square, and a mask of where it was (shared where pixels tie)."""
    count, channels, height, width = x.shape
    squares = x.reshape(count, channels, height // 2, 2, width // 2, 2)
    highest = squares.max(axis=(3, 5), keepdims=True)
    mask = (squares == highest).astype(np.float32)
    return highest[:, :, :, 0, :, 0], mask / mask.sum(axis=(3, 5), keepdims=True)


def unpool(gradient: Array, mask: Array) -> Array:
    """The gradient of `pool`."""
    count, channels, height, _, width, _ = mask.shape
    return (mask * gradient[:, :, :, None, :, None]).reshape(count, channels, 2 * height, 2 * width)


def forward(weights: Weights, images: Array) -> tuple[Array, list[Array]]:
    """Logits [N, 10] of `images` [N, 1, 8, 8], and what the gradient needs of the way there."""
    first, rows1 = convolve(images / np.float32(16), weights["conv1.weight"], weights["conv1.bias"])
    pooled1, mask1 = pool(np.maximum(first, 0))
    second, rows2 = convolve(pooled1, weights["conv2.weight"], weights["conv2.bias"])
    pooled2, mask2 = pool(np.maximum(second, 0))
    features = pooled2.reshape(len(images), -1)
    logits = features @ weights["linear.weight"].T + weights["linear.bias"]
    return logits, [rows1, first, mask1, pooled1, rows2, second, mask2, features]


def softmax(logits: Array) -> Array:
    """Probabilities along the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    result: Array = powers / powers.sum(axis=-1, keepdims=True)
    return result


def gradients(weights: Weights, images: Array, labels: NDArray[np.int64]) -> Weights:
    """The gradient of the mean cross-entropy with respect to every weight."""
    logits, (rows1, first, mask1, pooled1, rows2, second, mask2, features) = forward(weights, images)
    error = softmax(logits)
    error[np.arange(len(labels)), labels] -= 1
    error /= np.float32(len(labels))
    result = {"linear.weight": error.T @ features, "linear.bias": error.sum(axis=0)}

    back = (error @ weights["linear.weight"]).reshape(len(labels), 32, 2, 2)
    back2 = (unpool(back, mask2) * (second > 0)).transpose(0, 2, 3, 1)
    result["conv2.weight"] = np.tensordot(back2, rows2, ((0, 1, 2), (0, 1, 2))).reshape(32, 16, 3, 3)
    result["conv2.bias"] = back2.sum(axis=(0, 1, 2))

    back = spread(back2 @ weights["conv2.weight"].reshape(32, -1), pooled1.shape)
    back1 = (unpool(back, mask1) * (first > 0)).transpose(0, 2, 3, 1)
    result["conv1.weight"] = np.tensordot(back1, rows1, ((0, 1, 2), (0, 1, 2))).reshape(16, 1, 3, 3)
    result["conv1.bias"] = back1.sum(axis=(0, 1, 2))
    return result


def shifted(images: Array, generator: np.random.Generator) -> Array:
    """Every image moved by at most one pixel each way: writers do not centre their digits alike."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    moves = generator.choice(3, (len(images), 2), p=(0.2, 0.6, 0.2))
    return np.stack([padded[i, :, r : r + 8, c : c + 8] for i, (r, c) in enumerate(moves)])


def train(images: Array, labels: NDArray[np.int64]) -> Weights:
    """Weights after EPOCHS of AdamW (Loshchilov and Hutter, 2019) with a cosine schedule."""
    generator = np.random.default_rng(SEED)
    weights = initial_weights(generator)
    mean = {name: np.zeros_like(w) for name, w in weights.items()}
    square = {name: np.zeros_like(w) for name, w in weights.items()}
    steps, step = EPOCHS * (len(images) // BATCH), 0
    for _ in range(EPOCHS):
        order = generator.permutation(len(images))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            step += 1
            rate = LEARNING_RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
            for name, g in gradients(weights, shifted(images[chosen], generator), labels[chosen]).items():
                mean[name] += 0.1 * (g - mean[name])
                square[name] += 0.001 * (g * g - square[name])
                move = mean[name] / (1 - 0.9**step) / (np.sqrt(square[name] / (1 - 0.999**step)) + 1e-8)
                weights[name] = (weights[name] - rate * (move + WEIGHT_DECAY * weights[name])).astype(np.float32)
    return weights


def reference(weights: Weights, images: Array, labels: NDArray[np.int64]) -> dict[str, NDArray[np.generic]]:
    """What digits.yaml must give, computed in float64 and rounded to its output types."""
    wide = {name: w.astype(np.float64) for name, w in weights.items()}
    logits, _ = forward(wide, images.astype(np.float64))  # type: ignore[arg-type]
    predictions = logits.argmax(axis=1)
    return {
        "logits": logits.astype(np.float32),
        "probabilities": softmax(logits).astype(np.float32),
        "predictions": predictions.astype(np.int64),
        "accuracy": np.array(np.mean(predictions == labels), np.float32),
    }


def main() -> None:
    """Train, write the files and print both accuracies."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = digits.images.astype(np.float32)[:, None], digits.target.astype(np.int64)
    order = np.random.default_rng(SEED).permutation(len(images))
    held, rest = order[:HELD_OUT], order[HELD_OUT:]
    weights = train(images[rest], labels[rest])
    save_file(weights, DATA / "digits.safetensors")
    for name, chosen in (("digits", held), ("digits16", held[:16])):
        expected = reference(weights, images[chosen], labels[chosen])
        np.savez(DATA / f"{name}.npz", images=images[chosen], labels=labels[chosen])
        np.savez(DATA / f"{name}.expected.npz", **expected)  # type: ignore[arg-type]
    seen = reference(weights, images[rest], labels[rest])["accuracy"]
    unseen = reference(weights, images[held], labels[held])["accuracy"]
    print(f"accuracy: {seen:.4f} on {len(rest)} training digits, {unseen:.4f} on {len(held)} held-out digits")


if __name__ == "__main__":
    main()
