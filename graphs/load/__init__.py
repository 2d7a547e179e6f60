"""Files and text to a checked KernelGraph: strict JSON and YAML, every fault with its place."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kgrun.graphs.load.graph import load_graph, parse_graph

__all__ = ["load_graph", "parse_graph"]


def __getattr__(name: str) -> Any:
    # Late: what tells one kind of file from another needs no schema.
    if name in __all__:
        return getattr(import_module("kgrun.graphs.load.graph"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
