"""Load a graph file: bytes to text to a value to a checked KernelGraph."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from kgrun.graphs.errors import GraphError
from kgrun.graphs.load.data_files import check_data_files
from kgrun.graphs.load.document import Document
from kgrun.graphs.load.parse import parse_document
from kgrun.graphs.load.source import Format, read_source
from kgrun.graphs.schema.graph import KernelGraph


def load_graph(source: str | Path, *, allow_external_data: bool = False, stdin: BinaryIO | None = None) -> KernelGraph:
    """Load a graph file; "-" is standard input.

    Data files are not opened, but their paths are checked.

    Args:
        source: a .json, .yaml or .yml file.
        allow_external_data: let `data` paths leave the graph's folder.
        stdin: stands in for standard input.

    Raises:
        GraphError: KG300 to KG309 for the file, KG310 to KG317 for its structure, KG320 for an expression, KG370 and
            KG371 for data paths. `others` has the further faults.
    """
    found = read_source(source, stdin)
    return parse_graph(
        found.data,
        name=found.name,
        format=found.format,
        folder=found.folder,
        allow_external_data=allow_external_data,
    )


def parse_graph(
    text: bytes,
    *,
    name: str,
    format: Format | None = None,
    folder: Path | None = None,
    allow_external_data: bool = False,
) -> KernelGraph:
    """The graph that `text` holds; `name` stands in messages, paths start at `folder`. Raises as `load_graph`."""
    with _collector_paused():
        document = parse_document(text, name, format)
        if not isinstance(document.value, dict):
            raise GraphError(
                "a graph file is a mapping", code="KG317", where=document.place(()), help="start it with `kgrun: 1`"
            )
        graph = _checked(document)
    graph._file = name
    graph._folder = folder
    graph._allow_external = allow_external_data
    graph._locate = document.spot
    if not allow_external_data:
        check_data_files(graph, document.place)
    return graph


def made_graph(value: Mapping[str, Any], *, name: str | None = None) -> KernelGraph:
    """The graph that a program wrote as a mapping; `name` stands in messages. Raises as `load_graph`."""
    return _checked(Document(name, value, lambda path, key: None))


def _checked(document: Document) -> KernelGraph:
    try:
        return KernelGraph.model_validate(document.value)
    except ValidationError as error:
        from kgrun.graphs.load.schema_errors import schema_error

        raise schema_error(error, document) from None


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No garbage collection meanwhile: a hundred thousand new containers, none of them garbage, cost half the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
