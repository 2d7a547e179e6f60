"""The conflict graph between pieces, for what is no plain interval and for the gap-by-gap heuristics."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from . import native
from .arena import Pieces


@dataclass(frozen=True)
class Graph:
    """Neighbours of piece k are `near[first[k]:first[k + 1]]`, ascending; pieces of one block are never neighbours."""

    first: array[int]
    near: array[int]


def graph(pieces: Pieces, most: int | None = None) -> Graph | None:
    """The conflict graph, or None where it has more than `most` edges."""
    meeting = (k for k in range(len(pieces)) if pieces.size[k])
    spans = [(low, high, k) for k in meeting for low, high in pieces.spans[k] if low < high]
    if pieces.by_pairs_only:
        spans = []
    if native.available():
        lower, upper = array("q", [s[0] for s in spans]), array("q", [s[1] for s in spans])
        owner = array("q", [s[2] for s in spans])
        left, right = array("q", [a for a, _ in pieces.pairs]), array("q", [b for _, b in pieces.pairs])
        limit = -1 if most is None else most
        built = native.call("graph", lower, upper, owner, pieces.block, left, right, limit)
        return None if built is None else Graph(*(array("q", part) for part in built))
    near: list[set[int]] = [set() for _ in range(len(pieces))]
    edges = 0
    events = sorted([(low, 1, k) for low, _, k in spans] + [(high, 0, k) for _, high, k in spans])
    live: set[int] = set()
    for _, opens, k in events:
        if not opens:
            live.discard(k)
            continue
        near[k] |= live
        for other in live:
            near[other].add(k)
        edges += len(live)
        if most is not None and edges > most:
            return None
        live.add(k)
    for a, b in pieces.pairs:
        near[a].add(b)
        near[b].add(a)
    first, flat = array("q", [0]), array("q")
    for k, others in enumerate(near):
        flat.extend(sorted(j for j in others if pieces.block[j] != pieces.block[k]))
        first.append(len(flat))
    return Graph(first, flat)


def pieces_of_blocks(pieces: Pieces, blocks: int) -> tuple[array[int], array[int]]:
    """Pieces of block b are `flat[first[b]:first[b + 1]]`."""
    count = [0] * (blocks + 1)
    for b in pieces.block:
        count[b + 1] += 1
    for b in range(blocks):
        count[b + 1] += count[b]
    flat = array("q", bytes(8 * len(pieces)))
    at = count[:]
    for k, b in enumerate(pieces.block):
        flat[at[b]] = k
        at[b] += 1
    return array("q", count), flat
