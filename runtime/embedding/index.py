"""Which row of a table lies in which slot of the cache, and who goes when there is no room (S154).

A table of slots by row number takes four bytes a row, finds a row without probing and is looked up for a whole batch at
once. Among rows that no batch in hand needs, those go that were used longest ago: a log of the slots that each batch
used is read from its old end; an entry whose slot was used again since is passed over. The passes over a whole batch
are compiled where that is possible, and numpy's otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kgrun.graphs.errors import DoesNotFit
from kgrun.runtime.hostloops import native

Array = np.ndarray[Any, Any]
_LOG_ROWS = 4  # entries of the log for each row of the cache; it is cleaned when it is full


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

    `hit` are slots that it uses, each once, which the steps `before` used last; they begin `used`, which has room for
    the slots of missing rows. `hits` and `outside` count ids.
    """

    found: Array
    missing: Array
    used: Array
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
        # Slots and the steps that used them, the oldest first, from `_head` to `_tail`.
        self._log, self._steps = np.empty(_LOG_ROWS * rows, np.int32), np.empty(_LOG_ROWS * rows, np.int64)
        self._head = self._tail = 0
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
        used, hit = len(scan.missing) + len(scan.hit), len(scan.hit)
        if used > self.rows:
            self._slot_of[scan.missing] = -1
            self._last[scan.hit] = scan.before
            raise DoesNotFit(
                f"a batch uses {used:,} rows of a table of which {self.rows:,} are cached",
                code="KG408",
                help="enlarge the cache, or make the batch smaller",
                details={"used": used, "rows": self.rows},
            )
        self._step = step
        fresh = min(len(scan.missing), self.rows - self._filled)
        evicted = self._place(scan, fresh, step)
        self._filled += fresh
        slots = scan.used[:used]
        return Lookup(
            scan.found.reshape(ids.shape), scan.missing, slots[hit:], evicted, slots[hit + fresh :], slots,
            scan.hits, scan.outside,
        )  # fmt: skip

    def resident(self) -> tuple[Array, Array]:
        """Row numbers that are cached, and their slots."""
        slots = np.flatnonzero(self._id_of >= 0)
        return self._id_of[slots], slots

    def _scan(self, ids: Array, step: int) -> _Scan:
        """One pass over the ids; those that hit are of this step from now on."""
        if not self._compiled or ids.dtype.itemsize not in (4, 8):
            return self._scan_by_numpy(ids, step)
        found = np.empty_like(ids)
        missing, used, before = np.empty((3, len(ids)), np.int64)
        misses, slots, hits, outside = native.call(
            "scan", ids, found, self._slot_of, self._last, step, missing, used, before
        )
        return _Scan(found, missing[:misses], used, used[:slots], before[:slots], hits, outside)

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
        used = np.concatenate((hit, np.empty(len(missing), np.int64)))
        return _Scan(found, missing, used, used[: len(hit)], before, len(hits), len(ids) - len(known))

    def _place(self, scan: _Scan, fresh: int, step: int) -> Array:
        """Let missing rows have slots, `fresh` of which were never used, and log the step; the rows that leave."""
        found, missing, hit = scan.found, scan.missing, len(scan.hit)
        if self._compiled and found.dtype.itemsize in (4, 8):
            evicted: Array = np.empty(len(missing) - fresh, np.int64)
            self._head, self._tail = native.call(
                "place", found, missing, scan.used, hit, self._filled, fresh, evicted, self._slot_of, self._id_of,
                self._last, step, self._log, self._steps, self._head, self._tail,
            )  # fmt: skip
            return evicted
        places = scan.used[hit:]
        places[:fresh] = np.arange(self._filled, self._filled + fresh)
        places[fresh:] = self._oldest(len(missing) - fresh)
        evicted = self._id_of[places[fresh:]]
        self._slot_of[evicted] = -1
        self._slot_of[missing] = places
        self._id_of[places] = missing
        self._last[places] = step
        open_ = found < -1
        found[open_] = places[-2 - found[open_]]
        self._remember(step, scan.used)
        return evicted

    def _oldest(self, count: int) -> Array:
        """So many slots that were used longest ago, taken from the log."""
        taken: list[Array] = [np.empty(0, np.int64)]
        while count:
            part = slice(self._head, min(self._head + max(count, 1_024), self._tail))
            still = np.flatnonzero(self._last[self._log[part]] == self._steps[part])[:count]
            taken.append(self._log[part][still].astype(np.int64))
            count -= len(still)
            self._head = part.start + int(still[-1]) + 1 if not count else part.stop
        return np.concatenate(taken)

    def _remember(self, step: int, slots: Array) -> None:
        if self._tail + len(slots) > len(self._log):
            live = slice(self._head, self._tail)
            kept = self._last[self._log[live]] == self._steps[live]
            self._head, self._tail = 0, int(np.count_nonzero(kept))
            self._log[: self._tail], self._steps[: self._tail] = self._log[live][kept], self._steps[live][kept]
        end = self._tail + len(slots)
        self._log[self._tail : end], self._steps[self._tail : end] = slots, step
        self._tail = end
