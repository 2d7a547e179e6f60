"""The verifier: checks offsets against a Problem by itself, in O(n log n), sharing no code with the solvers."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from math import lcm

from . import native
from .problem import Problem
from .result import Violation, ViolationKind

REPORT_AT_MOST = 100


def verify(problem: Problem, offsets: Sequence[int], capacity: int | None = None) -> list[Violation]:
    """Every kind of fault in `offsets` (bytes, one a buffer); an empty list where the plan is sound.

    `capacity` bounds every space besides the problem's own capacities. Overlaps are found by sweeping time with an
    offset-ordered set of live extents: one fault is always found where there is any, not always all of them.
    """
    p = problem
    if len(offsets) != len(p):
        return [Violation(ViolationKind.COUNT, (), f"{len(offsets)} offsets for {len(p)} buffers")]
    found: list[Violation] = []
    for check in (_placed, _pinned, _grouped, _chunked):
        found += check(p, offsets)
    found += _bounded(p, offsets, capacity)
    return (found + _apart(p, offsets))[:REPORT_AT_MOST]


def _placed(p: Problem, offsets: Sequence[int]) -> Iterator[Violation]:
    if len(p) and min(offsets) < 0:
        for i, offset in enumerate(offsets):
            if offset < 0:
                yield Violation(ViolationKind.NEGATIVE, (i,), f"{p.name(i)} lies at {offset}")
    if p.alignment != 1:
        for i, offset in enumerate(offsets):
            if offset % p.align(i):
                text = f"{p.name(i)} lies at {offset}, no multiple of {p.align(i)}"
                yield Violation(ViolationKind.ALIGNMENT, (i,), text)


def _pinned(p: Problem, offsets: Sequence[int]) -> Iterator[Violation]:
    for i, offset in p.fixed.items():
        if offsets[i] != offset:
            yield Violation(ViolationKind.FIXED, (i,), f"{p.name(i)} is fixed at {offset}, lies at {offsets[i]}")
    for child, (parent, inner) in p.aliases.items():
        if offsets[child] != offsets[parent] + inner:
            text = f"{p.name(child)} must lie {inner} bytes into {p.name(parent)}, is at {offsets[child]}"
            yield Violation(ViolationKind.ALIAS, (child, parent), text)


def _grouped(p: Problem, offsets: Sequence[int]) -> Iterator[Violation]:
    for group in p.group_list:
        for a, b in zip(group.members, group.members[1:], strict=False):
            end = offsets[a] + _own_bytes(p, a) + group.between
            due = end + -end % p.align(b)
            if offsets[b] != due:
                text = f"{p.name(b)} must follow {p.name(a)} at {due}, lies at {offsets[b]}"
                yield Violation(ViolationKind.GROUP, (a, b), text)
        if group.members and offsets[group.members[0]] < group.before:
            text = f"no room for the {group.before} bytes before {p.name(group.members[0])}"
            yield Violation(ViolationKind.GROUP, (group.members[0],), text)


def _own_bytes(p: Problem, i: int) -> int:
    return p.sizes[i] if i in p.aliases else p.occupied(i)


def _bounded(p: Problem, offsets: Sequence[int], capacity: int | None) -> Iterator[Violation]:
    if capacity is None and not p.capacity:
        return
    limits: Mapping[int, int] = p.capacity
    after = {g.members[-1]: g.after for g in p.group_list if g.members}
    for i, offset in enumerate(offsets):
        space = p.spaces[i] if p.spaces else 0
        known = [c for c in (limits.get(space), capacity) if c is not None]
        end = offset + _own_bytes(p, i) + after.get(i, 0)
        if known and p.sizes[i] and end > min(known):
            text = f"{p.name(i)} ends at {end}, the capacity of space {space} is {min(known)}"
            yield Violation(ViolationKind.CAPACITY, (i,), text)


def _chunked(p: Problem, offsets: Sequence[int]) -> Iterator[Violation]:
    if p.max_chunk is None:
        return
    chunk, large = p.max_chunk, []
    grouped = {i for g in p.group_list for i in g.members}
    units = [((i,), 0, 0) for i in range(len(p)) if i not in grouped]
    for members, before, after in units + [(g.members, g.before, g.after) for g in p.group_list if g.members]:
        start = offsets[members[0]] - before
        end = offsets[members[-1]] + _own_bytes(p, members[-1]) + after
        if end - start > chunk:
            if start % chunk >= lcm(*(p.align(i) for i in members)):
                text = f"{p.name(members[0])} is larger than a chunk and starts inside one, at {start}"
                yield Violation(ViolationKind.CHUNK, members, text)
            space = p.spaces[members[0]] if p.spaces else 0
            if not all(i in p.aliases for i in members):
                large.append((space, start // chunk, -(-end // chunk), members))
        elif end > start and start // chunk != (end - 1) // chunk:
            text = f"{p.name(members[0])} crosses a multiple of {chunk} at [{start}, {end})"
            yield Violation(ViolationKind.CHUNK, members, text)
    large.sort()
    reach: tuple[int, int, int] = (0, 0, 0)
    for space, first, last, members in large:
        if reach[0] == space and first < reach[2] and first != reach[1]:
            text = f"{p.name(members[0])} starts inside the chunk of another large buffer"
            yield Violation(ViolationKind.CHUNK, members, text)
        same = reach[0] == space and first < reach[2]
        reach = (space, first, max(last, reach[2]) if same else last)


class _Extents:
    """Start, end and life of every buffer that is no alias child; group gaps and alias members included."""

    def __init__(self, p: Problem, offsets: Sequence[int]) -> None:
        self.start = list(offsets)
        self.end = [o + s for o, s in zip(offsets, p.occupied_column(), strict=True)]
        self.root = list(range(len(p)))
        for child in p.aliases:
            at = child
            while at in p.aliases:
                at = p.aliases[at][0]
            self.root[child] = at
            self.start[child], self.end[child] = offsets[child], offsets[child] + p.sizes[child]
        for group in p.group_list:
            last = len(group.members) - 1
            for k, i in enumerate(group.members):
                following = offsets[group.members[k + 1]] if k < last else self.end[i] + group.after
                self.end[i] = max(self.end[i], following)
                self.start[i] -= group.before if k == 0 else 0
        for child in p.aliases:
            root = self.root[child]
            if p.sizes[child]:
                self.start[root] = min(self.start[root], self.start[child])
                self.end[root] = max(self.end[root], self.end[child])
        self.persistent = {self.root[i] for i in p.persistent}


def _apart(p: Problem, offsets: Sequence[int]) -> list[Violation]:
    """Overlaps, by sweep and by the explicit relations."""
    if p.plain and native.available():
        pair = native.call("overlap", p.lowers, p.uppers, array("q", offsets), p.occupied_column())
        return [] if pair is None else [_overlap(p, pair[0], pair[1], (offsets, p.occupied_column()))]
    ext = _Extents(p, offsets)
    found = []
    pairs = {(ext.root[a], ext.root[b]) for a, b in (*(p.conflicts or ()), *p.extra_conflicts)}
    for a, b in pairs:
        together = (p.spaces[a] == p.spaces[b]) if p.spaces else True
        if a != b and together and max(ext.start[a], ext.start[b]) < min(ext.end[a], ext.end[b]):
            found.append(_overlap(p, a, b, None, ext))
    return found + _sweep(p, ext)


def _sweep(p: Problem, ext: _Extents) -> list[Violation]:
    """Sweep time; among live extents kept disjoint and ordered, a new one can only hit its two neighbours."""
    events: list[tuple[int, int, int]] = []
    spans = zip(p.lowers, p.uppers, strict=True)
    lives: dict[int, list[tuple[int, int]]] = {}
    for i, span in enumerate(spans):
        lives.setdefault(ext.root[i], []).extend((span, *p.extra_intervals.get(i, ())))
    everything = [span for spans_of in lives.values() for span in spans_of]
    first, last = min((s[0] for s in everything), default=0), max((s[1] for s in everything), default=0)
    for i, spans_of in lives.items():
        if i in ext.persistent:
            spans_of = [(first, max(last, first + 1))]
        elif p.conflicts is not None:
            continue
        if ext.start[i] < ext.end[i]:
            for low, high in _union(spans_of):
                events += ((low, 1, i), (high, 0, i))
    if p.conflicts is not None:
        # A relation instead of lives: only lifelong buffers meet everybody, one after the other.
        others = [i for i in lives if i not in ext.persistent and ext.start[i] < ext.end[i]]
        return _against_lifelong(p, ext, [i for _, kind, i in events if kind], others)
    found: list[Violation] = []
    live: dict[int, list[tuple[int, int]]] = {}
    dropped: set[int] = set()
    for _, opens, i in sorted(events):
        ordered = live.setdefault(p.spaces[i] if p.spaces else 0, [])
        key = (ext.start[i], i)
        at = bisect_left(ordered, key)
        if not opens:
            if i in dropped:
                dropped.discard(i)
            else:
                del ordered[at]
            continue
        hits = [j for _, j in ordered[max(0, at - 1) : at] if ext.end[j] > ext.start[i]]
        hits += [j for s, j in ordered[at : at + 1] if s < ext.end[i]]
        if hits:
            found.append(_overlap(p, hits[0], i, None, ext))
            dropped.add(i)
        else:
            ordered.insert(at, key)
    return found


def _against_lifelong(p: Problem, ext: _Extents, fixed: list[int], others: list[int]) -> list[Violation]:
    found: list[Violation] = []
    live: dict[int, list[tuple[int, int]]] = {}
    for i in fixed + others:
        ordered = live.setdefault(p.spaces[i] if p.spaces else 0, [])
        at = bisect_left(ordered, (ext.start[i], i))
        hits = [j for _, j in ordered[max(0, at - 1) : at] if ext.end[j] > ext.start[i]]
        hits += [j for s, j in ordered[at : at + 1] if s < ext.end[i]]
        if hits:
            found.append(_overlap(p, hits[0], i, None, ext))
        elif i in ext.persistent:
            insort(ordered, (ext.start[i], i))
    return found


def _union(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    begin = stop = None
    for low, high in sorted(spans):
        if low >= high:
            continue
        if stop is None or begin is None or low > stop:
            if stop is not None and begin is not None:
                yield begin, stop
            begin, stop = low, high
        else:
            stop = max(stop, high)
    if stop is not None and begin is not None:
        yield begin, stop


def _overlap(
    p: Problem, a: int, b: int, columns: tuple[Sequence[int], Sequence[int]] | None, ext: _Extents | None = None
) -> Violation:
    a, b = min(a, b), max(a, b)
    if columns is not None:
        spans = [(columns[0][i], columns[0][i] + columns[1][i]) for i in (a, b)]
    else:
        assert ext is not None
        spans = [(ext.start[i], ext.end[i]) for i in (a, b)]
    text = f"{p.name(a)} at [{spans[0][0]}, {spans[0][1]}) and {p.name(b)} at [{spans[1][0]}, {spans[1][1]})"
    return Violation(ViolationKind.OVERLAP, (a, b), f"{text} are live together")
