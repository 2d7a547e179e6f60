"""From other formats to graph files: `import_source` writes a graph and what it needs beside it."""

from __future__ import annotations

from pathlib import Path

from kgrun.graphs.errors import GraphError


def import_source(source: Path, output: Path) -> list[Path]:
    """Import `source` and write `output` (.json) with its kernel sources and weights beside it; returns what was written.

    Raises:
        GraphError: KG380 when the source is none that kgrun can import, or is damaged.
        UsageError: KG270 when a file cannot be written.
    """
    from kgrun.graphs.importers.launch_list import is_launch_list

    if source.is_dir() and is_launch_list(source):
        from kgrun.graphs.importers.launch_folder import import_launch_folder

        return import_launch_folder(source, output)
    raise GraphError(
        f"{source} is nothing that kgrun can import",
        code="KG380",
        help="a folder with graph.json (a launch list), kernels.cu and constants.npz",
    )
