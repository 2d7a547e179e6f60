"""Memory over time on a coarse grid: which share of each cell is in use. For pictures that cannot draw every buffer."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from kgrun.cli.render.memory_map.data import Item


def coverage(items: Iterable[Item], start: int, end: int, height: int, columns: int, rows: int) -> list[list[float]]:
    """Share in use, 0 to 1, of the cells of a grid over [start, end) × [0, height); row 0 lies at offset 0.

    A buffer costs a few additions for each row it reaches, however long it lives: its share of a row is a trapezoid
    over time, laid down as second differences and summed up once.
    """
    wide, high = (end - start) / columns, height / rows
    change = [[0.0] * (columns + 2) for _ in range(rows)]
    if wide <= 0 or high <= 0:
        return [[0.0] * columns for _ in range(rows)]
    for item in items:
        low, top = item.offset / high, (item.offset + item.held) / high
        for first, last in item.spans:
            left, right = (first - start) / wide, (last - start) / wide
            if right <= left or top <= low:
                continue
            for row in range(max(int(low), 0), min(int(-(-top // 1)), rows)):
                share = min(top, row + 1) - max(low, row)
                _edge(change[row], left, share, columns)
                _edge(change[row], right, -share, columns)
    # Overlaps do not happen in a verified plan; aliases lie inside one another and must not count twice.
    return [[min(max(value, 0.0), 1.0) for value in list(accumulate(row))[:columns]] for row in change]


def _edge(row: list[float], at: float, share: float, columns: int) -> None:
    """From `at` on, every cell gains `share`; the cell that `at` lies in gains what is right of it."""
    if at >= columns:
        return
    at = max(at, 0.0)
    cell = int(at)
    part = share * (cell + 1 - at)
    row[cell] += part
    row[cell + 1] += share - part


def axis_ticks(low: float, high: float, count: int, *, binary: bool = False) -> list[int]:
    """About `count` round whole numbers in [low, high]; powers of two times 1 for bytes, 1-2-5 steps otherwise."""
    span = max(high - low, 1)
    step = 1
    while span / step > count:
        if binary:
            step *= 2
        else:
            step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    first = int(-(-low // step)) * step
    return list(range(first, int(high) + 1, step))
