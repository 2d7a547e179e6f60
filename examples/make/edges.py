"""Writes data/astronaut.npy, a part of NASA's photograph, and data/edges.expected.npz, its edges by numpy.

    python examples/make/edges.py astronaut.png

The argument is `skimage/data/astronaut.png` of the scikit-image package; without it the committed data/astronaut.npy is
used as it is. Reading the picture needs Pillow.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DATA = Path(__file__).resolve().parent.parent / "data"
ROWS, COLUMNS = slice(0, 301), slice(100, 500)  # the face and the shuttle; 301 fills no whole number of blocks
TAPS = np.array([0.01464626, 0.08312087, 0.23555925, 0.33334724, 0.23555925, 0.08312087, 0.01464626])
THRESHOLD = 0.35


def filtered(image: NDArray[np.float64], taps: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """`image` correlated with `taps` along `axis`; pixels outside repeat the border."""
    radius = len(taps) // 2
    padding = [(radius, radius) if i == axis else (0, 0) for i in range(image.ndim)]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, padding, mode="edge"), len(taps), axis=axis)
    result: NDArray[np.float64] = windows @ taps
    return result


def reference(photograph: NDArray[np.uint8]) -> dict[str, NDArray[np.generic]]:
    """What edges.yaml must give, in float64: `magnitude` float32 and `edges` uint8, both [height, width].

    Raises:
        SystemExit: when a pixel is so close to the threshold that float32 arithmetic may decide either way.
    """
    luminance = photograph @ np.array([0.299, 0.587, 0.114]) / 255
    blurred = filtered(filtered(luminance, TAPS, 1), TAPS, 0)
    slope, smooth = np.array([-1.0, 0.0, 1.0]), np.array([1.0, 2.0, 1.0])
    across = filtered(filtered(blurred, slope, 1), smooth, 0)
    down = filtered(filtered(blurred, slope, 0), smooth, 1)
    magnitude = np.hypot(across, down)
    nearest = np.abs(magnitude - THRESHOLD).min()
    if nearest < 2e-6:
        raise SystemExit(f"a pixel is within {nearest:.1e} of the threshold: choose another one")
    return {
        "magnitude": magnitude.astype(np.float32),
        "edges": np.where(magnitude >= THRESHOLD, 255, 0).astype(np.uint8),
    }


def main() -> None:
    """Write the photograph if a picture is named, and the expected outputs."""
    if len(sys.argv) > 1:
        from PIL import Image

        np.save(DATA / "astronaut.npy", np.ascontiguousarray(np.asarray(Image.open(sys.argv[1]))[ROWS, COLUMNS, :3]))
    expected = reference(np.load(DATA / "astronaut.npy"))
    np.savez_compressed(DATA / "edges.expected.npz", **expected)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
