"""Constants of PTX text as constants of LLVM IR."""

from __future__ import annotations

import re
import struct

_NUMBER = re.compile(r"^-?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")


def immediate(text: str, kind: str) -> str | None:
    """A PTX constant as an LLVM constant of type `kind`, or None where `text` is no number."""
    if text[:2] in ("0f", "0F") and len(text) == 10:
        bits = int(text[2:], 16)
        number = struct.unpack("<f", struct.pack("<I", bits))[0]
        return _constant(bits, float(number), kind, 32)
    if text[:2] in ("0d", "0D") and len(text) == 18:
        bits = int(text[2:], 16)
        return _constant(bits, struct.unpack("<d", struct.pack("<Q", bits))[0], kind, 64)
    if _NUMBER.match(text):
        digits = text.rstrip("U")
        is_octal = re.fullmatch(r"-?0[0-7]+", digits)
        number = int(digits, 8) if is_octal else int(digits, 0)
        if kind in ("float", "double"):
            width = 32 if kind == "float" else 64
            return f"bitcast (i{width} {number & ((1 << width) - 1)} to {kind})"
        if kind == "i1":
            return "true" if number else "false"
        return str(number)
    if re.match(r"^-?\d+\.\d*(?:[eE][+-]?\d+)?$", text):
        bits = struct.unpack("<Q", struct.pack("<d", float(text)))[0]
        return _constant(bits, float(text), kind, 64)
    return None


def _constant(bits: int, number: float, kind: str, width: int) -> str:
    if kind == "double":
        bits = bits if width == 64 else struct.unpack("<Q", struct.pack("<d", number))[0]
        return f"bitcast (i64 {bits} to double)"
    if kind == "float":
        bits = bits if width == 32 else struct.unpack("<I", struct.pack("<f", number))[0]
        return f"bitcast (i32 {bits} to float)"
    return str(bits)
