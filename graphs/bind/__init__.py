"""From what the user wrote to a graph with nothing left open: `bind`."""

from kgrun.graphs.bind.graph import bind

__all__ = ["bind"]
