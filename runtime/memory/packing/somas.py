"""The SOMAS strategies: shared objects or one, two sort keys, two fits; the smallest result wins."""

from __future__ import annotations

from array import array

from .arena import Arena, Pieces, step_up
from .conflicts import Graph, pieces_of_blocks
from .gaps import LOWEST, NONE, TIGHTEST, choose, fill, taken_by

ADVANTAGE = 100 << 20  # a single object must beat many by more than this


def somas(arena: Arena, pieces: Pieces, near: Graph) -> tuple[array[int], str]:
    """Origins and the winning combination; lifelong blocks are appended above the rest in order of position.

    Strategies of MindSpore's SOMAS solver: blocks sorted by size (then position, or then width), put at the lowest
    or into the tightest gap, either of one unbounded object or of many, each as large as the block that opened it.
    """
    rest = [b for b in range(len(arena)) if b not in arena.lifelong]
    width = [u - low for low, u in zip(arena.lower, arena.upper, strict=True)]
    sorts = {
        "size, position": sorted(rest, key=lambda b: (-arena.size[b], b)),
        "size, width": sorted(rest, key=lambda b: (-arena.size[b], -width[b], b)),
    }
    best: dict[bool, tuple[int, array[int], str]] = {}
    for single in (False, True):
        for sort, order in sorts.items():
            for fit, fit_name in ((TIGHTEST, "best fit"), (LOWEST, "smallest offset")):
                place = _single if single else _many
                origins = place(arena, pieces, near, order, fit)
                top = _append_lifelong(arena, origins, rest)
                name = f"{'single object' if single else 'many objects'}, {sort}, {fit_name}"
                if single not in best or top < best[single][0]:
                    best[single] = (top, origins, name)
    winner = best[True] if best[True][0] + ADVANTAGE < best[False][0] else best[False]
    return winner[1], winner[2]


def _append_lifelong(arena: Arena, origins: array[int], rest: list[int]) -> int:
    top = max((origins[b] + arena.size[b] for b in (*rest, *arena.fixed)), default=0)
    for b in sorted(arena.lifelong):
        if b not in arena.fixed:
            origins[b] = step_up(top, arena.size[b], arena.align_of(b), arena.chunk)
            top = origins[b] + arena.size[b]
    return top


def _single(arena: Arena, pieces: Pieces, near: Graph, order: list[int], fit: int) -> array[int]:
    origins = fill(arena, pieces, near, order, fit)
    assert origins is not None
    return origins


def _many(arena: Arena, pieces: Pieces, near: Graph, order: list[int], fit: int) -> array[int]:
    """Each block into the first object with room; else it opens a new object on top, of its own size."""
    first, flat = pieces_of_blocks(pieces, len(arena))
    origins = array("q", [-1]) * len(arena)
    for b, origin in arena.fixed.items():
        origins[b] = origin
    objects: list[tuple[int, int]] = []
    top = max((origin + arena.size[b] for b, origin in arena.fixed.items()), default=0)
    for b in order:
        if origins[b] >= 0:
            continue
        taken = taken_by(flat[first[b] : first[b + 1]], pieces, near, origins)
        for low, high in objects:
            inside = [(max(start, low - 1), end) for start, end in taken if end > low and start < high]
            at = choose([(-NONE, low), *inside], arena.size[b], arena.align_of(b), arena.chunk, fit, high)
            if at + arena.size[b] <= high:
                origins[b] = at
                break
        else:
            origins[b] = step_up(top, arena.size[b], arena.align_of(b), arena.chunk)
            objects.append((origins[b], origins[b] + arena.size[b]))
            top = origins[b] + arena.size[b]
    return origins
