"""Writes data/saxpy.npz and data/saxpy.expected.npz: two vectors of 10,007 floats, and 2 x + y by numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np

DATA = Path(__file__).resolve().parent.parent / "data"
LENGTH = 10_007  # a prime, so that the last block is never full


def main() -> None:
    """Write both files."""
    generator = np.random.default_rng(2024)
    x = generator.uniform(-1, 1, LENGTH).astype(np.float32)
    y = generator.normal(0, 1, LENGTH).astype(np.float32)
    z = (2.0 * x.astype(np.float64) + y).astype(np.float32)
    np.savez(DATA / "saxpy.npz", x=x, y=y)
    np.savez(DATA / "saxpy.expected.npz", z=z)


if __name__ == "__main__":
    main()
