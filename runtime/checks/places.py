"""Places in kernel sources as places in the user's files: a line of inline code is a line of the graph file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kgrun.graphs.errors import KgrunError, Place

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph


def inline_label(graph: KernelGraph, kernel: str) -> str:
    """What compilers call the inline source of `kernel`."""
    return f"{graph.file or 'graph'}: kernels.{kernel}.source"


def source_place(graph: KernelGraph, file: str, line: int | None) -> Place:
    """Line `line` of the source that a compiler calls `file`.

    Inline code has a line in the graph file where its text stands there line by line, as in a YAML block; elsewhere the
    place keeps the line within the source.
    """
    for name, spec in graph.kernels.items():
        label = inline_label(graph, name)
        if spec.inline and (file == label or file.endswith(f"/{label}")):
            spot = None if line is None else _line_in_graph(graph, name, spec.source, line)
            path = ("kernels", name, "source")
            return Place(label, (), line) if spot is None else Place(graph.file, path, spot)
    here = f"{Path.cwd()}/"
    return Place(file.removeprefix(here), (), line)


def in_users_files(graph: KernelGraph, error: KgrunError) -> KgrunError:
    """The error with its place, and those of the errors it carries, in the user's files; for `raise`."""
    for each in (error, *error.others):
        if each.where is not None and each.where.file is not None and not each.where.path:
            line = each.where.line
            each.where = source_place(graph, each.where.file, line)
            if line is not None and each.where.path:
                each.details.setdefault("source_line", line)
    return error


def _line_in_graph(graph: KernelGraph, kernel: str, source: str, line: int) -> int | None:
    """The graph file's line that holds line `line` of the inline source; None where none does."""
    start = graph.place("kernels", kernel, "source").line
    rows = source.splitlines()
    if start is None or graph.file is None or not 1 <= line <= len(rows):
        return None
    try:
        text = Path(graph.file).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    at = start + line  # the text of a block begins on the line after its mark
    return at if at <= len(text) and text[at - 1].strip() == rows[line - 1].strip() else None
