"""A failed run as a folder that runs again: graph, sources, data, versions, command. Importing it imports no numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kgrun.runtime.repro.bundle import LIMIT_BYTES, Bundle, Case, write_bundle

__all__ = ["LIMIT_BYTES", "Bundle", "Case", "write_bundle"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kgrun.runtime.repro import bundle

    return getattr(bundle, name)
