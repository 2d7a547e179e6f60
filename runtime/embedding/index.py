"""Which row of a table lies in which slot of the cache, and who goes when there is no room (S154).

A table of slots by row number takes four bytes a row, finds a row without probing and is looked up for a whole batch at
once. Among rows that no batch in hand needs, those go that were used longest ago: a log of the slots that each batch
used, a ring, is read from its old end; an entry whose slot was used again since is passed over. All of a lookup is one
compiled call without the interpreter's lock, or passes of numpy that give the same to the letter.
"""

from __future__ import annotations

import time
from dataclasses import field
from typing import Any

import numpy as np

from kgrun.graphs.errors import DoesNotFit
from kgrun.graphs.records import dataclass
from kgrun.runtime.hostloops import native

Array = np.ndarray[Any, Any]
_LOG_ROWS = 4  # entries of the log, at least, for each row of the cache; it is cleaned when it is full
# As csource/module.c has them: counts of a lookup, where the index stands, and what is kept of a slot.
MISSED, HIT, FRESH, HITS, OUTSIDE, _COUNTS = 0, 1, 2, 3, 4, 8
_HEAD, _TAIL, _FILLED, _STEP = range(4)
_ID, _LAST = 0, 1
_ALIGNMENT = 512
_MOST = 2**31 - 1  # what four bytes count: of rows of a table that compiled code takes, and of steps between two counts


