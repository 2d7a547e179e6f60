"""Plain YAML scalars by the core schema of YAML 1.2 (section 10.3.2 of the specification)."""

from __future__ import annotations

import re

from kgrun.graphs.load.limits import MAX_NUMBER_LENGTH

Scalar = str | int | float | bool | None

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER_START = frozenset("+-.0123456789")
_DECIMAL = re.compile(r"[-+]?[0-9]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_OCTAL = re.compile(r"0o[0-7]+", re.ASCII)
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


class NotFinite(ValueError):
    """The scalar is a number that JSON could not hold."""


def plain_scalar(text: str) -> Scalar:
    """The value of the unquoted scalar `text`; NotFinite for .nan, .inf, floats beyond 64 bits, endless numbers.

    Unlike YAML 1.1: `no`, `yes`, `on`, `off`, `1_000`, `12:30:45` and `2001-01-01` are strings, `017` is seventeen,
    `1e-5` is a float.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    number = _number(text)
    return text if number is None else number


def _number(text: str) -> int | float | None:
    if _NOT_FINITE.fullmatch(text):
        raise NotFinite(text)
    for pattern, base in ((_DECIMAL, 10), (_OCTAL, 8), (_HEXADECIMAL, 16)):
        if pattern.fullmatch(text):
            if len(text) > MAX_NUMBER_LENGTH:
                raise NotFinite(text)
            return int(text, base)
    if not _FLOAT.fullmatch(text):
        return None
    value = float(text)
    if value - value != 0 or len(text) > MAX_NUMBER_LENGTH:
        raise NotFinite(text)
    return value
