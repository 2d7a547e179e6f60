"""Which row of a table lies in which slot of the cache, and who goes when there is no room (S154).

A table of slots by row number takes four bytes a row, finds a row without probing and is looked up for a whole batch at
once. Among rows that no batch in hand needs, those go that were used longest ago: a log of the slots that each batch
used is read from its old end; an entry whose slot was used again since is passed over.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from kgrun.graphs.errors import DoesNotFit

Array = np.ndarray[Any, Any]
_LOG_ROWS = 4  # the log is cleaned when it is so many times as long as the cache


@dataclass(frozen=True, slots=True)
class Lookup:
    """One batch against the cache.

    Attributes:
        slots: of the batch's ids, in their shape and dtype; -1 for ids outside the table.
        missing: row numbers to load, each once, into `places`.
        evicted: row numbers that made room, from `freed`; each of these slots is among `places`.
        used: slots that the batch uses, each once.
        hits, outside: ids that were there already, and ids outside the table.
    """

    slots: Array
    missing: Array
    places: Array
    evicted: Array
    freed: Array
    used: Array
    hits: int
    outside: int


class RowIndex:
    """The index of a cache of `rows` slots over tables of `vocabulary` rows."""

    def __init__(self, vocabulary: int, rows: int) -> None:
        self.vocabulary, self.rows = vocabulary, rows
        self._slot_of = np.full(vocabulary, -1, np.int32)
        self._id_of = np.full(rows, -1, np.int64)
        self._last = np.zeros(rows, np.int64)  # the step that used a slot last
        self._first = np.empty(rows, np.int64)  # scratch
        self._log: deque[tuple[int, Array]] = deque()
        self._logged = 0
        self._filled = 0  # slots from here on were never used
        self._step = 0

    def lookup(self, ids: Array) -> Lookup:
        """Find a slot for every id of a batch, and make room where rows are missing.

        Raises:
            DoesNotFit: KG408 where the batch alone has more rows than the cache; nothing has changed then.
        """
        step = self._step + 1
        flat = ids.reshape(-1)
        inside = (flat >= 0) & (flat < self.vocabulary)
        known = flat if inside.all() else flat[inside]
        slots = self._slot_of[known]
        absent = slots < 0
        hit = slots[~absent].astype(np.int64)
        missing = self._distinct_rows(known[absent])
        before = self._last[hit]
        self._last[hit] = step
        fresh = min(len(missing), self.rows - self._filled)
        freed = self._oldest(len(missing) - fresh)
        if freed is None:
            self._last[hit] = before
            used = len(missing) + len(self._distinct_slots(hit))
            raise DoesNotFit(
                f"a batch uses {used:,} rows of a table of which {self.rows:,} are cached",
                code="KG408",
                help="enlarge the cache, or make the batch smaller",
                details={"used": used, "rows": self.rows},
            )
        self._step = step
        evicted = self._id_of[freed]
        self._slot_of[evicted] = -1
        places = np.concatenate((np.arange(self._filled, self._filled + fresh), freed))
        self._filled += fresh
        self._slot_of[missing] = places
        self._id_of[places] = missing
        self._last[places] = step
        used_slots = np.concatenate((self._distinct_slots(hit), places))
        self._remember(step, used_slots)
        found = np.full(flat.shape, -1, ids.dtype)
        found[inside] = self._slot_of[known]
        return Lookup(
            found.reshape(ids.shape), missing, places, evicted, freed, used_slots, len(hit), len(flat) - len(known)
        )

    def resident(self) -> tuple[Array, Array]:
        """Row numbers that are cached, and their slots."""
        slots = np.flatnonzero(self._id_of >= 0)
        return self._id_of[slots], slots

    def _distinct_rows(self, rows: Array) -> Array:
        """`rows`, none of them cached, each once: the last to sign for a row keeps it. Leaves the index as it was."""
        signs = -2 - np.arange(len(rows), dtype=np.int32)
        self._slot_of[rows] = signs
        kept: Array = rows[self._slot_of[rows] == signs].astype(np.int64)
        self._slot_of[rows] = -1
        return kept

    def _distinct_slots(self, slots: Array) -> Array:
        order = np.arange(len(slots))
        self._first[slots] = order
        kept: Array = slots[self._first[slots] == order]
        return kept

    def _oldest(self, count: int) -> Array | None:
        """So many slots that were used longest ago; None, and nothing changed, where there are not so many."""
        taken: list[tuple[int, Array]] = []
        read: list[tuple[int, Array]] = []
        found = 0
        while found < count and self._log:
            read.append(self._log.popleft())
            step, slots = read[-1]
            still = slots[self._last[slots] == step]
            taken.append((step, still))
            found += len(still)
        if found < count:
            self._log.extendleft(reversed(read))
            return None
        self._logged -= sum(len(slots) for _, slots in read)
        if found > count:
            step, slots = taken.pop()
            keep = len(slots) - (found - count)
            self._log.appendleft((step, slots[keep:]))
            self._logged += found - count
            taken.append((step, slots[:keep]))
        return np.concatenate([slots for _, slots in taken]) if taken else np.empty(0, np.int64)

    def _remember(self, step: int, slots: Array) -> None:
        self._log.append((step, slots))
        self._logged += len(slots)
        if self._logged > _LOG_ROWS * self.rows:
            kept = ((s, slots[self._last[slots] == s]) for s, slots in self._log)
            self._log = deque((s, slots) for s, slots in kept if len(slots))
            self._logged = sum(len(slots) for _, slots in self._log)
