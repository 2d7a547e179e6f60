"""First fit and best fit over the conflict graph: blocks in a given order, each into a gap its neighbours leave."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from . import native
from .arena import Arena, Pieces, step_up
from .conflicts import Graph, pieces_of_blocks

LOWEST, TIGHTEST, BELOW_TOP = 0, 1, 2  # which gap: the lowest, the smallest that fits, the lowest inside the arena
NONE = 1 << 62


def fill(
    arena: Arena, pieces: Pieces, near: Graph, order: Sequence[int], fit: int, stop: int = NONE
) -> array[int] | None:
    """Origins of all blocks, placed in `order` (the pinned ones first); None once one ends at `stop` or above.

    LOWEST takes the first gap, TIGHTEST the smallest one (the first of equals, the open end last), BELOW_TOP the
    first one that does not grow the arena and else its top. Gaps are those that the placed neighbours of the block
    leave; pieces move with their block.
    """
    first, flat = pieces_of_blocks(pieces, len(arena))
    pinned = array("q", [-1]) * len(arena)
    for b, origin in arena.fixed.items():
        pinned[b] = origin
    offsets = pinned[:]
    if native.available():
        steps = array("q", [arena.align]) if isinstance(arena.align, int) else arena.align
        whole = native.call(
            "fill", array("q", order), arena.size, steps, pinned, first, flat, pieces.block, pieces.rel,
            pieces.size, near.first, near.near, offsets, fit, arena.chunk, stop,
        )  # fmt: skip
        return offsets if whole else None
    top = max((offsets[b] + arena.size[b] for b in arena.fixed), default=0)
    for b in order:
        if offsets[b] >= 0:
            continue
        taken = taken_by(flat[first[b] : first[b + 1]], pieces, near, offsets)
        offsets[b] = choose(taken, arena.size[b], arena.align_of(b), arena.chunk, fit, top)
        top = max(top, offsets[b] + arena.size[b])
        if offsets[b] + arena.size[b] >= stop:
            return None
    return offsets


def taken_by(own: Sequence[int], pieces: Pieces, near: Graph, offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Open intervals of origins that neighbours forbid, as (last free origin below, first free origin above)."""
    taken = []
    for k in own:
        below, above = pieces.rel[k] + pieces.size[k], pieces.rel[k]
        for j in near.near[near.first[k] : near.first[k + 1]]:
            origin = offsets[pieces.block[j]]
            if origin >= 0:
                start = origin + pieces.rel[j]
                taken.append((start - below, start + pieces.size[j] - above))
    taken.sort()
    return taken


def choose(taken: list[tuple[int, int]], size: int, align: int, chunk: int, fit: int, top: int) -> int:
    """The origin in the gap that `fit` asks for; origins in gap [at, low] are free."""
    at, best, slack = 0, -1, NONE
    for low, high in taken:
        if low >= at:
            origin = step_up(at, size, align, chunk)
            if origin <= low:
                if fit != TIGHTEST:
                    return origin
                if low - at < slack:
                    best, slack = origin, low - at
        at = max(at, high)
    if best >= 0:
        return best
    origin = step_up(at, size, align, chunk)
    if fit == BELOW_TOP and origin + size > top:
        return step_up(max(at, top), size, align, chunk)
    return origin
