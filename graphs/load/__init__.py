"""Files and text to a checked KernelGraph: strict JSON and YAML, every fault with its place."""

from kgrun.graphs.load.graph import load_graph, parse_graph

__all__ = ["load_graph", "parse_graph"]
