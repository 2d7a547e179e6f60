"""What records of a graph file know beside their fields: where the graph was read from, and what a source is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kgrun.graphs.errors import LatePlace, PathPart, Place

ORIGIN = ("_file", "_folder", "_allow_external", "_locate", "_body")
_OF_A_BODY = frozenset({"inputs", "tensors", "nodes", "outputs"})  # the fields of `GraphBody`


class Origin:
    """Of a whole graph, which keeps it in the attributes ORIGIN; `_body`: of which body of `graphs` it is the graph."""

    @property
    def folder(self: Any) -> Path:
        """Where paths in the graph start: the file's folder, else the current one."""
        return self._folder or Path()

    @property
    def file(self: Any) -> str | None:
        """The file's name as the user gave it."""
        name: str | None = self._file
        return name

    @property
    def allows_external_data(self: Any) -> bool:
        """Whether data paths may leave the graph's folder."""
        return bool(self._allow_external)

    @property
    def body(self: Any) -> str | None:
        """The name in `graphs` of the body that this is the graph of; None for a whole graph."""
        name: str | None = self._body
        return name

    def place(self: Any, *path: PathPart) -> Place:
        """The place of `path` in the file, with line and column where they can be found."""
        if self._body is not None and path and path[0] in _OF_A_BODY:
            path = ("graphs", self._body, *path)
        return LatePlace(self._file, path, self._locate) if self._locate else Place(self._file, path)


class Sourced:
    """Of a kernel."""

    @property
    def inline(self: Any) -> bool:
        """Whether `source` is the code itself."""
        return any(mark in self.source for mark in "\n{;")
