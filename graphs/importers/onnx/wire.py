"""Reads a model file without its weights: large raw data stay where they are, their place is noted instead.

Only messages that can hold large data are opened; everything else is copied as it is. Protobuf's wire format:
https://protobuf.dev/programming-guides/encoding/; field numbers: onnx.proto of ONNX 1.23.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from kgrun.graphs.data_onnx import SELF

# Smaller data are parsed with the rest.
LARGE = 16 << 10

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14

# Message kind -> field number -> kind of the message inside.
_INSIDE: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}


def skeleton(path: Path) -> bytes:
    """The serialized model with every large `raw_data` replaced by an external reference to the same file.

    Raises:
        ValueError: the bytes are no protobuf message.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            return b""
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _without_large(data, 0, len(data), "model")


def _without_large(data: mmap.mmap, start: int, end: int, kind: str) -> bytes:
    parts: list[bytes] = []
    kept = start  # what lies between here and the next replaced field is copied in one piece
    left = b""
    for number, wire, at, first, last in _fields(data, start, end):
        if wire != _BYTES or last - first < LARGE:
            continue
        inner = _INSIDE[kind].get(number)
        if kind == "tensor" and number == _RAW_DATA:
            new, left = b"", _reference(first, last - first)
        elif inner is not None:
            new = _message(number, _without_large(data, first, last, inner))
        else:
            continue
        parts += (data[kept:at], new)
        kept = last
    # Of fields said twice the last one counts: the message may say of itself that the data lie here.
    parts += (data[kept:end], left)
    return b"".join(parts)


def _fields(data: mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Number, wire type, place of the key, and the payload's bounds of each field in [start, end)."""
    at = start
    while at < end:
        key, first = _read_varint(data, at, end)
        wire = key & 7
        if wire == _VARINT:
            _, last = _read_varint(data, first, end)
        elif wire == _BYTES:
            length, first = _read_varint(data, first, end)
            last = first + length
        elif wire in (_FIXED64, _FIXED32):
            last = first + (8 if wire == _FIXED64 else 4)
        else:
            raise ValueError(f"wire type {wire} at byte {at:,}")
        if last > end or key >> 3 == 0:
            raise ValueError(f"a field at byte {at:,} does not fit its message")
        yield key >> 3, wire, at, first, last
        at = last


def _read_varint(data: mmap.mmap, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    raise ValueError(f"a number at byte {at:,} does not end")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _message(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(payload)) + payload


def _reference(offset: int, length: int) -> bytes:
    entries = (("location", SELF), ("offset", str(offset)), ("length", str(length)))
    rows = [_message(1, key.encode()) + _message(2, value.encode()) for key, value in entries]
    external = _varint(_DATA_LOCATION << 3 | _VARINT) + _varint(1)
    return b"".join(_message(_EXTERNAL_DATA, row) for row in rows) + external
