"""Load a graph file: bytes to text to a value to a checked KernelGraph."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from kgrun.graphs.data_paths import inside, parse_reference
from kgrun.graphs.errors import GraphError, PathPart
from kgrun.graphs.load.document import Document
from kgrun.graphs.load.json_text import read_json
from kgrun.graphs.load.kinds import text_kind
from kgrun.graphs.load.limits import MAX_FAULTS
from kgrun.graphs.load.source import Format, decode, format_of, not_a_graph, read_source
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.graphs.schema.tensors import TensorSpec


def load_graph(source: str | Path, *, allow_external_data: bool = False, stdin: BinaryIO | None = None) -> KernelGraph:
    """Load a graph file; "-" is standard input.

    Data files are not opened, but their paths are checked.

    Args:
        source: a .json, .yaml or .yml file.
        allow_external_data: let `data` paths leave the graph's folder.
        stdin: stands in for standard input.

    Raises:
        GraphError: KG300 to KG309 for the file, KG310 to KG319 for its structure, KG320 for an expression, KG370 and
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
        document = _parse(decode(text, name), name, format)
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
        _check_data_paths(graph, document)
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


def _read_yaml(text: str, name: str) -> Document:
    from kgrun.graphs.load.yaml_text import read_yaml

    return read_yaml(text, name)


def _parse(text: str, name: str, format: Format | None) -> Document:
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


def _check_data_paths(graph: KernelGraph, document: Document) -> None:
    faults: list[GraphError] = []
    checked: set[str] = set()
    for path, spec in _data_tensors(graph):
        if len(faults) == MAX_FAULTS:
            break
        try:
            file = parse_reference(str(spec.data)).file
            if file not in checked:
                inside(file, folder=graph.folder)
                checked.add(file)
        except GraphError as error:
            faults.append(error.at(document.place(path)))
    if faults:
        from kgrun.graphs.load.schema_errors import collected

        raise collected(faults)


def _data_tensors(graph: KernelGraph) -> Iterator[tuple[tuple[PathPart, ...], TensorSpec]]:
    bodies: list[tuple[tuple[PathPart, ...], dict[str, TensorSpec]]] = [((), graph.tensors)]
    bodies += [(("graphs", name), body.tensors) for name, body in graph.graphs.items()]
    for start, tensors in bodies:
        for name, spec in tensors.items():
            if spec.data is not None:
                yield (*start, "tensors", name, "data"), spec


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
