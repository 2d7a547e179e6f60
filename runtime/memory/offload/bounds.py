"""What no transfer schedule can beat: the steps alone, the bytes that must cross the link, and offload in fractions.

The linear program lets every tensor leave and come back in fractions, at any time, so each real schedule is one of its
points and its optimum is a bound. Time is cut into slots: the wait before each step, whose length is free, and the step
itself. It is solved by HiGHS through scipy where that is installed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from kgrun.runtime.memory.offload.records import Bounds, Gap, Problem
from kgrun.runtime.memory.offload.simulate import full_load

if TYPE_CHECKING:
    from collections.abc import Iterator

LARGEST = 25_000  # variables: some ten seconds


def bounds_of(problem: Problem, reached_ns: float | None = None, largest: int = LARGEST) -> Bounds:
    """The bounds of a problem; the linear program's is None, with the reason, where it was not solved.

    Args:
        reached_ns: what a schedule takes. Where that is a bound already, the program need not be solved.
        largest: variables up to which it is.
    """
    into, out = unavoidable_bytes(problem)
    rates = problem.rates
    simple = max(sum(problem.ns), into * 1e9 / rates.in_bytes_per_s, out * 1e9 / rates.out_bytes_per_s)
    if reached_ns is not None and reached_ns <= simple + 1:
        lp: float | None = reached_ns
        note: str | None = "met by the schedule"
    else:
        lp, note = fractional_ns(problem, largest)
    return Bounds(
        compute_ns=round(sum(problem.ns)),
        in_ns=round(into * 1e9 / rates.in_bytes_per_s),
        out_ns=round(out * 1e9 / rates.out_bytes_per_s),
        lp_ns=None if lp is None else round(lp),
        lp_note=note,
    )


def unavoidable_bytes(problem: Problem) -> tuple[int, int]:
    """Bytes that every schedule copies in, and out: what is over the capacity in some step, less what need not move.

    In a step that holds more than the capacity, that much is away; what leaves without a copy need not go out, what
    nobody reads again need not come in.
    """
    import numpy as np

    over = full_load(problem) - problem.capacity
    free_in, free_out = np.zeros_like(over), np.zeros_like(over)
    own = _by_tensor(problem)
    for gap in problem.gaps:
        held = problem.tensors[gap.tensor].held
        must_copy = _ready(problem, gap) is not None and not _cleaned_by(problem, gap, own[gap.tensor])
        for low, high in gap.spans:
            if not gap.back:
                free_in[low:high] += held
            if not must_copy:
                free_out[low:high] += held
    if not len(over):
        return 0, 0
    return max(int((over - free_in).max()), 0), max(int((over - free_out).max()), 0)


def _ready(problem: Problem, gap: Gap) -> int | None:
    """The step after which a copy out for this gap may start; −1 where an earlier run wrote; None: the host has it."""
    tensor = problem.tensors[gap.tensor]
    written = [t for t in tensor.touches[: gap.touch + 1] if t in tensor.writes]
    if written:
        return written[-1]
    if not tensor.persistent:
        return tensor.touches[0]
    return -1 if tensor.writes else None


def _by_tensor(problem: Problem) -> dict[int, list[Gap]]:
    found: dict[int, list[Gap]] = {}
    for gap in problem.gaps:
        found.setdefault(gap.tensor, []).append(gap)
    return found


def _cleaned_by(problem: Problem, gap: Gap, own: list[Gap]) -> list[Gap]:
    """The gaps before this one, round the run, since the last write: what left in one need not be copied again."""
    tensor = problem.tensors[gap.tensor]
    by_touch = {g.touch: g for g in own}
    last = len(tensor.touches) - 1
    order = list(range(gap.touch, -1, -1))
    if tensor.persistent:
        order += range(last, gap.touch, -1)
    found = []
    for touch in order:
        if tensor.touches[touch] in tensor.writes:
            break
        before = by_touch.get(touch - 1 if touch else last)
        if before is not None and before is not gap and (touch or tensor.persistent):
            found.append(before)
    return found


def fractional_ns(problem: Problem, largest: int = LARGEST) -> tuple[float | None, str | None]:
    """Nanoseconds of the best run with fractional offload; None and the reason where it was not computed.

    Solved through scipy's HiGHS (Huangfu and Hall, 2018).
    """
    try:
        from scipy.optimize import linprog
        from scipy.sparse import csr_matrix
    except ImportError:
        return None, "scipy is not installed"
    over = full_load(problem) > problem.capacity
    gaps = [g for g in problem.gaps if any(over[low:high].any() for low, high in g.spans)]
    if not gaps:
        return float(sum(problem.ns)), None
    program = _Rows(problem, gaps)
    if program.variables > largest:
        return None, f"it has {program.variables:,} variables"
    program.build()
    matrix = csr_matrix(
        (program.values, (program.row_of, program.column_of)), shape=(len(program.limits), program.variables)
    )
    costs = [1.0] * program.waits + [0.0] * (program.variables - program.waits)
    found = linprog(
        costs,
        A_ub=matrix,
        b_ub=program.limits,
        bounds=(0, None),
        method="highs",
    )
    if found.status != 0:
        return None, "no schedule exists" if found.status == 2 else f"the solver gave up: {found.message}"
    return float(found.fun) * program.unit + sum(problem.ns), None


class _Rows:
    """Rows A·x ≤ b of the program. Slot 2j is the wait before step j, slot 2j + 1 the step; x starts with the waits.

    The last slot is the wait for copies after the last step.

    For each gap there are cumulative shares that have left and that have come back by the end of a slot. The load is
    held under the capacity at the start and at the end of each step.
    """

    def __init__(self, problem: Problem, gaps: list[Gap]) -> None:
        self.problem, self.gaps = problem, gaps
        self.steps = len(problem.ns)
        self.unit = max(sum(problem.ns) / max(self.steps, 1), 1.0)  # of time, so that numbers are near one
        self.row_of: list[int] = []
        self.column_of: list[int] = []
        self.values: list[float] = []
        self.limits: list[float] = []
        self.waits = self.variables = self.steps + 1
        self.left: list[dict[int, int]] = []  # slot -> variable, of what is copied out
        self.back: list[dict[int, int]] = []  # slot -> variable, of what is copied in
        self.drop: list[int | None] = []  # variable of what leaves without a copy
        self.cleaned: list[list[int]] = []  # numbers of the gaps that let it; none: nothing need
        number = {(g.tensor, g.touch): i for i, g in enumerate(gaps)}
        own = _by_tensor(problem)
        for gap in gaps:
            ready, before = _ready(problem, gap), _cleaned_by(problem, gap, own[gap.tensor])
            known = [number.get((g.tensor, g.touch)) for g in before]
            border = self._border(gap)
            out_end = 2 * self.steps if border or not gap.back else 2 * gap.spans[0][1]
            # A gap before that the program does not have could be used all the same: then nothing limits what drops.
            self.cleaned.append([] if None in known else [k for k in known if k is not None])
            dropped = ready is None or bool(before)
            self.drop.append(self._new() if dropped else None)
            self.left.append({} if ready is None else self._slots(2 * ready + 2, out_end))
            self.back.append(self._slots(*self._in_slots(gap)) if gap.back else {})

    def _border(self, gap: Gap) -> bool:
        tensor = self.problem.tensors[gap.tensor]
        return tensor.persistent and gap.touch == len(tensor.touches) - 1

    def _in_slots(self, gap: Gap) -> tuple[int, int]:
        touches = self.problem.tensors[gap.tensor].touches
        if self._border(gap):
            return 0, 2 * touches[0]
        return 2 * touches[gap.touch] + 2, 2 * touches[gap.touch + 1]

    def _slots(self, first: int, last: int) -> dict[int, int]:
        return {slot: self._new() for slot in range(max(first, 0), last + 1)}

    def _new(self) -> int:
        self.variables += 1
        return self.variables - 1

    def _row(self, terms: list[tuple[int, float]], limit: float) -> None:
        row = len(self.limits)
        for column, value in terms:
            self.row_of.append(row)
            self.column_of.append(column)
            self.values.append(value)
        self.limits.append(limit)

    def build(self) -> None:
        """All rows."""
        for number, gap in enumerate(self.gaps):
            self._gap_rows(number, gap)
        self._link_rows(self.left, self.problem.rates.out_bytes_per_s)
        self._link_rows(self.back, self.problem.rates.in_bytes_per_s)
        self._load_rows()

    def _gap_rows(self, number: int, gap: Gap) -> None:
        for shares in (self.left[number], self.back[number]):
            found = sorted(shares)
            for before, after in pairwise(found):
                self._row([(shares[before], 1.0), (shares[after], -1.0)], 0.0)
            if found:
                self._row([(shares[found[-1]], 1.0)], 1.0)
        gone = self._gone(number, 2 * self.steps)
        self._row(gone, 1.0)
        drop, cleaned = self.drop[number], self.cleaned[number]
        if drop is not None and cleaned and self.left[number]:
            gone_before = [term for k in cleaned for term in self._gone(k, 2 * self.steps)]
            self._row([(drop, 1.0), *((c, -v) for c, v in gone_before)], 0.0)
        back = self.back[number]
        if gap.back and back:  # all that has left is back when it is needed
            self._row([*gone, (back[max(back)], -1.0)], 0.0)
        elif gap.back:
            self._row(gone, 0.0)  # needed in the very first step
        if not self._border(gap):
            for slot, share in back.items():  # nothing comes back before it has left
                self._row([(share, 1.0), *((c, -v) for c, v in self._gone(number, slot))], 0.0)

    def _gone(self, number: int, slot: int) -> list[tuple[int, float]]:
        """The share that has left by the end of `slot`."""
        drop, left = self.drop[number], self.left[number]
        known = min(slot, max(left)) if left else slot
        return [(found, 1.0) for found in (drop, left.get(known)) if found is not None]

    def _link_rows(self, shares: list[dict[int, int]], bytes_per_s: float) -> None:
        moved: dict[int, list[tuple[int, float]]] = {}
        for gap, slots in zip(self.gaps, shares, strict=True):
            cost = self.problem.tensors[gap.tensor].nbytes * 1e9 / bytes_per_s / self.unit
            for slot, share in slots.items():
                terms = moved.setdefault(slot, [])
                terms.append((share, cost))
                if slot - 1 in slots:
                    terms.append((slots[slot - 1], -cost))
        for slot, terms in moved.items():
            if slot % 2:
                self._row(terms, self.problem.ns[slot // 2] / self.unit)
            else:
                self._row([*terms, (slot // 2, -1.0)], 0.0)

    def _load_rows(self) -> None:
        load = full_load(self.problem)
        away: list[list[tuple[int, float]]] = [[] for _ in range(2 * self.steps)]
        for number, gap in enumerate(self.gaps):
            held = float(self.problem.tensors[gap.tensor].held)
            for slot in self._away_slots(gap):
                away[slot] += [(c, -v * held) for c, v in self._gone_at(number, gap, slot)]
                back = self._back_by(number, gap, slot)
                away[slot] += [] if back is None else [(back, held)]
        scale = float(max(self.problem.capacity, 1))
        for slot, terms in enumerate(away):
            over = float(load[slot // 2] - self.problem.capacity)
            if over > 0:
                self._row([(c, v / scale) for c, v in terms], -over / scale)

    def _away_slots(self, gap: Gap) -> Iterator[int]:
        """Points at which it may be away: slot 2j stands for the start of step j, 2j + 1 for its end."""
        for low, high in gap.spans:
            yield from range(2 * low, 2 * high)

    def _gone_at(self, number: int, gap: Gap, slot: int) -> list[tuple[int, float]]:
        head = self._border(gap) and slot // 2 < self.problem.tensors[gap.tensor].touches[0]
        return self._gone(number, 2 * self.steps if head else slot)

    def _back_by(self, number: int, gap: Gap, slot: int) -> int | None:
        """The variable of the share that has come back by then."""
        if self._border(gap) and slot // 2 > self.problem.tensors[gap.tensor].touches[-1]:
            return None
        return self.back[number].get(slot)
