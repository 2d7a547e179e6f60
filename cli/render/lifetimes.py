"""What a plan holds over time: live bytes a step, the peak's contributors, bytes by class."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from kgrun.graphs.records import dataclass
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
    """Aligned bytes and number of the buffers of one class; dynamic ones share bytes, so theirs do not add up.

    Attributes:
        regions: where they lie; what waits on the host between uses is dynamic, whatever its class.
    """

    memory_class: MemoryClass
    regions: tuple[str, ...]
    nbytes: int
    count: int


def bytes_by_class(placements: Sequence[Placement]) -> list[ClassBytes]:
    """One row a class that has buffers, in the order of MemoryClass."""
    groups: dict[MemoryClass, list[Placement]] = {}
    for place in placements:
        groups.setdefault(place.memory_class, []).append(place)
    return [
        ClassBytes(each, tuple(sorted({p.space for p in of})[::-1]), sum(p.aligned for p in of), len(of))
        for each in MemoryClass
        if (of := groups.get(each))
    ]
