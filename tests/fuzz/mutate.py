"""Broken variants of a graph file: of its bytes, of its lines, and of its structure."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from kgrun.graphs.load.json_text import read_json
from kgrun.graphs.load.yaml_text import read_yaml

# What parsers and validators have stumbled over.
TOKENS = (
    b"NaN", b"-Infinity", b"1e400", b"9" * 400, b"0x1F", b"017", b"-0", b"1_000", b"12:30:45", b"2001-01-01",
    b"null", b"~", b"true", b"no", b"<<: ", b"&a ", b"*a", b"!!python/object:os.system ", b"---\n", b"...\n",
    b"{", b"}", b"[", b"]", b"[" * 2000, b'{"a":' * 500, b"- " * 300, b": ", b", ", b"# ", b"'", b'"', b"\\", b"|\n",
    b">\n", b"? ", b"\t", b"\n", b"\r", b"\0", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\\ud800", b"\\u0000",
    b"%YAML 1.2\n", b"@", b"`", b"kgrun: 1\n", b'"kgrun": 1,', b"//", b"(" * 150, b"n+" * 120, b"**", b"n.__class__",
)  # fmt: skip

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 2**64, 10**300, 0.5, -0.0, 1e308, 5e-324, "", "x", "n",
    "n + 1", "n +", "1 // 0", "n ** 2", "nan", "inf", "0", "__import__('os')", "\u0000", "é😀", "a" * 3000, "(" * 200,
    "../../etc/passwd", "/dev/zero", "w.npy", "w.npz#k", [], {}, [[]], [None], [[1, [2]]], {"a": 1}, {"int32": 7},
    {"nbytes": -1}, {"uniform": [1, 0]}, {"fill": "nan"}, [0] * 300, {"kernel": "k", "op": "Relu"},
)  # fmt: skip


def mutations(seed_text: str, count: int, seed: int) -> Iterator[bytes]:
    """`count` broken variants of `seed_text`, the same for the same `seed`; about half keep the syntax intact.

    Those that change the structure are JSON, which YAML readers take too.
    """
    chance = random.Random(f"{seed}:{seed_text}")
    value = (read_json if seed_text.startswith("{") else read_yaml)(seed_text, "seed").value
    text = seed_text.encode("utf-8")
    for index in range(count):
        if index % 2:
            yield _structure(value, chance)
        else:
            yield _bytes(text, chance)


def _bytes(text: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice((1, 1, 2, 4))):
        text = chance.choice(_BYTE_EDITS)(text, chance)
    return text


def _span(text: bytes, chance: random.Random) -> tuple[int, int]:
    start = chance.randrange(len(text) + 1)
    return start, min(len(text), start + chance.choice((1, 2, 8, 40)))


def _flip(text: bytes, chance: random.Random) -> bytes:
    start, end = _span(text, chance)
    return text[:start] + bytes(b ^ 1 << chance.randrange(8) for b in text[start:end]) + text[end:]


def _delete(text: bytes, chance: random.Random) -> bytes:
    start, end = _span(text, chance)
    return text[:start] + text[end:]


def _repeat(text: bytes, chance: random.Random) -> bytes:
    start, end = _span(text, chance)
    return text[:end] + text[start:end] * chance.choice((1, 2, 50)) + text[end:]


def _insert(text: bytes, chance: random.Random) -> bytes:
    start, end = _span(text, chance)
    return text[:start] + chance.choice(TOKENS) + text[chance.choice((start, end)) :]


def _truncate(text: bytes, chance: random.Random) -> bytes:
    return text[: chance.randrange(len(text) + 1)]


def _lines(text: bytes, chance: random.Random) -> bytes:
    lines = text.splitlines(keepends=True) or [b""]
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    edit = chance.randrange(4)
    if edit == 0:
        lines.insert(at, lines[other])
    elif edit == 1:
        del lines[at]
    elif edit == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at] = b" " * chance.randrange(5) + lines[at].lstrip(b" ")
    return b"".join(lines)


_BYTE_EDITS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip,
    _delete,
    _repeat,
    _insert,
    _insert,
    _truncate,
    _lines,
    _lines,
)


def _structure(value: Any, chance: random.Random) -> bytes:
    root = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 2, 5))):
        places = list(_places(root))
        if places:
            _edit(*chance.choice(places), root, chance)
    return json.dumps(root, indent=chance.choice((None, 1))).encode("ascii")


def _places(root: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with every key or index in it."""
    stack = [root]
    while stack:
        container = stack.pop()
        for key in container if isinstance(container, dict) else range(len(container)):
            yield container, key
            if isinstance(container[key], (dict, list)):
                stack.append(container[key])


def _edit(container: Any, key: Any, root: Any, chance: random.Random) -> None:
    edit = chance.randrange(7)
    if edit == 0:
        del container[key]
    elif edit == 1 and isinstance(container, dict):
        name = chance.choice([key[:-1], key + "s", key[::-1], key.upper(), "", "a" * 500, "\u0000", "1"])
        container[name] = container.pop(key)
    elif edit == 2 and isinstance(container, list):
        container.insert(key, copy.deepcopy(container[key]))
    elif edit == 3:
        wrapped = container[key]
        for _ in range(chance.choice((1, 2, 120))):
            wrapped = [wrapped] if chance.random() < 0.8 else {"a": wrapped}
        container[key] = wrapped
    elif edit == 4:
        source, part = chance.choice(list(_places(root)))
        container[key] = copy.deepcopy(source[part])
    else:
        container[key] = copy.deepcopy(chance.choice(VALUES))
