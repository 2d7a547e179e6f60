"""A run with transfers, simulated: when each copy starts and ends, which step waits for it, how long it all takes.

The device computes one step after the other; each direction of the link carries one copy at a time, in order. A copy
out starts as soon as the data are final, even before their last reader has run. A copy in starts as soon as the link is
free and its bytes fit beside everything that is planned until the step that needs them (just in time, pulled earlier
while memory allows). A step waits for what it needs and for room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kgrun.runtime.memory.offload.records import Move, Part, Problem, Schedule

if TYPE_CHECKING:
    import numpy as np

    Loads = np.ndarray[Any, Any]

_LOOK_AHEAD = 16  # copies in behind one that cannot start yet


def full_load(problem: Problem, *, outputs_throughout: bool = False) -> Loads:
    """Bytes held in each step when nothing leaves the device.

    Args:
        outputs_throughout: outputs hold their bytes from the start, as static memory does.
    """
    import numpy as np

    steps = len(problem.ns)
    change = np.zeros(steps + 1, np.int64)
    for tensor in problem.tensors:
        first = 0 if tensor.persistent or (tensor.wanted and outputs_throughout) else tensor.touches[0]
        last = steps if tensor.persistent or tensor.wanted else tensor.touches[-1] + 1
        change[first] += tensor.held
        change[last] -= tensor.held
    return problem.fixed + np.cumsum(change[:steps])


def simulate(
    problem: Problem, parts: Sequence[Part], capacity: int | None = None, *, prefetch: bool = True
) -> Schedule | None:
    """The run in which `parts` are absent; None where some step does not fit even so.

    Args:
        capacity: bytes; `problem.capacity` by default.
        prefetch: False lets a copy in start only when the step before its consumer has ended (the seeds' way).
    """
    return _Run(problem, parts, problem.capacity if capacity is None else capacity, prefetch).simulate()


class _Run:
    """The state of one simulation. Times are nanoseconds, indices of copies those of `parts`."""

    def __init__(self, problem: Problem, parts: Sequence[Part], capacity: int, prefetch: bool) -> None:
        import numpy as np

        self.problem, self.parts, self.capacity, self.prefetch = problem, parts, capacity, prefetch
        self.steps = len(problem.ns)
        self.load = full_load(problem)
        for part in parts:
            self.load[part.start : part.end] -= problem.tensors[part.tensor].held
        self.elapsed = np.concatenate(([0.0], np.cumsum(np.asarray(problem.ns, float))))
        self.now = 0.0
        self.out_free = self.in_free = 0.0
        self.out_times: list[tuple[float, float] | None] = [None] * len(parts)
        self.in_times: list[tuple[float, float] | None] = [None] * len(parts)
        self.released = [part.start for part in parts]
        self.fetched = [part.end for part in parts]
        self.leaving: deque[int] = deque()  # copies out that hold bytes, by their end
        order = sorted((i for i, p in enumerate(parts) if p.back), key=lambda i: (parts[i].end, parts[i].start))
        self.waiting: deque[int] = deque(order)  # copies in, by the step that needs them
        self.arrivals: dict[int, float] = {}  # when all that a step needs has come
        self.ready: dict[int, list[int]] = {}
        for i, part in enumerate(parts):
            if part.ready is not None:
                self.ready.setdefault(part.ready, []).append(i)
        for found in self.ready.values():
            found.sort(key=lambda i: (parts[i].start, parts[i].end))

    def simulate(self) -> Schedule | None:
        starts = []
        self._start_out(-1)
        for step, ns in enumerate(self.problem.ns):
            self._release(step)
            if not self._make_room(step):
                return None
            self._start_in(step, ns)
            self.now = max(self.now, self.arrivals.get(step, 0.0))
            starts.append(self.now)
            self.now += ns
            self._start_out(step)
        moves = tuple(
            Move(part, out, back, released, fetched)
            for part, out, back, released, fetched in zip(
                self.parts, self.out_times, self.in_times, self.released, self.fetched, strict=True
            )
        )
        total = max(self.now, self.out_free, self.in_free)
        return Schedule(moves, tuple(starts), total, float(self.elapsed[-1]))

    def _held(self, i: int) -> int:
        return self.problem.tensors[self.parts[i].tensor].held

    def _nbytes(self, i: int) -> int:
        return self.problem.tensors[self.parts[i].tensor].nbytes

    def _start_out(self, step: int) -> None:
        """Issue the copies out of what step `step` has finished; their bytes are taken until they have ended."""
        import numpy as np

        for i in self.ready.get(step, ()):
            part = self.parts[i]
            start = max(self.now, self.out_free)
            self.out_free = end = start + self.problem.rates.out_ns(self._nbytes(i))
            self.out_times[i] = (start, end)
            # When later steps start if none waits: a wait only lets them start later, and the copy hold fewer.
            passed = end - self.now + self.elapsed[step + 1]
            ended = int(np.searchsorted(self.elapsed[: self.steps], passed - 1e-3))
            self.released[i] = min(max(ended, part.start), part.end)
            if self.released[i] > part.start:
                self.load[part.start : self.released[i]] += self._held(i)
                self.leaving.append(i)

    def _release(self, step: int) -> None:
        """Give free what has left the device by now."""
        while self.leaving:
            i = self.leaving[0]
            times = self.out_times[i]
            assert times is not None
            if times[1] > self.now:
                return
            self.leaving.popleft()
            self._free_from(i, step)

    def _free_from(self, i: int, step: int) -> None:
        begin = max(step, self.parts[i].start)
        if begin < self.released[i]:
            self.load[begin : self.released[i]] -= self._held(i)
            self.released[i] = begin

    def _make_room(self, step: int) -> bool:
        """Wait for copies out until the step fits."""
        while self.load[step] > self.capacity:
            if not self.leaving:
                return False
            i = self.leaving.popleft()
            times = self.out_times[i]
            assert times is not None
            self.now = max(self.now, times[1])
            self._free_from(i, step)
        return True

    def _start_in(self, step: int, ns: float) -> None:
        """Start copies in while step `step` waits or runs: all that it needs, then what fits."""
        while self.waiting and self.parts[self.waiting[0]].end <= step:
            self._fetch(self.waiting.popleft(), step)
        if not self.prefetch:
            return
        skipped: list[int] = []
        begun = max(self.now, self.arrivals.get(step, 0.0))
        while self.waiting and len(skipped) < _LOOK_AHEAD:
            i = self.waiting[0]
            part = self.parts[i]
            out = self.out_times[i]
            if part.start > step or (part.ready is not None and (out is None or self.released[i] > step)):
                skipped.append(self.waiting.popleft())
                continue
            if max(self.in_free, self.now, out[1] if out else 0.0) > begun + ns:
                break
            if self.load[step : part.end].max() + self._held(i) > self.capacity:
                break
            self.waiting.popleft()
            self.load[step : part.end] += self._held(i)
            self._fetch(i, step)
        self.waiting.extendleft(reversed(skipped))

    def _fetch(self, i: int, step: int) -> None:
        out = self.out_times[i]
        start = max(self.in_free, self.now, out[1] if out is not None else 0.0)
        self.in_free = end = start + self.problem.rates.in_ns(self._nbytes(i))
        self.in_times[i] = (start, end)
        self.fetched[i] = step
        needed_by = self.parts[i].end
        self.arrivals[needed_by] = max(self.arrivals.get(needed_by, 0.0), end)
