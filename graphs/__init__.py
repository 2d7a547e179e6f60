"""What is to run: graph files, their checks, their operators. Importing this imports nothing else."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kgrun.graphs.bound import BoundGraph
    from kgrun.graphs.errors import GraphError, KgrunError, UsageError
    from kgrun.graphs.load import load_graph, parse_graph
    from kgrun.graphs.schema.graph import KernelGraph, json_schema
    from kgrun.graphs.version import __version__

__all__ = [
    "BoundGraph",
    "GraphError",
    "KernelGraph",
    "KgrunError",
    "UsageError",
    "__version__",
    "json_schema",
    "load_graph",
    "parse_graph",
]

_HOMES = {
    "BoundGraph": "bound",
    "GraphError": "errors",
    "KernelGraph": "schema.graph",
    "KgrunError": "errors",
    "UsageError": "errors",
    "__version__": "version",
    "json_schema": "schema.graph",
    "load_graph": "load.graph",
    "parse_graph": "load.graph",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
