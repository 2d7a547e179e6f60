"""Launch arguments passed by value, read back from their bytes."""

from __future__ import annotations

import struct

from kgrun.graphs.dtypes import DTYPES, VECTORS

_FORMATS = {
    "float64": "<d", "float32": "<f", "float16": "<e",
    "int64": "<q", "int32": "<i", "int16": "<h", "int8": "<b",
    "uint64": "<Q", "uint32": "<I", "uint16": "<H", "uint8": "<B", "bool": "<?",
}  # fmt: skip
_GUESSES = {8: ("int64", "float64"), 4: ("int32", "float32"), 2: ("int16", "float16"), 1: ("uint8",)}
_SHOWN = 32  # bytes of a longer value in hexadecimal


def value_text(data: bytes, kind: str | None) -> str:
    """The value as the reader of a launch wants it.

    Args:
        data: little-endian bytes.
        kind: a dtype, a vector type, "bytes" or "struct"; None where only the bytes are known, in which case every
            likely reading is given.
    """
    if kind in VECTORS:
        element, count, _ = VECTORS[kind]
        size = DTYPES[element].itemsize
        parts = [_scalar(data[i * size : (i + 1) * size], element) for i in range(count)]
        if None not in parts:
            return f"({', '.join(str(part) for part in parts)})"
    elif kind in DTYPES:
        one = _scalar(data, kind)
        if one is not None:
            return one
    elif kind is None:
        readings = [f"{_scalar(data, guess)} as {guess}" for guess in _GUESSES.get(len(data), ())]
        if readings:
            return " or ".join(readings)
    shown = data[:_SHOWN].hex()
    return f"0x{shown}{f'… ({len(data):,} bytes)' if len(data) > _SHOWN else ''}"


def _scalar(data: bytes, dtype: str) -> str | None:
    if len(data) != DTYPES[dtype].itemsize:
        return None
    if dtype == "bfloat16":
        return _shortest(struct.unpack("<f", b"\0\0" + data)[0], "<f")
    if dtype not in _FORMATS:
        return None
    (value,) = struct.unpack(_FORMATS[dtype], data)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _shortest(value, _FORMATS[dtype]) if isinstance(value, float) else str(value)


def _shortest(value: float, layout: str) -> str:
    """The fewest digits that give the same bytes again: 0.1, not 0.10000000149011612."""
    bits = struct.pack(layout, value)
    for digits in range(1, 17):
        text = f"{value:.{digits}g}"
        try:
            if struct.pack(layout, float(text)) == bits:
                return text
        except OverflowError:
            continue
    return repr(value)
