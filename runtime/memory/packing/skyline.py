"""Skyline best-fit: fill the lowest segment of the skyline with the best-ranked buffer that fits into its life."""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Sequence

from . import native
from .arena import step_up

NONE = 1 << 62
VISITS = 200_000_000, 400  # tree nodes looked at before giving up: in all, or a block where that is more


def skyline(
    lo: array[int], up: array[int], size: array[int], align: array[int] | int, rank: array[int],
    count: int, chunk: int = 0, stop: int = NONE,
) -> array[int] | None:  # fmt: skip
    """Offsets of blocks living in sections [lo, up) of `count`, lower `rank` first; None once `stop` is reached.

    Each step takes the lowest segment of the skyline and the best-ranked unplaced block whose life lies inside it,
    found by branch and bound on a segment tree over `lo`; where there is none the segment rises to its lower
    neighbour. No conflict graph is built. Every block must live (lo < up). None as well where the searches of the tree
    take more than VISITS steps.
    Ideas: Burke, Kendall, Whitwell, "A new placement heuristic for the orthogonal stock-cutting problem" (2004);
    Sekiyama et al., "Profile-guided memory optimization for deep neural networks" (2018).
    """
    if native.available():
        offsets = array("q", bytes(8 * len(size)))
        visits = max(VISITS[0], VISITS[1] * len(size))
        steps = array("q", [align]) if isinstance(align, int) else align
        whole = native.call("skyline", lo, up, size, steps, rank, count, chunk, stop, visits, offsets)
        return offsets if whole else None
    return _Skyline(lo, up, rank, count).run(size, align, chunk, stop)


class _Skyline:
    def __init__(self, lo: array[int], up: array[int], rank: array[int], count: int) -> None:
        n = len(lo)
        self.sorted = sorted(range(n), key=lo.__getitem__)
        self.starts = [lo[i] for i in self.sorted]
        self.lo, self.up, self.count = lo, up, count
        self.visits = 0
        self.width = 1
        while self.width < n:
            self.width *= 2
        self.ranks = [NONE] * (2 * self.width)
        self.ends = [NONE] * (2 * self.width)
        for k, i in enumerate(self.sorted):
            self.ranks[self.width + k], self.ends[self.width + k] = rank[i], up[i]
        for node in range(self.width - 1, 0, -1):
            self._pull(node)

    def _pull(self, node: int) -> None:
        left, right = 2 * node, 2 * node + 1
        self.ranks[node] = min(self.ranks[left], self.ranks[right])
        self.ends[node] = min(self.ends[left], self.ends[right])

    def best(self, left: int, right: int) -> int:
        """Tree leaf of the best-ranked unplaced block with left <= lo and up <= right, or -1."""
        first, last = bisect_left(self.starts, left), bisect_left(self.starts, right)
        best, leaf = NONE, -1
        stack = [(1, 0, self.width)]
        while stack:
            node, begin, end = stack.pop()
            self.visits += 1
            if begin >= last or end <= first or self.ends[node] > right or self.ranks[node] >= best:
                continue
            if node >= self.width:
                best, leaf = self.ranks[node], node
                continue
            middle = (begin + end) // 2
            halves = [(2 * node, begin, middle), (2 * node + 1, middle, end)]
            if self.ranks[2 * node] <= self.ranks[2 * node + 1]:
                halves.reverse()
            stack += halves
        return leaf

    def remove(self, leaf: int) -> None:
        self.ranks[leaf] = self.ends[leaf] = NONE
        node = leaf // 2
        while node:
            self._pull(node)
            node //= 2

    def run(self, size: Sequence[int], align: array[int] | int, chunk: int, stop: int) -> array[int] | None:
        offsets = array("q", bytes(8 * len(size)))
        left = len(size)
        end, height, before = {0: self.count}, {0: 0}, {0: -1, self.count: 0}  # segments by their first section
        heap = [(0, 0)]
        while left:
            h, start = heapq.heappop(heap)
            if height.get(start) != h:
                continue
            while end[start] < self.count and height[end[start]] == h:
                _absorb(start, end[start], end, height, before)
            leaf = self.best(start, end[start])
            if self.visits > max(VISITS[0], VISITS[1] * len(size)):
                return None
            if leaf < 0:
                _lift(start, end, height, before, heap, self.count)
                continue
            i = self.sorted[leaf - self.width]
            self.remove(leaf)
            left -= 1
            offsets[i] = step_up(h, size[i], align if isinstance(align, int) else align[i], chunk)
            top = offsets[i] + size[i]
            if top >= stop:
                return None
            _place(start, self.lo[i], self.up[i], h, top, end, height, before, heap)
        return offsets


def _absorb(start: int, other: int, end: dict[int, int], height: dict[int, int], before: dict[int, int]) -> None:
    """Merge the segment `other` into its left neighbour `start`."""
    end[start] = end.pop(other)
    del height[other], before[other]
    before[end[start]] = start


def _lift(
    start: int, end: dict[int, int], height: dict[int, int], before: dict[int, int], heap: list[tuple[int, int]],
    count: int,
) -> None:  # fmt: skip
    """Raise the segment to its lower neighbour and merge the two."""
    previous, following = before[start], end[start]
    left = height[previous] if previous >= 0 else NONE
    right = height[following] if following < count else NONE
    if left <= right:
        _absorb(previous, start, end, height, before)
    else:
        _absorb(start, following, end, height, before)
        height[start] = right
        heapq.heappush(heap, (right, start))


def _place(
    start: int, lo: int, up: int, h: int, top: int, end: dict[int, int], height: dict[int, int],
    before: dict[int, int], heap: list[tuple[int, int]],
) -> None:  # fmt: skip
    """Split the segment around [lo, up) and raise that part to `top`."""
    stop = end[start]
    if up < stop:
        end[up], height[up], before[stop] = stop, h, up
        heapq.heappush(heap, (h, up))
    if lo > start:
        end[start], before[lo] = lo, start
        heapq.heappush(heap, (h, start))
    else:
        before[up] = start
    end[lo], height[lo] = up, top
    before[up] = lo
    heapq.heappush(heap, (top, lo))
