"""Orderings of blocks: columns to sort by, largest first, and the portfolio of them."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul, neg, sub

from . import native
from .sections import load, loudest, sections, zeros

# Columns in turn; the names are explained at View.column.
PORTFOLIO = (
    "T A W", "T W A", "T^16W", "M^16W", "A W", "T Z W", "T^64W", "start", "P Z", "T Z7W3", "Z7W3", "T^4W", "Z5W5",
    "Z8W2", "Z6W4", "P A", "T Z6W4", "Z9W1",
)  # fmt: skip


@dataclass
class View:
    """Live blocks as rectangles over sections, and their derived columns, each computed once."""

    lower: array[int]
    upper: array[int]
    size: array[int]
    align: array[int] | int

    def __post_init__(self) -> None:
        self.lo, self.up, self.count = sections(self.lower, self.upper)
        self.loads = load(self.lo, self.up, self.size, self.count)
        self._columns: dict[str, array[int] | array[float]] = {}

    def __len__(self) -> int:
        return len(self.size)

    def align_of(self, k: int) -> int:
        return self.align if isinstance(self.align, int) else self.align[k]

    def column(self, name: str) -> array[int] | array[float]:
        """T largest load the block lives through, A area, W width, Z size, P lives at the peak, S earliest start,
        w and a as W and A in sections, mixes such as Z7W3 for size^.7 * width^.3, and T^16W for the width times a
        power of the load: T^16 of the largest one relative to the peak, M^16 of the mean one."""
        if name not in self._columns:
            self._columns[name] = self._make(name)
        return self._columns[name]

    def _make(self, name: str) -> array[int] | array[float]:
        n = len(self)
        if name == "T":
            return loudest(self.lo, self.up, self.loads)
        if name == "Z":
            return self.size
        if name == "W":
            return array("q", list(map(sub, self.upper, self.lower)))
        if name == "w":
            return array("q", list(map(sub, self.up, self.lo)))
        if name in "Aa":
            width = self.column("W" if name == "A" else "w")
            return array("d", list(map(mul, map(float, self.size), map(float, width))))
        if name == "P":
            peak = max(range(self.count), key=self.loads.__getitem__)
            return array("q", [int(low <= peak < high) for low, high in zip(self.lo, self.up, strict=True)])
        if name == "S":
            return array("q", list(map(neg, self.lower)))
        if name == "U":
            return self.upper
        if len(name) == 4 and name[0] == "Z" and name[2] == "W":
            a, b = int(name[1]) / 10, int(name[3]) / 10
            width = self.column("W")
            return array("d", [s**a * w**b for s, w in zip(self.size, width, strict=True)])
        if name[1:2] == "^":
            return self._weighted(name[0], int(name[2:-1]))
        raise KeyError(f"no column {name!r} for {n} blocks")

    def _weighted(self, load: str, power: int) -> array[float]:
        peak = float(max(self.loads))
        if load == "T":
            share = [t / peak for t in self.column("T")]
        else:
            total = [0, *accumulate(self.loads)]
            ends = zip(self.lo, self.up, strict=True)
            share = [(total[high] - total[low]) / ((high - low) * peak) for low, high in ends]
        return array("d", [s**power * w for s, w in zip(share, self.column("W"), strict=True)])

    def rank(self, order: str) -> array[int]:
        """Position of every block in an order of PORTFOLIO."""
        names = ["S", "Z"] if order == "start" else order.split()
        return ranked([self.column(name) for name in names], len(self))


def ranked(columns: Sequence[array[int] | array[float]], n: int) -> array[int]:
    """Position of every block, largest first by the columns in turn; ties keep their order."""
    out = zeros(n)
    if native.available():
        native.call("rank", tuple(columns), out)
        return out
    order = sorted(range(n), key=lambda k: [-c[k] for c in columns])
    for position, k in enumerate(order):
        out[k] = position
    return out


def by_rank(rank: Sequence[int]) -> array[int]:
    """The blocks in the order of their ranks."""
    out = zeros(len(rank))
    for k, position in enumerate(rank):
        out[position] = k
    return out
