"""Graph files that were checked before are not checked again: what was found is kept on disk, by the file's bytes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kgrun.graphs import schema
from kgrun.graphs.errors import PathPart, Place, Spot
from kgrun.graphs.load.data_files import check_data_files
from kgrun.graphs.load.source import STDIN, Source, read_source
from kgrun.graphs.plain import unpacked
from kgrun.graphs.version import __version__
from kgrun.runtime.compile.cache import default_cache, digest_key

if TYPE_CHECKING:
    from kgrun.graphs.load.document import Document
    from kgrun.graphs.schema.graph import KernelGraph

_FORMAT = 1
_MOST_BYTES = 1 << 20  # of a file: to check a larger one takes longer than to import what checks it


def load_remembered(source: str, *, allow_external_data: bool = False) -> KernelGraph:
    """As `load_graph`; a file of the same bytes that was checked by the same kgrun is only read.

    Where its data may lie is looked at each time. Standard input, large files and graphs with bodies are checked anew.
    """
    found = read_source(source)
    cache = default_cache()
    if found.name == STDIN or len(found.data) > _MOST_BYTES:
        return _checked(found, allow_external_data)
    key = digest_key(["graph", *_checked_by(), str(found.format), found.data])
    kept = cache.get(key)
    if kept is not None:
        places = _Places(found)
        try:
            graph = unpacked(
                kept, file=found.name, folder=found.folder, allow_external=allow_external_data, locate=places.spot
            )
        except ValueError:
            kept = None  # of another kgrun, or damaged: checked and kept afresh
    if kept is None:
        graph = _checked(found, allow_external_data)
        if not graph.graphs:
            from kgrun.graphs.plain import packed

            cache.put(key, packed(graph))
    elif not allow_external_data:
        check_data_files(graph, places.place)
    return graph


def _checked(found: Source, allow_external_data: bool) -> KernelGraph:
    from kgrun.graphs.load import parse_graph

    return parse_graph(
        found.data, name=found.name, format=found.format, folder=found.folder, allow_external_data=allow_external_data
    )


def _checked_by() -> list[str]:
    """What a kept graph depends on beside its file: this kgrun and this Python."""
    stats = sorted((path.name, path.stat()) for path in Path(schema.__file__).parent.glob("*.py"))
    sources = (f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)
    return [str(_FORMAT), __version__, sys.version, *sources]


class _Places:
    """Where things stand in a file, which is read for them when somebody asks: mostly nobody does."""

    def __init__(self, found: Source) -> None:
        self._found = found
        self._document: Document | None = None

    def spot(self, path: tuple[PathPart, ...]) -> Spot | None:
        """Line and column of the value at `path`."""
        return self._read().spot(path)

    def place(self, path: tuple[PathPart, ...]) -> Place:
        """The place of the value at `path`."""
        return self._read().place(path)

    def _read(self) -> Document:
        if self._document is None:
            from kgrun.graphs.load.parse import parse_document

            self._document = parse_document(self._found.data, self._found.name, self._found.format)
        return self._document
