"""Bytes of a graph file to its values and their places, not yet held against the schema."""

from __future__ import annotations

from kgrun.graphs.errors import GraphError
from kgrun.graphs.load.document import Document
from kgrun.graphs.load.json_text import read_json
from kgrun.graphs.load.kinds import text_kind
from kgrun.graphs.load.source import Format, decode, format_of, not_a_graph


def _read_yaml(text: str, name: str) -> Document:
    from kgrun.graphs.load.yaml_text import read_yaml

    return read_yaml(text, name)


def parse_document(data: bytes, name: str, format: Format | None) -> Document:
    """The values of a file and where they stand, not checked against the schema. Raises as `load_graph`."""
    text = decode(data, name)
    reader = read_json if (format or format_of(text)) == "json" else _read_yaml
    # A graph may hold CUDA C or PTX itself, and a mistake beside it.
    other = None if "kgrun" in text else text_kind(text)
    try:
        document = reader(text, name)
    except GraphError as error:
        if error.code == "KG305" and other:
            raise not_a_graph(name, other) from None
        raise
    if not isinstance(document.value, dict) and other:
        raise not_a_graph(name, other)
    return document
