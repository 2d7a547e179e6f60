"""A best-fit allocator over large blocks: the smallest idle piece that fits, split, and merged again when freed.

Pure integers: blocks come from a `BlockSource`, so the same allocator runs dry, to plan, and live, on a device.

With several streams a piece is freed before the work on it has ended. It then carries a clock: for each stream, how
many of its steps must have ended. Only a request whose own clock has come that far may have it. Pieces with different
clocks stay apart until a request may use both.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass

from kgrun.runtime.memory.alignment import ALIGNMENT, held_bytes
from kgrun.runtime.memory.pool.blocks import UNIT, BlockSource, NoRoom, block_sizes
from kgrun.runtime.memory.pool.statistics import TOP_HOLDERS, Holder, PoolExhausted, PoolStatistics, UnknownAddress

Clock = tuple[int, ...]
_AT_ONCE: Clock = ()


@dataclass(slots=True, eq=False)
class _Piece:
    """A stretch of a block, with its neighbours there; idle pieces have no name."""

    address: int
    size: int
    block: int
    before: _Piece | None = None
    after: _Piece | None = None
    name: str | None = None
    ready: Clock = _AT_ONCE


class BestFitPool:
    """Hands out pieces of blocks. All sizes are multiples of 512; a request for no bytes gets 512 (S66).

    Args:
        source: gives blocks.
        unit: bytes to grow by, a positive multiple of 512.
    """

    def __init__(self, source: BlockSource, unit: int = UNIT) -> None:
        if unit <= 0 or unit % ALIGNMENT:
            raise ValueError(f"the unit must be a positive multiple of {ALIGNMENT}, not {unit}")
        self._source, self._unit = source, unit
        self._first: dict[int, _Piece] = {}  # of each block
        self._sizes: dict[int, int] = {}  # of each block
        self._held: dict[int, _Piece] = {}
        self._idle: list[tuple[int, int]] = []  # size, address
        self._idle_at: dict[int, _Piece] = {}
        self._total = self._used = self._peak = 0

    # Taking

    def allocate(self, nbytes: int, name: str = "", now: Clock = _AT_ONCE) -> int:
        """Address of `nbytes` bytes, aligned to 512 (S68).

        Args:
            name: what they are for; reports and errors say it.
            now: how many steps of each stream have ended before the bytes are first touched.

        Raises:
            PoolExhausted: no idle piece fits and no block can be had.
        """
        size = max(held_bytes(nbytes), ALIGNMENT)
        piece = self._find(size, now) or self._grow(size, name)
        self._drop_idle(piece)
        self._cut(piece, size)
        piece.name, piece.ready = name, _AT_ONCE
        self._held[piece.address] = piece
        self._used += piece.size
        self._peak = max(self._peak, self._used)
        return piece.address

    def allocate_contiguous(self, sizes: Sequence[int], names: Sequence[str] = (), now: Clock = _AT_ONCE) -> list[int]:
        """Addresses of pieces that stand side by side in this order, each aligned and freed on its own (S72, B24).

        Raises:
            ValueError: no sizes. PoolExhausted: no room for all of them.
        """
        if not sizes:
            raise ValueError("a contiguous allocation needs at least one size")
        labels = list(names) or [""] * len(sizes)
        held = [max(held_bytes(size), ALIGNMENT) for size in sizes]
        piece = self._held[self.allocate(sum(held), " + ".join(labels), now)]
        found = []
        for size, label in zip(held, labels, strict=True):
            rest = self._cut(piece, size, idle=False)
            piece.name = label
            self._held[piece.address] = piece
            found.append(piece.address)
            if rest is not None:
                piece = rest
        return found

    # Giving back

    def free(self, address: int, ready: Clock = _AT_ONCE) -> None:
        """Give a piece back; it merges with its idle neighbours in the same block (S68).

        Args:
            ready: steps of each stream that must have ended before others may touch the bytes.

        Raises:
            UnknownAddress: the pool did not hand it out, or it is free already.
        """
        piece = self._held.pop(address, None)
        if piece is None:
            raise UnknownAddress(f"address {address:#x} is not in use in this pool")
        self._used -= piece.size
        piece.name, piece.ready = None, ready
        for neighbour in (piece.after, piece.before):
            if neighbour is not None and neighbour.name is None and neighbour.ready == ready:
                self._drop_idle(neighbour)
                piece = _join(piece, neighbour)
        self._add_idle(piece)

    def trim(self) -> int:
        """Give blocks that hold nothing back to the source; the bytes given."""
        empty = [block for block, first in self._first.items() if first.name is None and first.after is None]
        given = 0
        for block in empty:
            self._drop_idle(self._first.pop(block))
            self._source.give(block)
            given += self._sizes.pop(block)
        self._total -= given
        return given

    # Looking

    def blocks(self) -> dict[int, int]:
        """Size of each block, by its address, in the order in which they were taken."""
        return dict(self._sizes)

    def size_of(self, address: int) -> int:
        """Bytes held by the piece handed out at `address`; UnknownAddress where there is none."""
        if address not in self._held:
            raise UnknownAddress(f"address {address:#x} is not in use in this pool")
        return self._held[address].size

    def block_of(self, address: int) -> int:
        """Address of the block in which the piece handed out at `address` lies."""
        return self._held[address].block

    def holders(self, most: int | None = TOP_HOLDERS) -> list[Holder]:
        """Pieces in use, largest first, then in the order taken; None: all of them. After a run they are its leaks."""
        pieces = sorted(self._held.values(), key=lambda piece: -piece.size)
        return [Holder(piece.name or "", piece.size) for piece in pieces[:most]]

    @property
    def used(self) -> int:
        """Bytes handed out now."""
        return self._used

    def statistics(self) -> PoolStatistics:
        """Bytes now."""
        largest = self._idle[-1][0] if self._idle else 0
        return PoolStatistics(self._total, self._used, self._peak, largest, len(self._idle), len(self._sizes))

    def check(self) -> list[str]:
        """Contradictions between the pool's books, none in a pool that is sound (S71)."""
        faults = []
        by_block: list[tuple[int, int]] = []
        used = 0
        for block, first in self._first.items():
            piece: _Piece | None = first
            at = block
            while piece is not None:
                if piece.address != at or piece.block != block:
                    faults.append(f"a piece at {piece.address:#x} should stand at {at:#x}")
                at += piece.size
                if piece.name is None:
                    by_block.append((piece.size, piece.address))
                    twin = piece.after
                    if twin is not None and twin.name is None and twin.ready == piece.ready:
                        faults.append(f"idle pieces at {piece.address:#x} and {twin.address:#x} are not merged")
                else:
                    used += piece.size
                piece = piece.after
            if at != block + self._sizes[block]:
                faults.append(f"the pieces of block {block:#x} end at {at:#x}")
        if sorted(by_block) != self._idle:
            faults.append("idle pieces by block differ from those by size")
        if used != self._used or used + sum(size for size, _ in by_block) != self._total:
            faults.append(f"total {self._total:,} is not used {used:,} and idle together")
        return faults

    # Pieces

    def _find(self, size: int, now: Clock) -> _Piece | None:
        """The smallest idle piece that fits and may be touched `now`."""
        for position in range(bisect_left(self._idle, (size, 0)), len(self._idle)):
            piece = self._idle_at[self._idle[position][1]]
            if _reached(piece.ready, now):
                return self._merged(size, now, piece.size) or piece
        return self._merged(size, now)

    def _merged(self, size: int, now: Clock, below: int = 1 << 62) -> _Piece | None:
        """A piece made of idle neighbours with different clocks, all reached: the smallest that fits below `below`."""
        if not now:
            return None  # neighbours without clocks are one piece already
        best: list[_Piece] = []
        for first in self._first.values():
            run: list[_Piece] = []
            piece: _Piece | None = first
            while piece is not None:
                usable = piece.name is None and _reached(piece.ready, now)
                run = [*run, piece] if usable else []
                piece = piece.after
                ends = piece is None or piece.name is not None or not _reached(piece.ready, now)
                if len(run) > 1 and ends and size <= _sum(run) < below:
                    best, below = run, _sum(run)
        if not best:
            return None
        whole, *others = best
        self._drop_idle(whole)
        for piece in others:
            if whole.size >= size:
                break
            self._drop_idle(piece)
            self._cut(piece, min(piece.size, size - whole.size))  # what is left of it keeps its own clock
            whole = _join(whole, piece)
        self._add_idle(whole)
        return whole

    def _grow(self, size: int, name: str) -> _Piece:
        room = self._source.room()
        for wanted in block_sizes(size, self._unit, room):
            try:
                block = self._source.take(wanted)
            except NoRoom:
                continue
            piece = _Piece(block, wanted, block)
            self._first[block], self._sizes[block] = piece, wanted
            self._total += wanted
            self._add_idle(piece)
            return piece
        raise PoolExhausted(name, size, room, self.statistics(), self.holders())

    def _cut(self, piece: _Piece, size: int, *, idle: bool = True) -> _Piece | None:
        """Cut `piece` to `size`; what remains, None where nothing does."""
        if piece.size == size:
            return None
        rest = _Piece(piece.address + size, piece.size - size, piece.block, piece, piece.after, ready=piece.ready)
        if piece.after is not None:
            piece.after.before = rest
        piece.after, piece.size = rest, size
        if idle:
            self._add_idle(rest)
        return rest

    def _add_idle(self, piece: _Piece) -> None:
        insort(self._idle, (piece.size, piece.address))
        self._idle_at[piece.address] = piece

    def _drop_idle(self, piece: _Piece) -> None:
        del self._idle[bisect_left(self._idle, (piece.size, piece.address))]
        del self._idle_at[piece.address]


def _join(one: _Piece, other: _Piece) -> _Piece:
    """Two neighbours as one piece, which may be touched when both may."""
    left, right = (one, other) if one.address < other.address else (other, one)
    left.size += right.size
    left.after = right.after
    if right.after is not None:
        right.after.before = left
    left.ready = _later(left.ready, right.ready)
    return left


def _later(one: Clock, other: Clock) -> Clock:
    if not one or not other:
        return one or other
    return tuple(max(pair) for pair in zip(one, other, strict=True))


def _reached(ready: Clock, now: Clock) -> bool:
    return not ready or (bool(now) and all(need <= done for need, done in zip(ready, now, strict=True)))


def _sum(pieces: Sequence[_Piece]) -> int:
    return sum(piece.size for piece in pieces)
