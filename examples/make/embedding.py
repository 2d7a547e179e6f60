"""Clicks for embedding.yaml, and what it must give, by indexing the whole table in numpy.

    python examples/make/embedding.py

Writes data/clicks.npz and data/embedding.expected.npz. Values are quarters and whole numbers of moderate size, so sums
are exact in any order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

DATA = Path(__file__).resolve().parent.parent / "data"
PRODUCTS, WIDTH, BATCH, STEPS = 2_000, 8, 32, 60
SEED = 20_240_602


def clicks(generator: np.random.Generator) -> tuple[Array, Array]:
    """Products [STEPS · BATCH] by Zipf's law, none twice in a batch, and a step [STEPS · BATCH, WIDTH] for each."""
    weights = 1 / np.arange(1, PRODUCTS + 1)
    chosen = [generator.choice(PRODUCTS, BATCH, replace=False, p=weights / weights.sum()) for _ in range(STEPS)]
    steps = generator.integers(-2, 3, (STEPS * BATCH, WIDTH)) / 4
    return np.concatenate(chosen).astype(np.int64), steps.astype(np.float32)


def reference(products: Array, steps: Array) -> dict[str, Array]:
    """The rows that the last batch finds, in a table that is all ones at first, and the sum of all rows ever found."""
    table = np.ones((PRODUCTS, WIDTH), np.float32)
    seen = np.zeros((BATCH, WIDTH), np.float32)
    found = seen
    for start in range(0, len(products), BATCH):
        batch = products[start : start + BATCH]
        found = table[batch]
        seen = seen + found
        table[batch] = found + steps[start : start + BATCH]
    return {"found": found, "seen_new": seen}


def main() -> None:
    """Write the files."""
    products, steps = clicks(np.random.default_rng(SEED))
    np.savez_compressed(DATA / "clicks.npz", products=products, steps=steps)
    np.savez(DATA / "embedding.expected.npz", **reference(products, steps))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
