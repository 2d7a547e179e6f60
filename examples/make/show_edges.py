"""Writes a picture of the photograph beside its edges, from the outputs of edges.yaml.

    kgrun execute examples/edges.yaml --output-dir out
    python examples/make/show_edges.py out/edges.npy edges.png

The first argument may also be an .npz that holds `edges`. Needs numpy alone: the PNG is written by hand.
"""

from __future__ import annotations

import struct
import sys
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DATA = Path(__file__).resolve().parent.parent / "data"


def png(image: NDArray[np.uint8]) -> bytes:
    """`image` [height, width, 3] as a PNG file (ISO/IEC 15948), unfiltered."""
    height, width, _ = image.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, width * 3)], axis=1)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(lines.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def main() -> None:
    """Read the edges, put them beside the photograph and write the picture."""
    if len(sys.argv) != 3:
        raise SystemExit("usage: show_edges.py EDGES.npy PICTURE.png")
    loaded = np.load(sys.argv[1])
    edges: NDArray[np.uint8] = loaded["edges"] if isinstance(loaded, np.lib.npyio.NpzFile) else loaded
    photograph: NDArray[np.uint8] = np.load(DATA / "astronaut.npy")
    if photograph.shape[:2] != edges.shape:
        raise SystemExit(f"edges of shape {edges.shape} do not belong to the photograph {photograph.shape}")
    beside = np.concatenate([photograph, np.repeat(edges[:, :, None], 3, axis=2)], axis=1)
    Path(sys.argv[2]).write_bytes(png(beside))


if __name__ == "__main__":
    main()
