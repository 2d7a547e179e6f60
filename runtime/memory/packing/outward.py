"""Packing outward from the peak: what lives there is stacked without a gap, the rest goes into holes, away from it."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from math import lcm
from operator import neg

from . import native
from .gaps import TIGHTEST
from .orders import View, by_rank, ranked

END = 1 << 61  # the open end of memory
STACKS = ("W", "-S", "-U", "U", "Z", "S", "A", "P", "Z5W5")  # orders of the stack; "-" is smallest first


class Outward:
    """One arena seen from its peak; `run` packs it for one order of the stack and one choice of holes.

    Every block live in the peak section is stacked from 0, so the peak itself has no waste. Then time runs forward
    from the peak, ended blocks leaving holes and starting ones taking the tightest (or lowest) hole that fits, and
    backward from it in the same way. Loads fall away from the peak, so holes are plentiful where it matters; many
    random lives end within half a per cent of the bound. Allocation is best fit in the sense of Knuth, TAOCP 1, 2.5.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        n = len(view)
        self.peak = max(range(view.count), key=view.loads.__getitem__)
        starts = array("q", list(map(neg, view.lo)))
        self.by_lo = by_rank(ranked([starts, view.size], n))
        self.by_up = by_rank(ranked([view.up, view.size], n))
        aligns = {view.align} if isinstance(view.align, int) else set(view.align)
        step = lcm(*aligns)
        self.usable = step <= 64 * max(aligns)  # else rounding sizes to the common multiple wastes too much
        self.size = view.size if step == 1 else array("q", [s + -s % step for s in view.size])

    def run(self, stack: str, fit: int, stop: int) -> array[int] | None:
        """Offsets, or None once a block ends at `stop` or above."""
        view = self.view
        if not self.usable:
            return None
        column = view.column(stack.lstrip("-"))
        if stack[0] == "-":
            column = array(column.typecode, list(map(neg, column)))
        order = by_rank(ranked([column], len(view)))
        offsets = array("q", bytes(8 * len(view)))
        if native.available():
            whole = native.call(
                "outward", view.lo, view.up, self.size, order, self.by_lo, self.by_up, self.peak, fit, stop, offsets
            )
            return offsets if whole else None
        top = 0
        crossing = [j for j in order if view.lo[j] <= self.peak < view.up[j]]
        for j in crossing:
            offsets[j] = top
            top += self.size[j]
        if top >= stop:
            return None
        later = (j for j in self.by_lo if view.lo[j] > self.peak)
        ending = (j for j in reversed(self.by_up) if view.up[j] > self.peak)
        if not _side(later, ending, view.lo, view.up, self.size, crossing, offsets, fit, stop):
            return None
        earlier = (j for j in self.by_up if view.up[j] <= self.peak)
        begun = (j for j in reversed(self.by_lo) if view.lo[j] <= self.peak)
        flipped = array("q", list(map(neg, view.up))), array("q", list(map(neg, view.lo)))
        whole = _side(earlier, begun, *flipped, self.size, crossing, offsets, fit, stop)
        return offsets if whole else None


def _side(
    starting: Iterable[int], ending: Iterable[int], start: Sequence[int], end: Sequence[int], size: Sequence[int],
    crossing: Sequence[int], offsets: array[int], fit: int, stop: int,
) -> bool:  # fmt: skip
    """Place the blocks `starting` one after the other, those `ending` by then having left."""
    top = max((offsets[j] + size[j] for j in crossing), default=0)
    holes = _Holes(top, fit)
    leaving = iter(ending)
    gone = next(leaving, None)
    for j in starting:
        while gone is not None and end[gone] <= start[j]:
            holes.free(offsets[gone], offsets[gone] + size[gone])
            gone = next(leaving, None)
        offsets[j] = holes.take(size[j])
        if offsets[j] + size[j] >= stop:
            return False
    return True


class _Holes:
    """Free ranges of memory, neighbours merged."""

    def __init__(self, top: int, fit: int) -> None:
        self.fit = fit
        self.end_of: dict[int, int] = {}
        self.start_of: dict[int, int] = {}
        self.keys: list[tuple[int, int]] = []  # (size, start), or (start, size) for the lowest hole
        self.add(top, END)

    def key(self, start: int, end: int) -> tuple[int, int]:
        return (end - start, start) if self.fit == TIGHTEST else (start, end - start)

    def add(self, start: int, end: int) -> None:
        self.end_of[start], self.start_of[end] = end, start
        insort(self.keys, self.key(start, end))

    def remove(self, start: int) -> int:
        end = self.end_of.pop(start)
        del self.start_of[end]
        del self.keys[bisect_left(self.keys, self.key(start, end))]
        return end

    def free(self, start: int, end: int) -> None:
        if start in self.start_of:
            start = self.start_of[start]
            self.remove(start)
        if end in self.end_of:
            end = self.remove(end)
        self.add(start, end)

    def take(self, size: int) -> int:
        if self.fit == TIGHTEST:
            start = self.keys[bisect_left(self.keys, (size, -1))][1]
        else:
            start = next(at for at, room in self.keys if room >= size)
        end = self.remove(start)
        if start + size < end:
            self.add(start + size, end)
        return start