@dataclass(frozen=True, slots=True)
class Block:
    """Memory that a lookup writes to; kept as long as the lookup is used.

    Attributes:
        counts: of missing rows, slots hit, slots used for the first time, ids that hit, ids outside.
        missing, used, evicted: as `Lookup` has them, with room for every id of a batch.
        found: slots, flat.
        turn: which of the blocks it is that are used in turn.
    """

    counts: Array
    missing: Array
    used: Array
    evicted: Array
    found: Array
    turn: int = 0

    @staticmethod
    def offsets(size: int) -> dict[str, int]:
        """Where the parts lie in the bytes of a block for `size` ids, by attribute; `end` is how many there are."""
        part = -(-8 * size // _ALIGNMENT) * _ALIGNMENT
        names = ("missing", "used", "evicted", "found", "end")
        return {"counts": 0} | {name: _ALIGNMENT + i * part for i, name in enumerate(names)}

    @classmethod
    def over(cls, memory: Array, size: int, dtype: np.dtype[Any], turn: int = 0) -> Block:
        """A block for `size` ids of `dtype` in bytes that are there."""
        at = cls.offsets(size)

        def part(name: str, count: int, kind: Any) -> Array:
            start = at[name]
            return memory[start : start + count * np.dtype(kind).itemsize].view(kind)

        missing, used, evicted = (part(name, size, np.int64) for name in ("missing", "used", "evicted"))
        return cls(part("counts", _COUNTS, np.int64), missing, used, evicted, part("found", size, dtype), turn)

    @classmethod
    def new(cls, size: int, dtype: np.dtype[Any]) -> Block:
        """A block in memory of its own."""
        return cls.over(np.empty(cls.offsets(size)["end"], np.uint8), size, dtype)


@dataclass(frozen=True, slots=True)
class Lookup:
    """One batch against the cache.

    Attributes:
        shape: of the batch's ids.
        missed, hit, fresh: how many rows are missing, slots were hit, and slots are used for the first time.
        hits, outside: ids that were there already, and ids outside the table.
        took_ns: what it took.
    """

    block: Block
    shape: tuple[int, ...]
    missed: int
    hit: int
    fresh: int
    hits: int
    outside: int
    took_ns: int = field(default=0, compare=False)

    @property
    def slots(self) -> Array:
        """Of the batch's ids, in their shape and dtype; -1 for ids outside the table."""
        return self.block.found.reshape(self.shape)

    @property
    def missing(self) -> Array:
        """Row numbers to load, each once, into `places`."""
        return self.block.missing[: self.missed]

    @property
    def places(self) -> Array:
        """Slots of the missing rows."""
        return self.block.used[self.hit : self.hit + self.missed]

    @property
    def evicted(self) -> Array:
        """Row numbers that made room, from `freed`."""
        return self.block.evicted[: self.missed - self.fresh]

    @property
    def freed(self) -> Array:
        """Slots of the evicted rows: the places of the last missing ones."""
        return self.block.used[self.hit + self.fresh : self.hit + self.missed]

    @property
    def used(self) -> Array:
        """Slots that the batch uses, each once."""
        return self.block.used[: self.hit + self.missed]


class RowIndex:
    """The index of a cache of `rows` slots over tables of `vocabulary` rows."""

    def __init__(self, vocabulary: int, rows: int) -> None:
        self.vocabulary, self.rows = vocabulary, rows
        self._slot_of = np.full(vocabulary, -1, np.int32)
        narrow = vocabulary <= _MOST
        # Of each slot its row, and the step that used it last: read together, and eight of them in a line of memory.
        self._entries = np.zeros((rows, 2), np.int32 if narrow else np.int64)
        self._entries[:, _ID] = -1
        self._first = np.empty(rows, np.int64)  # scratch
        # Slots and the steps that used them; entries are numbered from the first ever, number i lies at i % len.
        room = 1 << (_LOG_ROWS * rows - 1).bit_length()
        self._log, self._steps = np.zeros(room, np.int32), np.zeros(room, np.int32)
        self._state = np.zeros(4, np.int64)
        self._compiled = native.available() and narrow

    def lookup(self, ids: Array, block: Block | None = None) -> Lookup:
        """Find a slot for every id of a batch, and make room where rows are missing.

        Raises:
            DoesNotFit: KG408 where the batch alone has more rows than the cache; nothing has changed then.
        """
        started = time.perf_counter_ns()
        block = block or Block.new(ids.size, ids.dtype)
        flat = np.ascontiguousarray(ids).reshape(-1)
        if self._state[_STEP] == _MOST:
            self._count_afresh()
        if self._compiled and ids.dtype.itemsize in (4, 8):
            room = native.call(
                "lookup", flat, block.found, block.missing, block.used, block.evicted, block.counts, self._slot_of,
                self._entries, self._log, self._steps, self._state,
            )  # fmt: skip
        else:
            room = self._lookup_by_numpy(flat, block)
        missed, hit, fresh, hits, outside, *_ = block.counts.tolist()
        if not room:
            raise DoesNotFit(
                f"a batch uses {missed + hit:,} rows of a table of which {self.rows:,} are cached",
                code="KG408",
                help="enlarge the cache, or make the batch smaller",
                details={"used": missed + hit, "rows": self.rows},
            )
        took = time.perf_counter_ns() - started
        return Lookup(block, ids.shape, missed, hit, fresh, hits, outside, took)

    def rows_of_slots(self) -> Array:
        """The row in each slot, -1 where there is none; a copy."""
        return self._entries[:, _ID].astype(np.int64)

    def _count_afresh(self) -> None:
        """Steps from none: the order of the log alone says which slot was used longest ago."""
        live = np.arange(self._state[_HEAD], self._state[_TAIL]) % len(self._log)
        kept = self._log[live[self._entries[self._log[live], _LAST] == self._steps[live]]]
        self._log[: len(kept)] = kept
        self._steps[:] = self._entries[:, _LAST] = 0
        self._state[[_HEAD, _TAIL, _STEP]] = 0, len(kept), 0

    def _lookup_by_numpy(self, ids: Array, block: Block) -> bool:
        inside = (ids >= 0) & (ids < self.vocabulary)
        known = ids[inside]
        slots = self._slot_of[known]
        absent = slots < 0
        rows, hits = known[absent], slots[~absent]
        # Each once, in the batch's order: whoever signs last for a row, or a slot, keeps it.
        signs = -2 - np.arange(len(rows), dtype=np.int32)
        self._slot_of[rows[::-1]] = signs[::-1]
        missing = rows[self._slot_of[rows] == signs]
        order = np.arange(len(hits))
        self._first[hits[::-1]] = order[::-1]
        hit = hits[self._first[hits] == order]
        block.counts[:] = 0
        block.counts[[MISSED, HIT, HITS, OUTSIDE]] = len(missing), len(hit), len(hits), len(ids) - len(known)
        if len(missing) + len(hit) > self.rows:
            self._slot_of[missing] = -1
            return False
        self._state[_STEP] += 1
        step, used = self._state[_STEP], len(hit) + len(missing)
        self._entries[hit, _LAST] = step
        block.missing[: len(missing)], block.used[: len(hit)] = missing, hit
        self._place(block.missing[: len(missing)], block.used[len(hit) : used], block)
        self._remember(step, block.used[:used])
        block.found[:] = -1
        block.found[inside] = self._slot_of[known]
        return True

    def _place(self, missing: Array, places: Array, block: Block) -> None:
        """Let missing rows have slots: first those that were never used."""
        filled = int(self._state[_FILLED])
        fresh = min(len(missing), self.rows - filled)
        places[:fresh] = np.arange(filled, filled + fresh)
        places[fresh:] = self._oldest(len(missing) - fresh)
        evicted = self._entries[places[fresh:], _ID]
        self._slot_of[evicted] = -1
        self._slot_of[missing] = places
        self._entries[places, _ID], self._entries[places, _LAST] = missing, self._state[_STEP]
        block.evicted[: len(evicted)] = evicted
        block.counts[FRESH] = fresh
        self._state[_FILLED] += fresh

    def _oldest(self, count: int) -> Array:
        """So many slots that were used longest ago, taken from the log."""
        taken: list[Array] = [np.empty(0, np.int64)]
        while count:
            head = int(self._state[_HEAD])
            part = np.arange(head, min(head + max(count, 1_024), int(self._state[_TAIL]))) % len(self._log)
            still = np.flatnonzero(self._entries[self._log[part], _LAST] == self._steps[part])[:count]
            taken.append(self._log[part][still].astype(np.int64))
            count -= len(still)
            self._state[_HEAD] += int(still[-1]) + 1 if not count else len(part)
        return np.concatenate(taken)

    def _remember(self, step: int, slots: Array) -> None:
        head, tail = int(self._state[_HEAD]), int(self._state[_TAIL])
        if tail - head + len(slots) > len(self._log):
            live = np.arange(head, tail) % len(self._log)
            kept = live[self._entries[self._log[live], _LAST] == self._steps[live]]
            tail = head + len(kept)
            self._log[live[: len(kept)]], self._steps[live[: len(kept)]] = self._log[kept], self._steps[kept]
        at = np.arange(tail, tail + len(slots)) % len(self._log)
        self._log[at], self._steps[at] = slots, step
        self._state[_TAIL] = tail + len(slots)
