"""From a Problem to arenas: alias classes and groups become rigid blocks, lives are united, pins carried over."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from math import gcd, lcm

from .arena import Arena, Pieces, Spans
from .problem import LIMIT, Problem, ProblemError


def arenas(p: Problem) -> list[Arena]:
    """One arena a memory space, in the order of the space numbers. Raises ProblemError where constraints clash."""
    if p.plain and len(p) and min(p.sizes) > 0 and all(map(int.__lt__, p.lowers, p.uppers)):
        align = p.alignment
        chunk = p.max_chunk or 0
        return [Arena(0, p.lowers, p.uppers, p.occupied_column(), align, chunk=chunk)]  # type: ignore[arg-type]
    rigid = _Rigid(p)
    lives = class_lives(p)
    spaces: dict[int, list[int]] = {}
    for i in range(len(p)):
        spaces.setdefault(p.spaces[i] if p.spaces else 0, []).append(i)
    return [_arena(p, rigid, lives, space, spaces[space]) for space in sorted(spaces)]


def alias_root(p: Problem, index: int) -> tuple[int, int]:
    """The buffer an alias chain ends in and the byte offset inside it. Raises ProblemError on a cycle."""
    offset, at, steps = 0, index, 0
    while at in p.aliases:
        at, inner = p.aliases[at]
        offset += inner
        steps += 1
        if steps > len(p.aliases):
            raise ProblemError(f"the aliases of buffer {p.name(index)} form a cycle", index)
    return at, offset


def class_lives(p: Problem) -> list[Spans]:
    """The united, merged life of every alias class, at the position of its root; empty for alias children."""
    lives: list[Spans] = [[] for _ in range(len(p))]
    persistent = {alias_root(p, i)[0] for i in p.persistent}
    for i, span in enumerate(zip(p.lowers, p.uppers, strict=True)):
        lives[alias_root(p, i)[0] if p.aliases else i].extend((span, *p.extra_intervals.get(i, ())))
    everything = [span for spans in lives for span in spans]
    whole = (min((s[0] for s in everything), default=0), max((s[1] for s in everything), default=0))
    for i in range(len(p)):
        lives[i] = merged(lives[i])
        if i in persistent:
            lives[i] = [(whole[0], max(whole[1], whole[0] + 1))]
    return lives


def merged(spans: Iterable[tuple[int, int]]) -> Spans:
    """Sorted disjoint spans with the same union; empty ones dropped."""
    out: Spans = []
    for low, high in sorted(span for span in spans if span[0] < span[1]):
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    return out


class _Rigid:
    """Union of buffers whose offsets differ by a constant, with the congruence their alignments ask for."""

    def __init__(self, p: Problem) -> None:
        self.p = p
        self.parent = list(range(len(p)))
        self.delta = [0] * len(p)  # offset(i) - offset(parent[i])
        self.extent = [(0, p.occupied(i)) for i in range(len(p))]  # reserved bytes around each buffer
        self.steps: list[tuple[int, int]] = [(i, p.align(i)) for i in range(len(p)) if p.align(i) > 1]
        for child in p.aliases:
            root, offset = alias_root(p, child)
            self.extent[child] = (0, p.sizes[child])
            self.join(root, child, offset)
        for group in p.group_list:
            self._lay(group.members, group.before, group.between, group.after)

    def _lay(self, members: tuple[int, ...], before: int, between: int, after: int) -> None:
        if not members:
            return
        self.steps.append((members[0], lcm(*(self.p.align(i) for i in members))))
        at = 0
        for k, i in enumerate(members):
            self.join(members[0], i, at)
            end = at + self.extent[i][1] + (between if k + 1 < len(members) else after)
            following = members[k + 1] if k + 1 < len(members) else i
            stop = end + -end % self.p.align(following) if following != i else end
            self.extent[i] = (-before if k == 0 else 0, stop - at)
            at = stop

    def find(self, i: int) -> tuple[int, int]:
        """Root of i's block and the offset of i from it."""
        offset, at = 0, i
        while self.parent[at] != at:
            offset += self.delta[at]
            at = self.parent[at]
        if at != i:
            self.parent[i], self.delta[i] = at, offset
        return at, offset

    def join(self, a: int, b: int, offset: int) -> None:
        """Demand offset(b) - offset(a) == offset."""
        (root_a, da), (root_b, db) = self.find(a), self.find(b)
        if root_a == root_b:
            if db - da != offset:
                raise ProblemError(f"buffer {self.p.name(b)} cannot keep its place in its alias and its group", b)
        else:
            self.parent[root_b], self.delta[root_b] = root_a, da + offset - db


