"""`printf` of a kernel: its format and packed arguments become text here."""

from __future__ import annotations

import ctypes
import re
import struct
import threading

_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcsp%])")
_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)


class Collector:
    """Gathers what a launch prints; `address` is the function that kernels call."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._lock = threading.Lock()
        self._callback = _PROTOTYPE(self._print)
        self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def _print(self, format_address: int, arguments: int, block: int, thread: int) -> None:
        template = ctypes.string_at(format_address).decode("utf-8", "replace")
        with self._lock:
            self._parts.append(format_text(template, arguments))

    def text(self) -> str:
        return "".join(self._parts)


class _Arguments:
    """Reads the packed arguments in order, each at its natural alignment."""

    def __init__(self, address: int) -> None:
        self.address = address
        self.offset = 0

    def take(self, code: str) -> int | float:
        size = struct.calcsize(code)
        self.offset = (self.offset + size - 1) // size * size
        (value,) = struct.unpack(code, ctypes.string_at(self.address + self.offset, size))
        self.offset += size
        return value  # type: ignore[no-any-return]


def format_text(template: str, arguments: int) -> str:
    """C's `printf` of `template` with arguments packed at the address `arguments`."""
    values = _Arguments(arguments)
    return _CONVERSION.sub(lambda match: _convert(match, values), template)


def _convert(match: re.Match[str], values: _Arguments) -> str:
    flags, width, precision, length, kind = match.groups()
    if kind == "%":
        return "%"
    width = str(values.take("<i")) if width == "*" else width or ""
    precision = str(values.take("<i")) if precision == "*" else precision
    spec = "%" + (flags or "") + width + (f".{precision}" if precision is not None else "")
    long = length in ("l", "ll", "j", "z", "t")
    if kind in "di":
        return (spec + "d") % values.take("<q" if long else "<i")
    if kind in "uoxX":
        return (spec + ("d" if kind == "u" else kind)) % values.take("<Q" if long else "<I")
    if kind == "c":
        return (spec + "s") % chr(int(values.take("<i")) & 255)
    if kind == "s":
        address = int(values.take("<Q"))
        return (spec + "s") % (ctypes.string_at(address).decode("utf-8", "replace") if address else "(null)")
    if kind == "p":
        return (spec + "s") % hex(int(values.take("<Q")))
    if kind in "aA":
        return (spec + "s") % float(values.take("<d")).hex()
    return (spec + kind) % values.take("<d")
