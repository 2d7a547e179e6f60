"""What is to run: graph files, their checks, their operators. Importing this imports none of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgrun.graphs.late import late_names

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

__getattr__ = late_names(
    __name__,
    {
        "bound": "BoundGraph",
        "errors": "GraphError KgrunError UsageError",
        "load.graph": "load_graph parse_graph",
        "schema.graph": "KernelGraph json_schema",
        "version": "__version__",
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
