"""Poison: what memory holds before its first write, told apart from anything a kernel would write."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgrun.graphs.dtypes import DTYPES

Array = np.ndarray[Any, Any]

# Bits that make an element NaN in its type, and the bits that vary with its position.
_NAN = {
    "float64": (0xFFF8_0000_0000_0001, 0x0007_FFFF_FFFF_FFFE),
    "float32": (0xFFC0_0001, 0x003F_FFFE),
    "float16": (0xFE01, 0x01FE),
    "bfloat16": (0xFFC1, 0x003E),
    "float8_e4m3fn": (0xFF, 0),
    "float8_e5m2": (0xFD, 0),
    "bool": (0xA5, 0),
}
# Small integers may hold any value by right: only so many bytes of poison in a row are called unwritten.
_RUN_BYTES = 8
_LEAST_BYTES = 4


def poison(dtype: str, nbytes: int, salt: int = 0) -> Array:
    """`nbytes` bytes of poison: NaN in float types, different from element to element and, by `salt`, from tensor to
    tensor, so that copied poison does not look like a tensor's own."""
    kind = DTYPES[dtype]
    count = nbytes // kind.itemsize
    position = np.arange(1, count + 1, dtype=np.uint64)
    mixed = (position + np.uint64(salt << 40)) * np.uint64(0x9E37_79B9_7F4A_7C15)
    mixed ^= mixed >> np.uint64(29)
    fixed, varying = _NAN.get(dtype, (0, (1 << 8 * kind.itemsize) - 1))
    bits = (mixed & np.uint64(varying)) | np.uint64(fixed)
    rest = np.full(nbytes - count * kind.itemsize, 0xFF, np.uint8)
    return np.concatenate([bits.astype(f"<u{kind.itemsize}").view(np.uint8), rest])


def unwritten(content: Array, dtype: str, salt: int = 0) -> Array:
    """Which elements of `content` (bytes) still hold their poison: booleans, one an element.

    Of 8- and 16-bit integers only runs of 8 bytes count, for a single one may hold its poison's value by chance.
    """
    kind = DTYPES[dtype]
    unit = f"<u{kind.itemsize}"
    same: Array = content.view(unit) == poison(dtype, content.nbytes, salt).view(unit)
    if dtype in _NAN or kind.itemsize > 2 or not same.any():
        return same
    if content.nbytes < _LEAST_BYTES:
        return np.zeros_like(same)
    run = min(_RUN_BYTES // kind.itemsize, same.size)
    sums = np.concatenate([[0], np.cumsum(same)])
    full = np.flatnonzero(sums[run:] - sums[:-run] == run)  # where a whole run begins
    marks = np.zeros(same.size + 1, np.int64)
    np.add.at(marks, full, 1)
    np.add.at(marks, full + run, -1)
    found: Array = np.cumsum(marks[:-1]) > 0
    return found
