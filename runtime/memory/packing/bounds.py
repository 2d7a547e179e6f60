"""What no plan can beat: the largest sum of live bytes, raised where pins and explicit conflicts allow it cheaply."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from .arena import Arena
from .normalise import arenas
from .problem import Problem
from .sections import load, sections


@dataclass(frozen=True)
class Peak:
    """Where live bytes are largest in one space: `time` in [start, end), the bytes, and the buffers, largest first."""

    space: int
    start: int
    end: int
    nbytes: int
    buffers: tuple[int, ...]

    @property
    def time(self) -> int:
        return self.start


def lower_bound(problem: Problem) -> int:
    """Bytes every plan needs at least, summed over the spaces."""
    return sum(arena_bound(arena) for arena in arenas(problem))


def arena_bound(arena: Arena) -> int:
    """Bytes every plan of the arena needs at least."""
    high = max(arena.size, default=0)
    high = max([high, *(origin + arena.size[b] for b, origin in arena.fixed.items())])
    pieces = arena.pieces
    if pieces is not None and pieces.by_pairs_only:
        return max(high, _clique(arena))
    if pieces is None:
        spans = [k for k in range(len(arena)) if arena.lower[k] < arena.upper[k]]
        if len(spans) == len(arena):
            lower, upper, size = arena.lower, arena.upper, arena.size
        else:
            lower, upper, size = (array("q", [c[k] for k in spans]) for c in (arena.lower, arena.upper, arena.size))
    else:
        flat = [(low, up, s) for s, spans_of in zip(pieces.size, pieces.spans, strict=True) for low, up in spans_of]
        lower, upper, size = (array("q", [row[c] for row in flat]) for c in range(3))
    if not len(lower):
        return high
    lo, up, count = sections(lower, upper)
    return max(high, max(load(lo, up, size, count)))


def _clique(arena: Arena) -> int:
    """Weight of a greedy clique of the conflict relation, largest pieces first, grown from each of the largest few."""
    pieces = arena.all_pieces()
    near: list[set[int]] = [set() for _ in range(len(pieces))]
    for a, b in pieces.pairs:
        near[a].add(b)
        near[b].add(a)
    best = 0
    order = sorted(range(len(pieces)), key=lambda k: (-pieces.size[k], k))
    for seed in order[:64]:
        best = max(best, _grown(sorted(near[seed], key=lambda k: (-pieces.size[k], k)), near, pieces.size, seed))
    # Where lives say more than nothing, whoever lives at their peak mostly conflicts.
    changes = sorted(
        (t, d, k) for k, spans in enumerate(pieces.spans) for s in spans for t, d in zip(s, (1, -1), strict=True)
    )
    live: set[int] = set()
    most, peak = 0, []
    total = 0
    for _, step, k in changes:
        total += step * pieces.size[k]
        (live.add if step > 0 else live.discard)(k)
        if total > most:
            most, peak = total, sorted(live)
    if peak:
        peak.sort(key=lambda k: (-pieces.size[k], k))
        best = max(best, _grown(peak[1:], near, pieces.size, peak[0]))
    return best


def _grown(order: list[int], near: list[set[int]], size: array[int], seed: int) -> int:
    total, allowed = size[seed], near[seed]
    for k in order:
        if k in allowed:
            total += size[k]
            allowed = allowed & near[k]
    return total


def peak_section(problem: Problem) -> Peak:
    """The earliest time at which the live bytes are largest, in the space where they are, and who is live then."""
    occupied = problem.occupied_column()
    changes: dict[int, dict[int, int]] = {}
    lives = buffer_lives(problem)
    for i, spans in enumerate(lives):
        space = problem.spaces[i] if problem.spaces else 0
        nbytes = 0 if i in problem.aliases else occupied[i]
        at = changes.setdefault(space, {})
        for low, high in spans:
            at[low] = at.get(low, 0) + nbytes
            at[high] = at.get(high, 0) - nbytes
    best = Peak(0, 0, 0, 0, ())
    for space, steps in sorted(changes.items()):
        times, live = sorted(steps), 0
        for time, following in zip(times, [*times[1:], times[-1]], strict=True):
            live += steps[time]
            if live > best.nbytes:
                best = Peak(space, time, following, live, ())

    def here(i: int) -> bool:
        inside = any(low <= best.start < high for low, high in lives[i])
        return inside and (problem.spaces[i] if problem.spaces else 0) == best.space

    buffers = sorted((i for i in range(len(problem)) if here(i)), key=lambda i: (-occupied[i], i))
    return Peak(best.space, best.start, best.end, best.nbytes, tuple(buffers))


def buffer_lives(problem: Problem) -> list[list[tuple[int, int]]]:
    """Life of every buffer as the planner sees it: alias classes united, persistent ones throughout."""
    from .normalise import alias_root, class_lives

    lives = class_lives(problem)
    return [lives[alias_root(problem, i)[0]] if problem.aliases else lives[i] for i in range(len(problem))]
