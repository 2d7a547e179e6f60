"""Exact search for a plan of at most `cap` bytes: branch on which block lies lowest in a section."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from . import native
from .arena import step_up

IMPOSSIBLE, FOUND, STOPPED = 0, 1, 2
COUNT_OPTIONS, WEIGH_FAILURES, FIRST_OF_TIES = 1, 2, 4  # bits of `rule`
NONE = 1 << 62


@dataclass(frozen=True)
class Rectangles:
    """Blocks in order of `lo` with their sections [lo, up); `pinned` is -1 where a block is free to move."""

    lo: array[int]
    up: array[int]
    size: array[int]
    align: array[int] | int
    pinned: array[int]
    count: int
    chunk: int = 0


def search(
    blocks: Rectangles, rank: array[int], cap: int, rule: int, limit: int, deadline: float
) -> tuple[int, int, array[int]]:
    """FOUND with offsets, IMPOSSIBLE (proven) or STOPPED at `limit` nodes or `deadline` (CPU time); nodes; offsets.

    A plan in which no block can move down is found, if there is one, by deciding for one section at a time which
    block lies on its floor, or that none does; then the floor rises to the next offset that a block there can take:
    its least offset or the end of a block it can rest on. A section is eligible while its floor is a local minimum,
    so nothing can slip below later, and no two branches reach the same plan. Floors rise to the least offset of
    the blocks still to come; a section whose floor and remaining bytes exceed `cap` ends the branch. Where no unplaced
    block crosses between two sections the parts are solved one by one. `rank` orders the options.
    After Moffitt, MiniMalloc (ASPLOS 2023), for the section bound, the canonical plans and the splitting; the choice
    of section is fail-first with failure weights (Boussemart et al., ECAI 2004).
    """
    offsets = array("q", bytes(8 * len(blocks.lo)))
    if native.available():
        align = blocks.align if not isinstance(blocks.align, int) else array("q", [blocks.align])
        status, nodes = native.call(
            "search", blocks.lo, blocks.up, blocks.size, align, blocks.pinned, rank, offsets,
            blocks.count, cap, blocks.chunk, rule, limit, deadline,
        )  # fmt: skip
        return status, nodes, offsets
    run = _Search(blocks, rank, cap, rule, offsets)
    return *run.run(limit, deadline), offsets


@dataclass
class _Part:
    """Blocks whose sections no unplaced block links to others, in order of lo."""

    blocks: list[int]
    parent: _Part | None
    following: _Part | None = None
    options: list[int] = field(default_factory=list)
    turn: int = 0
    section: int = 0
    slack: int = 0
    trail: int = 0
    placed: int = 0


class _Search:
    """The state of one search; the C twin keeps the same stacks."""

    def __init__(self, blocks: Rectangles, rank: Sequence[int], cap: int, rule: int, offsets: array[int]) -> None:
        self.lo, self.up, self.size, self.pinned = blocks.lo, blocks.up, blocks.size, blocks.pinned
        n = len(self.lo)
        self.align = [blocks.align] * n if isinstance(blocks.align, int) else list(blocks.align)
        self.chunk, self.cap, self.rule, self.rank, self.offsets = blocks.chunk, cap, rule, rank, offsets
        self.least = [-1] * n
        self.rest = [0] * blocks.count
        self.floor = [0] * blocks.count
        self.weight = [1] * blocks.count
        self.trail: list[tuple[int, int]] = []  # old floor of a section, or old least offset of block ~where
        self.placed: list[int] = []
        for j in range(n):
            for t in range(self.lo[j], self.up[j]):
                self.rest[t] += self.size[j]

    def run(self, limit: int, deadline: float) -> tuple[int, int]:
        part: _Part = _Part(list(range(len(self.lo))), None)
        nodes = 0
        if not self.examine(part, (0, len(self.floor))):
            return IMPOSSIBLE, nodes
        part.trail = len(self.trail)
        while True:
            self.undo(part)
            if part.turn == len(part.options):
                if part.parent is None:
                    return IMPOSSIBLE, nodes
                part = part.parent
                continue
            if nodes >= limit:
                return STOPPED, nodes
            nodes += 1
            if nodes % 64 == 0 and time.thread_time() >= deadline:
                return STOPPED, nodes
            chosen = part.options[part.turn]
            part.turn += 1
            if chosen < 0:
                alive = self.skip(part)
            else:
                self.place(part, chosen)
                alive = True
            if not alive:
                continue
            alive, following = self.split(part, chosen)
            if not alive:
                continue
            if following is None:
                return FOUND, nodes
            part = following
            part.trail, part.placed = len(self.trail), len(self.placed)

    def undo(self, part: _Part) -> None:
        while len(self.trail) > part.trail:
            where, value = self.trail.pop()
            if where < 0:
                self.least[~where] = value
            else:
                self.floor[where] = value
        while len(self.placed) > part.placed:
            j = self.placed.pop()
            for t in range(self.lo[j], self.up[j]):
                self.rest[t] += self.size[j]

    def raise_floor(self, section: int, floor: int) -> None:
        self.trail.append((section, self.floor[section]))
        self.floor[section] = floor

    def lowest(self, part: _Part, first: int, last: int) -> tuple[int, int] | None:
        """Update least offsets above sections [first, last), where floors rose; the sections of all that moved.

        None where a pinned block is buried.
        """
        low, high = first, last
        for j in part.blocks:
            if self.lo[j] >= last:
                break
            if self.up[j] <= first:
                continue
            top = max(self.floor[self.lo[j] : self.up[j]])
            pin = self.pinned[j]
            if pin >= 0 and top > pin:
                return None
            least = pin if pin >= 0 else step_up(top, self.size[j], self.align[j], self.chunk)
            if least != self.least[j]:
                self.trail.append((~j, self.least[j]))
                self.least[j] = least
                low, high = min(low, self.lo[j]), max(high, self.up[j])
        return low, high

    def settle(self, part: _Part, raised: tuple[int, int]) -> bool:
        """Raise floors to where a block can lie at all, until nothing moves; False ends the branch."""
        first, last = raised
        while first < last:
            moved = self.lowest(part, first, last)
            if moved is None:
                return False
            first, last = moved
            bottom = [NONE] * (last - first)
            for j in part.blocks:
                offset = self.least[j]
                for t in range(max(self.lo[j], first) - first, min(self.up[j], last) - first):
                    if offset < bottom[t]:
                        bottom[t] = offset
            higher = [t for t in range(first, last) if self.floor[t] < bottom[t - first] < NONE]
            for t in range(first, last):
                if bottom[t - first] < NONE and bottom[t - first] + self.rest[t] > self.cap:
                    self.weight[t] += 1
                    return False
            for t in higher:
                self.raise_floor(t, bottom[t - first])
            first, last = (higher[0], higher[-1] + 1) if higher else (0, 0)
        return True

    def choose(self, part: _Part, first: int, last: int) -> None:
        """The section to branch on: in a valley, with the least to spare as `rule` measures it."""
        many = [0] * (last - first)
        for j in part.blocks:
            if self.least[j] == self.floor[self.lo[j]]:
                for t in range(self.lo[j] - first, self.up[j] - first):
                    many[t] += 1
        best, fewest = 0.0, -1
        spare = float(self.cap // 256) if self.rule & WEIGH_FAILURES else 0.0
        for t in self.valleys(first, last):
            slack = self.cap - self.rest[t] - self.floor[t]
            score = float(slack) + spare
            if self.rule & COUNT_OPTIONS:
                score *= float(many[t - first])
            if self.rule & WEIGH_FAILURES:
                score /= float(self.weight[t])
            fewer = many[t - first] < fewest and not self.rule & FIRST_OF_TIES
            if fewest < 0 or score < best or (score == best and fewer):
                best, fewest, part.section, part.slack = score, many[t - first], t, slack

    def valleys(self, first: int, last: int) -> list[int]:
        """Sections on plateaus whose neighbours are higher; sections with nothing to come are walls."""
        found: list[int] = []
        t = first
        while t < last:
            end = t + 1
            if not self.rest[t]:
                t = end
                continue
            while end < last and self.rest[end] and self.floor[end] == self.floor[t]:
                end += 1
            left = t == first or not self.rest[t - 1] or self.floor[t - 1] > self.floor[t]
            right = end == last or not self.rest[end] or self.floor[end] > self.floor[t]
            if left and right:
                found += range(t, end)
            t = end
        return found

    def examine(self, part: _Part, raised: tuple[int, int]) -> bool:
        """Bounds and options of a part; False ends the branch."""
        first, last = self.lo[part.blocks[0]], max(self.up[j] for j in part.blocks)
        if not self.settle(part, (max(first, raised[0]), min(last, raised[1]))):
            return False
        self.choose(part, first, last)
        t = part.section
        lying = [j for j in part.blocks if self.lo[j] <= t < self.up[j] and self.least[j] == self.floor[t]]
        part.options = sorted(lying, key=self.rank.__getitem__)
        if part.slack > 0:
            part.options.append(-1)
        return True

    def skip(self, part: _Part) -> bool:
        """Nothing lies on the floor of the section: raise it to the next place a block there can take."""
        t = part.section
        here = [j for j in part.blocks if self.lo[j] <= t < self.up[j]]
        higher = [self.least[j] for j in here if self.least[j] > self.floor[t]]
        lying = [j for j in here if self.least[j] == self.floor[t]]
        first, last = min(self.lo[j] for j in lying), max(self.up[j] for j in lying)
        near = [j for j in part.blocks if self.lo[j] < last and self.up[j] > first]
        higher += [self.least[j] + self.size[j] for j in near if not self.lo[j] <= t < self.up[j]]
        if not higher or min(higher) + self.rest[t] > self.cap:
            self.weight[t] += 1
            return False
        self.raise_floor(t, min(higher))
        return True

    def place(self, part: _Part, chosen: int) -> None:
        offset = self.floor[part.section]
        self.offsets[chosen] = offset
        self.placed.append(chosen)
        for t in range(self.lo[chosen], self.up[chosen]):
            self.rest[t] -= self.size[chosen]
            self.raise_floor(t, offset + self.size[chosen])

    def split(self, part: _Part, chosen: int) -> tuple[bool, _Part | None]:
        """The parts left without `chosen`, tightest first, linked to what follows; False ends the branch."""
        parts: list[_Part] = []
        reach = -1
        for j in part.blocks:
            if j == chosen:
                continue
            if not parts or self.lo[j] >= reach:
                parts.append(_Part([], part))
            parts[-1].blocks.append(j)
            reach = max(reach, self.up[j])
        raised = (part.section, part.section + 1) if chosen < 0 else (self.lo[chosen], self.up[chosen])
        if not all(self.examine(new, raised) for new in parts):
            return False, None
        parts.sort(key=lambda new: new.slack)
        for new, following in zip(parts, [*parts[1:], part.following], strict=False):
            new.following = following
        return True, parts[0] if parts else part.following
