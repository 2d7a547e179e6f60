"""A failed run as a folder that runs again: graph, sources, data, versions, command. Importing it imports no numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgrun.graphs.late import late_names

if TYPE_CHECKING:
    from kgrun.runtime.repro.bundle import LIMIT_BYTES, Bundle, Case, write_bundle

__all__ = ["LIMIT_BYTES", "Bundle", "Case", "write_bundle"]

__getattr__ = late_names(__name__, {"bundle": "LIMIT_BYTES Bundle Case write_bundle"})
