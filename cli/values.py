"""Words of the command line as values: sizes, dimensions, devices, numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal

from kgrun.graphs.errors import UsageError

_SIZE = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([A-Za-z]*)")
_DIGITS = re.compile(r"-?[0-9]{1,19}")
_DEVICE = re.compile(r"auto|cpu|(?:cuda:|cuda|)([0-9]{1,4})|cuda")
_UNITS = {"": 1, "b": 1} | {
    f"{prefix}{ending}": base**power
    for power, prefix in enumerate("kmgtp", start=1)
    for ending, base in (("b", 1000), ("ib", 1024))
}


def parse_size(text: str, option: str) -> int:
    """Bytes: `4GiB`, `4GB`, `1.5 MiB`, `4294967296`."""
    match = _SIZE.fullmatch(text.strip())
    factor = _UNITS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise UsageError(
            f"{option}: {text!r} is no size",
            code="KG251",
            help="write bytes, or a unit as in 4GiB (1024³) or 4GB (1000³)",
        )
    nbytes = Decimal(match[1]) * factor
    if nbytes != int(nbytes) or nbytes >= 1 << 62:
        raise UsageError(f"{option}: {text!r} is no whole number of bytes below 4 EiB", code="KG251")
    return int(nbytes)


def optional_size(text: str | None, option: str) -> int | None:
    """`parse_size` of an option that may be left out."""
    return None if text is None else parse_size(text, option)


def parse_dims(words: Iterable[str]) -> dict[str, int]:
    """`N=64` words as dimensions; whether the graph knows them is checked when it is bound."""
    dims: dict[str, int] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError(f"--dim: {word!r} is not NAME=INTEGER", code="KG252", help="for example --dim N=64")
        if not _DIGITS.fullmatch(value) or abs(int(value)) >= 1 << 63:
            raise UsageError(
                f"--dim {name}: {value!r} is no integer", code="KG252", help=f"for example --dim {name}=64"
            )
        if int(value) < 0:
            raise UsageError(f"--dim {name}: {value} is negative", code="KG252", help="a dimension is 0 or more")
        if dims.setdefault(name, int(value)) != int(value):
            raise UsageError(f"--dim {name} is given twice: {dims[name]} and {value}", code="KG252")
    return dims


def parse_device(text: str) -> str:
    """`auto`, `cpu`, `cuda`, `cuda:N`; a bare number N is `cuda:N`."""
    match = _DEVICE.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--device: {text!r} is no device", code="KG254", help="auto, cpu, cuda, or cuda:N for the N-th GPU"
        )
    return f"cuda:{int(match[1])}" if match[1] else text


def check_number(value: float | None, option: str, *, positive: bool = False) -> float | None:
    """`value` unless it is NaN, infinite, negative, or 0 where it must be positive."""
    if value is not None and (not math.isfinite(value) or value < 0 or (positive and value == 0)):
        kind = "a positive number" if positive else "a number that is 0 or more"
        raise UsageError(f"{option}: {value} is not {kind}", code="KG255")
    return value


def refuse(options: Mapping[str, object], alone: str, help: str = "leave it out, or run one after the other") -> None:
    """UsageError KG240 for an option that was given and is for `alone`, for example "one graph"."""
    for option, value in options.items():
        if value:
            raise UsageError(f"{option} is for {alone}", code="KG240", help=help)
