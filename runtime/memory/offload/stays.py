"""From chosen gaps to residencies: when a tensor is on the device, and what each absence has to copy."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

from kgrun.runtime.memory.offload.records import Gap, Part, Problem, Stay, Tensor


def gaps_of(index: int, tensor: Tensor, steps: int, elapsed: list[float]) -> Iterator[Gap]:
    """The gaps of one tensor that are longer than a step.

    Args:
        elapsed: time before each step, and at the end.
    """

    def gap(touch: int, spans: list[tuple[int, int]], out: bool, back: bool) -> Gap:
        kept = tuple((low, high) for low, high in spans if high > low)
        return Gap(index, touch, kept, sum(elapsed[high] - elapsed[low] for low, high in kept), out, back)

    touches = tensor.touches
    dirty = bool(tensor.writes) or not tensor.persistent
    for number, (before, after) in enumerate(pairwise(touches)):
        if after - before > 1:
            yield gap(number, [(before + 1, after)], dirty, True)
    last = len(touches) - 1
    if tensor.persistent:
        yield gap(last, [(touches[-1] + 1, steps), (0, touches[0])], bool(tensor.writes), True)
    elif tensor.wanted:
        yield gap(last, [(touches[-1] + 1, steps)], True, False)


def stays(tensor: Tensor, left: Collection[int]) -> list[Stay]:
    """The residencies of a tensor that leaves the device after the touches numbered `left`, in order.

    Data are dirty when something wrote them since they were last on the host (off-02, S99): what comes from outside is
    on the host from the start, what a step makes is not. A persistent tensor that stays over the end of the run joins
    its last residency with the first of the next run.
    """
    touches, last = tensor.touches, len(tensor.touches) - 1
    cuts = [-1, *sorted(k for k in left if k != last), last]
    groups = [touches[a + 1 : b + 1] for a, b in pairwise(cuts)]
    border = last in left
    found = []
    for number, group in enumerate(groups):
        written = [t for t in group if t in tensor.writes]
        dirty, ready = bool(written), written[-1] if written else group[-1]
        comes, goes = number > 0, number < len(groups) - 1 or border
        if number == 0 and tensor.persistent:
            comes = border
            if not border and not written and any(t in tensor.writes for t in groups[-1]):
                dirty, ready = True, -1  # written at the end of the run before
        elif number == 0:
            dirty = True
        found.append(Stay(tuple(group), comes, goes, dirty, ready))
    return found


def parts_of(problem: Problem, chosen: Collection[int]) -> list[Part]:
    """The absences that the chosen gaps (indices) make."""
    left: dict[int, list[int]] = {}
    for index in chosen:
        gap = problem.gaps[index]
        left.setdefault(gap.tensor, []).append(gap.touch)
    steps = len(problem.ns)
    found = []
    for index, touches in sorted(left.items()):
        tensor = problem.tensors[index]
        parts = stays(tensor, touches)
        if parts[0].comes:
            found.append(Part(index, 0, parts[0].touches[0], None, True, None, 0))
        for number, stay in enumerate(parts):
            if not stay.goes:
                continue
            following = number + 1 if number + 1 < len(parts) else None
            end = steps if following is None else parts[following].touches[0]
            ready = stay.ready if stay.dirty else None
            found.append(Part(index, stay.touches[-1] + 1, end, ready, following is not None, number, following))
    return found
