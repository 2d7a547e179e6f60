"""The exact search made anytime: restarts under many orderings, the lower bound first, then a ladder of caps."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from time import thread_time

from .exact import FOUND, IMPOSSIBLE, STOPPED, Rectangles, search
from .orders import View, ranked

# Which column orders the options, how much noise it gets, which rule picks the section: found to complement each
# other; heavy tails make many short runs better than a long one.
RUNS = (
    ("w", 0.1, 4), ("Z", 0.1, 3), ("W", 0.1, 5), ("A", 0.1, 4), ("a", 0.1, 0), ("W", 0.4, 7), ("a", 0.1, 0),
    ("w", 0.4, 1), ("Z", 0.4, 3), ("A", 0.1, 4), ("w", 0.4, 1), ("W", 0.1, 6), ("a", 0.4, 2), ("S", 0.4, 6),
    ("U", 0.3, 2),
)  # fmt: skip
SHORT = 1000  # nodes of the first runs
ATTEMPTS = 2 * len(RUNS)  # runs' worth of nodes for the bound before moving on
CLIMBING = len(RUNS)  # and for a cap above it


@dataclass
class Outcome:
    """Best offsets found below the start height, if any; the proven bound; nodes spent."""

    offsets: array[int] | None
    height: int
    bound: int
    nodes: int


def climb(view: View, pinned: array[int], chunk: int, bound: int, height: int, goal: int, budget: int,
          seed: int, deadline: float, proofs: bool = True) -> Outcome:  # fmt: skip
    """Look for plans lower than `height`, not below `bound`, stopping at `goal`; at most `budget` nodes.

    `bound` is tried first with a part of the budget, then caps between it and the best height, halving the distance;
    where that ends without proof it starts over with longer runs. `proofs`: whether what no arrangement of these
    rectangles meets is impossible for what they stand for too, so that `Outcome.bound` may rise.
    """
    order = sorted(range(len(view)), key=view.lo.__getitem__)
    blocks = _rectangles(view, order, pinned, chunk)
    step = gcd(*blocks.size, *_steps(view), chunk) if max(pinned, default=-1) < 0 else 1
    out = Outcome(None, height, bound, 0)
    runs = _runs(view, order, seed)
    length = SHORT
    least = bound  # what these rectangles take at least
    while out.height > max(least, goal) and out.nodes < budget and thread_time() < deadline:
        low = least
        cap = max(low, goal)
        while low < out.height and out.nodes < budget:
            status, height, offsets = _try(
                blocks,
                runs,
                cap,
                length,
                min(budget, out.nodes + (CLIMBING if out.nodes else ATTEMPTS) * length),
                out,
                deadline,
            )
            if status == FOUND:
                assert offsets is not None
                out.height = height
                out.offsets = _restored(offsets, order)
                if height <= max(least, goal):
                    return out
            elif status == IMPOSSIBLE:
                least = low = min(out.height, cap // step * step + step)
                out.bound = least if proofs else out.bound
            else:
                low = cap + 1
            if thread_time() >= deadline:
                return out
            cap = max(low, (low + out.height - 1) // 2)
            if out.height - low < max(step, out.height // 500):
                break
        length += length // 2
    return out


def _steps(view: View) -> tuple[int, ...]:
    aligns = {view.align} if isinstance(view.align, int) else set(view.align)
    return tuple(aligns - {1})


def _try(blocks: Rectangles, runs: Iterator[tuple[array[int], int]], cap: int, length: int, budget: int, out: Outcome,
         deadline: float) -> tuple[int, int, array[int] | None]:  # fmt: skip
    """Short runs at one cap until one ends by itself or the budget does."""
    while out.nodes < budget and thread_time() < deadline:
        rank, rule = next(runs)
        status, nodes, offsets = search(blocks, rank, cap, rule, min(length, budget - out.nodes), deadline)
        out.nodes += max(nodes, 1)
        if status == FOUND:
            return FOUND, max(map(int.__add__, offsets, blocks.size)), offsets
        if status == IMPOSSIBLE:
            return IMPOSSIBLE, 0, None
    return STOPPED, 0, None


def _runs(view: View, order: list[int], seed: int) -> Iterator[tuple[array[int], int]]:
    """Endless (rank, rule) pairs, the same for the same seed."""
    noise = random.Random(seed)
    spread = float(max(view.upper) - min(view.lower))
    while True:
        for name, amount, rule in RUNS:
            column = view.column(name)
            if name in "SU":
                key = [float(column[k]) + amount * spread * noise.random() for k in order]
            else:
                key = [float(column[k]) * (1.0 + amount * noise.random()) for k in order]
            yield ranked([array("d", key)], len(order)), rule


def _rectangles(view: View, order: list[int], pinned: array[int], chunk: int) -> Rectangles:
    def arranged(column: array[int]) -> array[int]:
        return array("q", [column[k] for k in order])

    align = view.align if isinstance(view.align, int) else arranged(view.align)
    columns = (arranged(view.lo), arranged(view.up), arranged(view.size))
    return Rectangles(*columns, align, arranged(pinned), view.count, chunk)


def _restored(offsets: array[int], order: list[int]) -> array[int]:
    out = array("q", bytes(8 * len(order)))
    for at, k in zip(offsets, order, strict=True):
        out[k] = at
    return out
