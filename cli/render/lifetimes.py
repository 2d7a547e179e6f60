"""What a plan holds over time: live bytes a step, the peak's contributors, bytes by class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from kgrun.runtime.memory.plan_types import MemoryPlan, Placement
from kgrun.runtime.program import MemoryClass


def live_dynamic_bytes(plan: MemoryPlan, steps: int) -> list[int]:
    """Aligned bytes of the dynamic buffers that hold data in each of `steps` steps."""
    change = [0] * (steps + 1)
    for place in plan.placements:
        for first, last in place.spans if place.space == "dynamic" else ():
            if first < steps:
                change[first] += place.aligned
                change[min(last, steps - 1) + 1] -= place.aligned
    return list(accumulate(change[:steps]))


def live_at(plan: MemoryPlan, step: int) -> list[Placement]:
    """Dynamic placements that hold data in `step`, largest first."""
    dynamic = (p for p in plan.placements if p.space == "dynamic")
    live = (p for p in dynamic if any(first <= step <= last for first, last in p.spans))
    return sorted(live, key=lambda p: (-p.aligned, p.name))


@dataclass(frozen=True, slots=True)
class ClassBytes:
    """Aligned bytes and number of the buffers of one class; dynamic ones share bytes, so theirs do not add up."""

    memory_class: MemoryClass
    nbytes: int
    count: int


def bytes_by_class(placements: Sequence[Placement]) -> list[ClassBytes]:
    """One row a class that has buffers, in the order of MemoryClass."""
    sums: dict[MemoryClass, tuple[int, int]] = {}
    for place in placements:
        nbytes, count = sums.get(place.memory_class, (0, 0))
        sums[place.memory_class] = (nbytes + place.aligned, count + 1)
    return [ClassBytes(each, *sums[each]) for each in MemoryClass if each in sums]
