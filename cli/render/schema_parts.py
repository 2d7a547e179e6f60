"""The words that schemas of reports are written in: plain types, rows, records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}


def described(schema: Schema, text: str) -> Schema:
    """`schema` with what it means."""
    return schema | {"description": text}


def maybe(schema: Schema) -> Schema:
    """`schema`, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def rows(schema: Schema) -> Schema:
    """A list of `schema`."""
    return {"type": "array", "items": schema}


def record(members: Mapping[str, Schema], optional: tuple[str, ...] = (), *, open: bool = False) -> Schema:
    """An object with these members, all required but the optional ones; `open` allows others."""
    return {
        "type": "object",
        "properties": members,
        "required": [name for name in members if name not in optional],
        "additionalProperties": open,
    }


def mapping(schema: Schema) -> Schema:
    """An object from names to `schema`."""
    return {"type": "object", "additionalProperties": schema}


def ref(name: str) -> Schema:
    """A definition by name."""
    return {"$ref": f"#/$defs/{name}"}


DIMS = rows(COUNT)
