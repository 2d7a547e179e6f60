"""JSON text to a value: strict, at the C parser's speed; places are found only when something is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from kgrun.graphs.errors import GraphError, Place, Spot
from kgrun.graphs.load.document import (
    Document,
    Path,
    at_offset,
    duplicate_key,
    half_character,
    limit_exceeded,
    not_finite,
)
from kgrun.graphs.load.limits import MAX_DEPTH, MAX_NUMBER_LENGTH, MAX_VALUES

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:Infinity|NaN|[0-9.eE+-]+)")
_BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]', re.DOTALL)
_ESCAPES = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)


class _Refused(ValueError):
    """Valid for Python's parser, not for us; the place is searched for afterwards."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _Refused
    return members


def _finite(literal: str) -> float:
    value = float(literal)
    if value - value != 0 or len(literal) > MAX_NUMBER_LENGTH:
        raise _Refused
    return value


def _constant(literal: str) -> float:
    raise _Refused


_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_constant)
_PLAIN = json.JSONDecoder()


def read_json(text: str, name: str) -> Document:
    """Parse `text`, the content of the file `name`.

    Raises:
        GraphError: KG305 for a syntax error, KG306 for a duplicate key, KG307 beyond a cap of `limits`, KG308 for
            NaN, infinities, floats beyond 64 bits and endless integers.
    """
    if sum(map(text.count, "[{,")) > MAX_VALUES:
        raise limit_exceeded(name, "the file holds too many values", f"{MAX_VALUES:,} values")
    try:
        value = _STRICT.decode(text)
    except RecursionError:
        raise _too_deep(text, name) from None
    except json.JSONDecodeError as error:
        raise _syntax_error(text, name, error) from None
    except ValueError:
        raise _find_refused(text, name) from None
    if _depth(value) > MAX_DEPTH:
        raise _too_deep(text, name)
    if "\\ud" in text or "\\uD" in text:
        _check_surrogates(text, name)
    return Document(name, value, JsonPlaces(text))


class JsonPlaces:
    """Finds line and column of paths in JSON text that parses; looks at a container's members once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tables: dict[int, dict[str | int, Spot]] = {}

    def __call__(self, path: Path, key: bool) -> Spot | None:
        """The place of the value at `path`, or of its key."""
        offset = key_offset = _skip(self._text, 0)
        for part in path:
            spot = self._members(offset).get(part)
            if spot is None:
                break
            key_offset, offset = spot
        return at_offset(self._text, key_offset if key else offset)

    def _members(self, offset: int) -> dict[str | int, Spot]:
        if offset not in self._tables:
            rows = {}
            for part, key_offset, value_offset in _walk(self._text, offset):
                rows[part] = (key_offset, value_offset)
            self._tables[offset] = rows
        return self._tables[offset]


def _skip(text: str, offset: int) -> int:
    found = _SPACE.match(text, offset)
    return found.end() if found else offset


def _walk(text: str, offset: int, decoder: json.JSONDecoder = _PLAIN) -> Iterator[tuple[str | int, int, int]]:
    """Key (or index), its offset and the value's offset of each member of the container at `offset`.

    A member is yielded before `decoder` reads over it, so that the last one seen is the one that failed.
    """
    mapping = text[offset] == "{"
    if text[offset] not in "{[":
        return
    offset = _skip(text, offset + 1)
    part: str | int = -1
    while text[offset] not in "}]":
        start = offset
        if mapping:
            part, offset = _PLAIN.raw_decode(text, offset)
            offset = _skip(text, _skip(text, offset) + 1)
        else:
            part = int(part) + 1
        yield part, start, offset
        offset = _skip(text, decoder.raw_decode(text, offset)[1])
        if text[offset] == ",":
            offset = _skip(text, offset + 1)


def _find_refused(text: str, name: str) -> GraphError:
    """The error that made one of the hooks refuse: goes down into the member that the strict parser refuses."""
    path: Path = ()
    offset = _skip(text, 0)
    while True:
        part: str | int | None = None
        inner = offset
        seen: dict[str | int, int] = {}
        try:
            for part, key_offset, inner in _walk(text, offset, _STRICT):  # noqa: B007 - read after the failure
                if part in seen:
                    spots = at_offset(text, seen[part]), at_offset(text, key_offset)
                    return duplicate_key(name, path, str(part), *spots)
                seen[part] = key_offset
        except ValueError:
            pass
        if part is None:
            literal = _NUMBER.match(text, offset)
            return not_finite(name, path, literal.group() if literal else "", at_offset(text, offset))
        path, offset = (*path, part), inner


def _syntax_error(text: str, name: str, error: json.JSONDecodeError) -> GraphError:
    found = text[error.pos : error.pos + 1]
    message = error.msg[:1].lower() + error.msg[1:]
    help = None
    if found in ("/", "#"):
        help = "JSON has no comments; a .yaml file may hold some"
    elif found == "'":
        help = 'JSON strings stand in double quotes: "…"'
    elif message == "extra data":
        help = "the document ends before this"
    elif found in ("}", "]") or "trailing comma" in message:
        help = "JSON has no comma after the last member"
    elif not found:
        message += " (the file ends here)"
    line, column = at_offset(text, error.pos)
    return GraphError(f"not valid JSON: {message}", code="KG305", where=Place(name, (), line, column), help=help)


def _depth(root: object) -> int:
    """Levels of containers, counted up to one more than is allowed."""
    level = [root] if isinstance(root, (dict, list)) else []
    depth = 0
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [
            child
            for container in level
            for child in (container.values() if type(container) is dict else container)
            if type(child) is list or type(child) is dict
        ]
    return depth


def _too_deep(text: str, name: str) -> GraphError:
    depth = 0
    spot = None
    for found in _BRACKETS.finditer(text):
        mark = found.group()
        depth += (mark in ("[", "{")) - (mark in ("]", "}"))
        if depth > MAX_DEPTH:
            spot = at_offset(text, found.start())
            break
    return limit_exceeded(name, "lists and mappings nest too deeply", f"{MAX_DEPTH} levels", spot)


def _check_surrogates(text: str, name: str) -> None:
    """Refuse an escaped half of a UTF-16 pair: no text can hold it, and no file name or terminal takes it."""
    bad = pending = None
    for found in _ESCAPES.finditer(text):
        code = int(found[1], 16) if found[1] else 0
        low = 0xDC00 <= code < 0xE000
        if low != (pending is not None and pending.end() == found.start()):
            bad = pending or found
            break
        pending = found if 0xD800 <= code < 0xDC00 else None
    bad = bad or pending
    if bad is not None:
        raise half_character(name, at_offset(text, bad.start()))
