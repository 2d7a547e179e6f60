"""Which row of a table lies in which slot of the cache, and who goes when there is no room (S154).

A table of slots by row number takes four bytes a row, finds a row without probing and is looked up for a whole batch at
once. Among rows that no batch in hand needs, those go that were used longest ago: a log of the slots that each batch
used is read from its old end; an entry whose slot was used again since is passed over. The passes over a whole batch
are compiled where that is possible, and numpy's otherwise.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from kgrun.graphs.errors import DoesNotFit
from kgrun.runtime.hostloops import native

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


@dataclass(frozen=True, slots=True)
class _Scan:
    """What one pass over a batch finds: `found` has slots, -1 outside the table and -2 - i for row `missing[i]`.

    `hit` are slots that it uses, each once, which the steps `before` used last; `hits` and `outside` count ids.
    """

    found: Array
    missing: Array
    hit: Array
    before: Array
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
        self._compiled = native.available()

    def lookup(self, ids: Array) -> Lookup:
        """Find a slot for every id of a batch, and make room where rows are missing.

        Raises:
            DoesNotFit: KG408 where the batch alone has more rows than the cache; nothing has changed then.
        """
        step = self._step + 1
        scan = self._scan(np.ascontiguousarray(ids).reshape(-1), step)
        fresh = min(len(scan.missing), self.rows - self._filled)
        freed = self._oldest(len(scan.missing) - fresh)
        if freed is None:
            self._slot_of[scan.missing] = -1
            self._last[scan.hit] = scan.before
            used = len(scan.missing) + len(scan.hit)
            raise DoesNotFit(
                f"a batch uses {used:,} rows of a table of which {self.rows:,} are cached",
                code="KG408",
                help="enlarge the cache, or make the batch smaller",
                details={"used": used, "rows": self.rows},
            )
        self._step = step
        places = np.concatenate((np.arange(self._filled, self._filled + fresh), freed)) if fresh else freed
        self._filled += fresh
        evicted = self._place(scan, places, fresh, step)
        used_slots = np.concatenate((scan.hit, places))
        self._remember(step, used_slots)
        return Lookup(
            scan.found.reshape(ids.shape), scan.missing, places, evicted, freed, used_slots, scan.hits, scan.outside
        )

    def resident(self) -> tuple[Array, Array]:
        """Row numbers that are cached, and their slots."""
        slots = np.flatnonzero(self._id_of >= 0)
        return self._id_of[slots], slots

    def _scan(self, ids: Array, step: int) -> _Scan:
        """One pass over the ids; those that hit are of this step from now on."""
        if not self._compiled or ids.dtype.itemsize not in (4, 8):
            return self._scan_by_numpy(ids, step)
        found = np.empty_like(ids)
        missing, hit, before = np.empty((3, len(ids)), np.int64)
        misses, slots, hits, outside = native.call(
            "scan", ids, found, self._slot_of, self._last, step, missing, hit, before
        )
        return _Scan(found, missing[:misses], hit[:slots], before[:slots], hits, outside)

    def _scan_by_numpy(self, ids: Array, step: int) -> _Scan:
        inside = (ids >= 0) & (ids < self.vocabulary)
        known = ids if inside.all() else ids[inside]
        slots = self._slot_of[known]
        absent = slots < 0
        rows, hits = known[absent], slots[~absent]
        # Each once: the last to sign for a row, or a slot, keeps it.
        signs = -2 - np.arange(len(rows), dtype=np.int32)
        self._slot_of[rows] = signs
        missing = rows[self._slot_of[rows] == signs].astype(np.int64)
        self._slot_of[missing] = -2 - np.arange(len(missing), dtype=np.int32)
        order = np.arange(len(hits))
        self._first[hits] = order
        hit = hits[self._first[hits] == order].astype(np.int64)
        before = self._last[hit]
        self._last[hit] = step
        found = np.full(len(ids), -1, ids.dtype)
        found[inside] = self._slot_of[known]
        return _Scan(found, missing, hit, before, len(hits), len(ids) - len(known))

    def _place(self, scan: _Scan, places: Array, fresh: int, step: int) -> Array:
        """Let missing rows have their places, all but the first `fresh` of which are taken; the rows that leave."""
        found, missing = scan.found, scan.missing
        if self._compiled and found.dtype.itemsize in (4, 8):
            evicted: Array = np.empty(len(places) - fresh, np.int64)
            native.call("place", found, missing, places, fresh, evicted, self._slot_of, self._id_of, self._last, step)
            return evicted
        evicted = self._id_of[places[fresh:]]
        self._slot_of[evicted] = -1
        self._slot_of[missing] = places
        self._id_of[places] = missing
        self._last[places] = step
        open_ = found < -1
        found[open_] = places[-2 - found[open_]]
        return evicted

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
