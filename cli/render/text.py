"""Text that is safe and readable in a terminal: escaped control characters, display widths, units of bytes and time."""

from __future__ import annotations

import unicodedata

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_TIMES = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
_DECIMAL = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def printable(text: str, *, keep_lines: bool = False) -> str:
    """`text` with control and format characters escaped, so that a name cannot steer the terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or (keep_lines and char in "\n\t") else char.encode("unicode_escape").decode()
        for char in text
    )


def width(text: str) -> int:
    """Columns that `text` takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def pad(text: str, columns: int, *, right: bool = False) -> str:
    """`text` filled up with spaces to `columns` columns; `right` puts the spaces before it."""
    space = " " * (columns - width(text))
    return space + text if right else text + space


def bytes_text(nbytes: int) -> str:
    """Bytes in a binary unit: `1.50 MiB`; below 1 KiB, and for whole units, without decimals."""
    value, unit = float(nbytes), 0
    while abs(value) >= 1024 and unit < len(_BINARY) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_BINARY[unit]}" if unit == 0 or value == int(value) else f"{value:.2f} {_BINARY[unit]}"


def time_text(ns: int | None) -> str:
    """Nanoseconds in a readable unit: `12.3 µs`; `-` where unknown."""
    if ns is None:
        return "-"
    for factor, unit in _TIMES:
        if ns >= factor:
            return f"{significant(ns / factor)} {unit}"
    return f"{ns} ns"


def significant(value: float) -> str:
    """Four significant digits or the whole part, never an exponent."""
    decimals = 3 if value < 10 else 2 if value < 100 else 1 if value < 1000 else 0
    return f"{value:.{decimals}f}"


def figure_text(value: float | None) -> str:
    """Three significant digits: `0.00123`, `1.2e+08`; `-` where unknown."""
    return "-" if value is None else f"{value:.3g}"


def rate_text(per_second: float | None, unit: str) -> str:
    """A rate with a decimal prefix: `4.24 TB/s`; `-` where unknown."""
    if per_second is None:
        return "-"
    for factor, prefix in _DECIMAL:
        if per_second >= factor:
            return f"{significant(per_second / factor)} {prefix}{unit}"
    return f"{significant(per_second)} {unit}"


def percent(part: float, whole: float) -> str:
    """`part` of `whole` in percent, one decimal; `-` of nothing."""
    return f"{100 * part / whole:.1f}" if whole else "-"


def count_text(number: int, noun: str, plural: str | None = None) -> str:
    """`1 kernel`, `1,000 kernels`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def shape_text(dtype: str, shape: tuple[int, ...]) -> str:
    """`float32[8, 128]`; a scalar is `float32[]`."""
    return f"{dtype}[{', '.join(map(str, shape))}]"
