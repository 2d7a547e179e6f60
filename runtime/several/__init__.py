"""Several graphs on one device: outputs of one as inputs of the next, parameters once, one arena for all."""

from kgrun.runtime.several.graphs import Graphs

__all__ = ["Graphs"]
