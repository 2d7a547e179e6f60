"""A block-character picture of the arena for the text report: time runs right, offsets run up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgrun.cli.render.memory_map.coverage import coverage
from kgrun.cli.render.memory_map.data import MemoryMap, plan_map
from kgrun.cli.render.text import bytes_text, pad, printable

if TYPE_CHECKING:
    from kgrun.runtime.memory.plan_types import MemoryPlan

BLOCKS = " ░▒▓█"
ASCII = " .:+#"
_LEAST = 8, 3  # columns and rows below which nothing can be told


def terminal_sketch(
    plan: MemoryPlan | MemoryMap, width: int = 80, height: int = 12, *, ascii_only: bool = False
) -> list[str]:
    """Lines of at most `width` columns, `height` rows of picture with their axes; empty for a plan without an arena.

    A cell's darkness is the share of its bytes and steps that is in use. `ascii_only` is for terminals without
    Unicode.
    """
    picture = plan if isinstance(plan, MemoryMap) else plan_map(None, plan)
    if not picture.height or not picture.dynamic:
        return []
    rows = max(height, _LEAST[1])
    labels = [bytes_text(picture.height), bytes_text(picture.height // 2), "0"]
    margin = max(map(len, labels))
    columns = max(min(width - margin - 2, (picture.end - picture.start) * 4), _LEAST[0])
    grid = coverage(picture.dynamic, picture.start, picture.end, picture.height, columns, rows)
    shades, side, floor, corner = (ASCII, "|", "-", "+") if ascii_only else (BLOCKS, "│", "─", "└")
    lines = []
    for row in reversed(range(rows)):
        label = {rows - 1: labels[0], rows // 2: labels[1] if rows > 4 else "", 0: labels[2]}.get(row, "")
        cells = "".join(shades[_level(value, len(shades))] for value in grid[row])
        lines.append(f"{pad(label, margin, right=True)} {side}{cells}".rstrip())
    lines.append(f"{' ' * margin} {corner}{floor * columns}")
    lines += _time_axis(picture, margin, columns, width, ascii_only)
    return lines


def _level(share: float, levels: int) -> int:
    """Empty only where nothing is, full only where everything is."""
    if share <= 1e-9:
        return 0
    if share >= 1 - 1e-9:
        return levels - 1
    return 1 + min(int(share * (levels - 2)), levels - 3)


def _time_axis(picture: MemoryMap, margin: int, columns: int, width: int, ascii_only: bool) -> list[str]:
    first, last = str(picture.start), str(picture.end - 1 if picture.unit == "step" else picture.end)
    axis = f"{first}{last.rjust(columns - len(first))}" if len(first) + len(last) < columns else first
    lines = [f"{' ' * margin}  {axis}"]
    if picture.peak is None:
        return lines
    middle = picture.peak + 0.5 - picture.start
    at = margin + 2 + min(int(middle * columns / (picture.end - picture.start)), columns - 1)
    name = f", {printable(picture.steps[picture.peak])}" if picture.peak < len(picture.steps) else ""
    mark = "^" if ascii_only else "▲"
    for step in (name, ""):
        text = f"peak: {picture.unit} {picture.peak}{step}, {bytes_text(picture.peak_live)} live"
        if at + 2 + len(text) <= width:
            return [*lines, f"{' ' * at}{mark} {text}"]
        if len(text) + 1 <= at:
            return [*lines, f"{text} {mark}".rjust(at + 1)]
    return [*lines, f"{' ' * at}{mark}", text]
