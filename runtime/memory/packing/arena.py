"""The normal form the solvers work on: one arena a memory space, of rigid blocks made of pieces."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

Spans = list[tuple[int, int]]


@dataclass
class Pieces:
    """The parts of blocks that hold bytes. Piece k covers [rel, rel + size) of its block during each of its spans."""

    block: array[int]
    rel: array[int]
    size: array[int]
    spans: list[Spans]
    pairs: list[tuple[int, int]]  # further conflicts between pieces
    by_pairs_only: bool = False  # pairs are the whole relation, spans count for nothing

    def __len__(self) -> int:
        return len(self.block)


@dataclass
class Arena:
    """Blocks to place in one linear memory; a block moves as a whole, in steps of its alignment.

    `lower`, `upper` and `size` are the bounding rectangle of each block. `pieces` is None where every block is that
    rectangle and nothing is pinned: then overlap of lives is all there is to know. `members`, `block_of` and `inner`
    say which buffer lies where in which block (None: buffer k of the problem is block k).
    """

    space: int
    lower: array[int]
    upper: array[int]
    size: array[int]
    align: array[int] | int
    members: array[int] | None = None
    block_of: array[int] | None = None
    inner: array[int] | None = None
    fixed: dict[int, int] = field(default_factory=dict)
    hint: dict[int, int] = field(default_factory=dict)
    pieces: Pieces | None = None
    chunk: int = 0  # 0: one unbounded piece of memory
    lifelong: frozenset[int] = frozenset()
    whole_life: tuple[int, int] = (0, 0)

    def __len__(self) -> int:
        return len(self.size)

    def align_of(self, block: int) -> int:
        return self.align if isinstance(self.align, int) else self.align[block]

    @property
    def hull_is_valid(self) -> bool:
        """Whether placing the bounding rectangles gives a valid plan (not with pins or a conflict relation)."""
        return not self.fixed and (self.pieces is None or not (self.pieces.pairs or self.pieces.by_pairs_only))

    def all_pieces(self) -> Pieces:
        """The pieces, one a block where the blocks are rectangles."""
        if self.pieces is not None:
            return self.pieces
        n = len(self)
        spans = [[span] for span in zip(self.lower, self.upper, strict=True)]
        return Pieces(array("q", range(n)), array("q", bytes(8 * n)), self.size, spans, [])

    def height(self, offsets: Sequence[int]) -> int:
        """Highest end of a block placed at `offsets`."""
        return max(map(int.__add__, offsets, self.size), default=0)


def step_up(offset: int, size: int, align: int, chunk: int) -> int:
    """Least aligned place at or above `offset` where `size` bytes cross no multiple of `chunk` (0: no chunks).

    A block larger than the chunk starts at a multiple of it.
    """
    offset += -offset % align
    if chunk and size:
        while offset % chunk and offset // chunk != (offset + size - 1) // chunk:
            offset += -offset % chunk
            offset += -offset % align
    return offset