def _arena(p: Problem, rigid: _Rigid, lives: list[Spans], space: int, members: list[int]) -> Arena:
    blocks: dict[int, int] = {}
    block_of = array("q", (blocks.setdefault(rigid.find(i)[0], len(blocks)) for i in members))
    step, remainder, start = [1] * len(blocks), [0] * len(blocks), [0] * len(blocks)
    for i, b in zip(members, block_of, strict=True):
        start[b] = min(start[b], rigid.find(i)[1] + rigid.extent[i][0])
    for i, align in rigid.steps:
        root, offset = rigid.find(i)
        if root in blocks:
            b = blocks[root]
            step[b], remainder[b] = _meet(step[b], remainder[b], align, -offset, p, i)
    # The origin of a block is a multiple of its step and less than a step below its first byte.
    shift = [r + s * -((m + r) // s) for s, r, m in zip(step, remainder, start, strict=True)]
    inner = array("q", (rigid.find(i)[1] + shift[b] for i, b in zip(members, block_of, strict=True)))
    pieces, piece_of = _pieces(p, rigid, lives, members, block_of, inner)
    whole = [span for i in members for span in (lives[i] or [(p.lowers[i], p.uppers[i])])]
    arena = Arena(space, array("q"), array("q"), array("q"), array("q", step), array("q", members), block_of, inner)
    arena.whole_life = min(s[0] for s in whole), max(s[1] for s in whole)
    arena.chunk = p.max_chunk or 0
    extents = [0] * len(blocks)
    for i, b, at in zip(members, block_of, inner, strict=True):
        extents[b] = max(extents[b], at + rigid.extent[i][1])
    arena.size = array("q", extents)
    _hulls(arena, pieces)
    _pins(p, arena)
    _relation(p, arena, pieces, piece_of)
    rectangles = not any(pieces.rel) and len(set(pieces.block)) == len(pieces)
    rectangles = rectangles and all(len(s) == 1 for s in pieces.spans)
    rectangles = rectangles and all(arena.size[b] == s for b, s in zip(pieces.block, pieces.size, strict=True))
    _check_pins(p, arena, pieces)
    if not rectangles or arena.fixed or pieces.pairs or pieces.by_pairs_only:
        arena.pieces = pieces
    return arena


def _meet(s1: int, r1: int, s2: int, r2: int, p: Problem, i: int) -> tuple[int, int]:
    """Both x = r1 (mod s1) and x = r2 (mod s2) as one congruence (Chinese remainders)."""
    g = gcd(s1, s2)
    if (r2 - r1) % g:
        raise ProblemError(f"buffer {p.name(i)} cannot be aligned to {p.align(i)} where its alias or group puts it", i)
    both = s1 // g * s2
    if both >= LIMIT:
        raise ProblemError(f"the alignments around buffer {p.name(i)} have too large a common multiple", i)
    k = (r2 - r1) // g * pow(s1 // g, -1, s2 // g) % (s2 // g) if s2 // g > 1 else 0
    return both, (r1 + s1 * k) % both


def _pieces(
    p: Problem, rigid: _Rigid, lives: list[Spans], members: list[int], block_of: array[int], inner: array[int]
) -> tuple[Pieces, dict[int, int]]:
    """A piece for each alias class that holds bytes, and the piece of every buffer."""
    low: dict[int, int] = {}
    high: dict[int, int] = {}
    home: dict[int, int] = {}
    for i, b, at in zip(members, block_of, inner, strict=True):
        root = alias_root(p, i)[0]
        home[i] = root
        ext = rigid.extent[i]
        low[root] = min(low.get(root, at + ext[0]), at + ext[0])
        high[root] = max(high.get(root, 0), at + ext[1])
        if root == i:
            low.setdefault(-1 - root, b)
    pieces = Pieces(array("q"), array("q"), array("q"), [], [], p.conflicts is not None)
    paired = {alias_root(p, i)[0] for pair in p.extra_conflicts for i in pair}
    piece_of_root: dict[int, int] = {}
    for root in dict.fromkeys(home.values()):
        if high[root] > low[root] and (lives[root] or pieces.by_pairs_only or root in paired):
            piece_of_root[root] = len(pieces)
            pieces.block.append(low[-1 - root])
            pieces.rel.append(low[root])
            pieces.size.append(high[root] - low[root])
            pieces.spans.append(lives[root])
    return pieces, {i: piece_of_root[root] for i, root in home.items() if root in piece_of_root}


def _hulls(arena: Arena, pieces: Pieces) -> None:
    count = len(arena.size)
    low, high = [LIMIT] * count, [-LIMIT] * count
    for b, spans in zip(pieces.block, pieces.spans, strict=True):
        for span in spans:
            low[b], high[b] = min(low[b], span[0]), max(high[b], span[1])
    for b in range(count):
        if low[b] > high[b]:  # never live: shares with everybody
            low[b] = high[b] = arena.whole_life[0]
    arena.lower, arena.upper = array("q", low), array("q", high)


def _pins(p: Problem, arena: Arena) -> None:
    """Fixed offsets and hints of buffers become those of their blocks; clashes are errors."""
    assert arena.members is not None
    assert arena.block_of is not None
    assert arena.inner is not None
    for i, b, at in zip(arena.members, arena.block_of, arena.inner, strict=True):
        if i in p.hint:
            arena.hint.setdefault(b, max(0, p.hint[i] - at))
        if i in p.fixed:
            origin = p.fixed[i] - at
            if origin < 0 or origin % arena.align_of(b):
                raise ProblemError(f"buffer {p.name(i)}: fixed {p.fixed[i]} leaves no room for its group or alias", i)
            if arena.fixed.setdefault(b, origin) != origin:
                raise ProblemError(f"buffer {p.name(i)}: fixed offset clashes with its alias or group", i)


def _check_pins(p: Problem, arena: Arena, pieces: Pieces) -> None:
    """Pinned blocks must not overlap one another; everything else can make room."""
    pinned = sorted(
        (arena.fixed[b] + pieces.rel[k], arena.fixed[b] + pieces.rel[k] + pieces.size[k], k)
        for k, b in enumerate(pieces.block)
        if b in arena.fixed
    )
    pairs = set(pieces.pairs) if pinned else set()
    reach: list[tuple[int, int]] = []
    for start, end, k in pinned:
        reach = [(e, j) for e, j in reach if e > start]
        for _, j in reach:
            together = not pieces.by_pairs_only and _meet_in_time(pieces.spans[j], pieces.spans[k])
            if pieces.block[j] != pieces.block[k] and (together or (min(j, k), max(j, k)) in pairs):
                names = [p.name(next(i for i in p.fixed if _holds(arena, i, pieces.block[q]))) for q in (j, k)]
                raise ProblemError(f"the fixed offsets of {names[0]} and {names[1]} overlap while both are live")
        reach.append((end, k))


def _holds(arena: Arena, buffer: int, block: int) -> bool:
    assert arena.members is not None
    assert arena.block_of is not None
    return any(i == buffer and b == block for i, b in zip(arena.members, arena.block_of, strict=True))


def _meet_in_time(a: Spans, b: Spans) -> bool:
    return any(max(x[0], y[0]) < min(x[1], y[1]) for x in a for y in b)


def _relation(p: Problem, arena: Arena, pieces: Pieces, piece_of: dict[int, int]) -> None:
    pairs = {(min(a, b), max(a, b)) for a, b in _piece_pairs(p, piece_of) if a != b}
    roots = {alias_root(p, i)[0] for i in p.persistent}
    always = {piece_of[i] for i in roots if i in piece_of}
    arena.lifelong = frozenset(pieces.block[k] for k in always)
    if pieces.by_pairs_only:
        pairs |= {(min(a, b), max(a, b)) for a in always for b in range(len(pieces)) if a != b}
    pieces.pairs = sorted(pairs)


def _piece_pairs(p: Problem, piece_of: dict[int, int]) -> list[tuple[int, int]]:
    given = (*(p.conflicts or ()), *p.extra_conflicts)
    return [(piece_of[a], piece_of[b]) for a, b in given if a in piece_of and b in piece_of]
