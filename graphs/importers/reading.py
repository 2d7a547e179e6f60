"""What an import reads of its source: one file, whole."""

from __future__ import annotations

from pathlib import Path

from kgrun.graphs.errors import GraphError


def source_bytes(path: Path) -> bytes:
    """The bytes of a file of the source. GraphError KG380 where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise GraphError(f"cannot be read: {error.strerror}", code="KG380", where=str(path)) from None
