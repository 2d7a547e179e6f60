"""Blocks larger than a chunk: each gets chunks of its own, shared over time only with others that start there."""

from __future__ import annotations

from array import array
from dataclasses import replace

from .arena import Arena
from .conflicts import graph
from .problem import ProblemError


def pin_large(arena: Arena) -> Arena:
    """The arena with its blocks larger than a chunk pinned, the largest first, each at the first start it can share."""
    chunk = arena.chunk
    if not chunk:
        return arena
    large = [b for b in range(len(arena)) if arena.size[b] > chunk]
    for b, origin in arena.fixed.items():
        inside = origin // chunk == (origin + arena.size[b] - 1) // chunk
        if (b in large and origin % chunk) or not (inside or b in large or not arena.size[b]):
            raise ProblemError(f"a buffer fixed at {origin} crosses a multiple of max_chunk {chunk}")
    if not large:
        return arena
    pieces = arena.all_pieces()
    near = graph(pieces)
    assert near is not None
    meets: list[set[int]] = [set() for _ in range(len(arena))]
    for k in range(len(pieces)):
        meets[pieces.block[k]].update(pieces.block[j] for j in near.near[near.first[k] : near.first[k + 1]])
    fixed = dict(arena.fixed)
    for b in sorted((b for b in large if b not in fixed), key=lambda b: (-arena.size[b], b)):
        start = 0
        while not _free(arena, fixed, meets[b], b, start):
            start += chunk
        fixed[b] = start
    return replace(arena, fixed=fixed, pieces=pieces)


def _free(arena: Arena, fixed: dict[int, int], meets: set[int], b: int, start: int) -> bool:
    chunk = arena.chunk
    reach = start + arena.size[b] + -arena.size[b] % chunk
    for other, origin in fixed.items():
        end = origin + arena.size[other]
        if other in meets and origin < start + arena.size[b] and start < end:
            return False
        whole = end + -end % chunk
        if arena.size[other] > chunk and origin != start and origin < reach and start < whole:
            return False
    return True


def chunk_sizes(offsets: array[int], sizes: array[int], chunk: int) -> list[tuple[int, int]]:
    """(start, bytes) of the pieces of memory that a plan under max_chunk needs, in order of start."""
    large = sorted((o, o + s) for o, s in zip(offsets, sizes, strict=True) if s > chunk)
    ends: dict[int, int] = {}
    for offset, size in zip(offsets, sizes, strict=True):
        start = offset // chunk * chunk
        for low, high in large:
            if low <= offset < high + -high % chunk:
                start = low
                break
        ends[start] = max(ends.get(start, 0), offset + size)
    return [(start, end - start) for start, end in sorted(ends.items())]
