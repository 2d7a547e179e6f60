"""Files and text to a checked KernelGraph: strict JSON and YAML, every fault with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgrun.graphs.late import late_names

if TYPE_CHECKING:
    from kgrun.graphs.load.graph import load_graph, parse_graph

__all__ = ["load_graph", "parse_graph"]

# Late: what tells one kind of file from another needs no schema.
__getattr__ = late_names(__name__, {"graph": "load_graph parse_graph"})
