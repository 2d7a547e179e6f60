"""Pictures of a memory plan: one self-contained HTML page, an SVG for documents, a sketch for the terminal.

html_page(plan_map(program, plan))
svg_map(packing_map(problem, packing.offsets, "A.1048576.csv", lower_bound=packing.lower_bound))
terminal_sketch(plan, 100, 12)
"""

from kgrun.cli.render.memory_map.data import MemoryMap, columns_map, packing_map, plan_map
from kgrun.cli.render.memory_map.page import html_page
from kgrun.cli.render.memory_map.svg import svg_map
from kgrun.cli.render.memory_map.terminal import terminal_sketch

__all__ = ["MemoryMap", "columns_map", "html_page", "packing_map", "plan_map", "svg_map", "terminal_sketch"]
