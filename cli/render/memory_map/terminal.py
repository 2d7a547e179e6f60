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
_LEAST = (24, 3)  # columns and rows below which nothing can be told


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
    columns = max(min(width - margin - 3, max(picture.end - picture.start, 1) * 4), _LEAST[0] - margin, 8)
    grid = coverage(picture.dynamic, picture.start, picture.end, picture.height, columns, rows)
    shades, side, floor, corner = (ASCII, "|", "-", "+") if ascii_only else (BLOCKS, "│", "─", "└")
    lines = []
    for row in reversed(range(rows)):
        label = {rows - 1: labels[0], rows // 2: labels[1] if rows > 4 else "", 0: labels[2]}.get(row, "")
        cells = "".join(shades[_level(value, len(shades))] for value in grid[row])
        lines.append(f"{pad(label, margin, right=True)} {side}{cells}".rstrip())
    lines.append(f"{' ' * margin} {corner}{floor * columns}")
    lines += _time_axis(picture, margin, columns, ascii_only)
    return lines


def _level(share: float, levels: int) -> int:
    """Empty only where nothing is, full only where everything is."""
    if share <= 1e-9:
        return 0
    if share >= 1 - 1e-9:
        return levels - 1
    return 1 + min(int(share * (levels - 2)), levels - 3)


def _time_axis(picture: MemoryMap, margin: int, columns: int, ascii_only: bool) -> list[str]:
    first, last = str(picture.start), str(picture.end - 1 if picture.unit == "step" else picture.end)
    axis = f"{first}{last.rjust(columns - len(first))}" if len(first) + len(last) < columns else first
    lines = [f"{' ' * margin}  {axis}"]
    if picture.peak is None:
        return lines
    middle = picture.peak + 0.5 - picture.start
    at = min(int(middle * columns / (picture.end - picture.start)), columns - 1)
    name = f", {printable(picture.steps[picture.peak])}" if picture.peak < len(picture.steps) else ""
    text = f"peak: {picture.unit} {picture.peak}{name}, {bytes_text(picture.peak_live)} live"
    mark = "^" if ascii_only else "▲"
    room = margin + 2 + columns
    line = f"{' ' * (margin + 2 + at)}{mark} {text}"
    if len(line) > room and len(text) + 1 <= margin + 1 + at:
        line = f"{(text + ' ' + mark).rjust(margin + 3 + at)}"
    elif len(line) > room:
        return [*lines, f"{' ' * (margin + 2 + at)}{mark}", f"{' ' * (margin + 2)}{text[:columns]}"]
    return [*lines, line]
