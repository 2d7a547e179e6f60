"""A graph document as JSON that a person can read and compare: a line a tensor, a line a node."""

from __future__ import annotations

import json
import os
from typing import Any

# Members whose own members stand on a line each.
_LISTED = frozenset({"tensors", "nodes", "kernels", "dims", "graphs"})


def document_text(document: dict[str, Any]) -> str:
    """`document` as JSON text, keys in their order. The same document gives the same text."""
    return _mapping(document, "") + "\n"


def name_text(file: str) -> str:
    """The name of a file or folder as text that a graph file can hold: bytes that are no UTF-8 become \\xXX."""
    return os.fsencode(file).decode("utf-8", "backslashreplace")


def _mapping(document: dict[str, Any], indent: str) -> str:
    inner = f"{indent} "
    rows = [f"{inner}{json.dumps(key)}: {_member(key, value, inner)}" for key, value in document.items()]
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


def _member(key: str, value: Any, indent: str) -> str:
    if key not in _LISTED or not value:
        return _line(value)
    inner = f"{indent} "
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + _line(each) for each in value) + f"\n{indent}]"
    if key == "graphs":
        rows = [f"{inner}{json.dumps(name)}: {_mapping(body, inner)}" for name, body in value.items()]
    else:
        rows = [f"{inner}{json.dumps(name)}: {_line(each)}" for name, each in value.items()]
    return "{\n" + ",\n".join(rows) + f"\n{indent}}}"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False)
