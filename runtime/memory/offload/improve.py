"""Improve a choice of gaps by local search: give one back, take one, or exchange two, and keep what is no worse.

The moves are drawn at random with a fixed seed, and simulations are counted, not timed: equal problems get equal
schedules.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence

from kgrun.graphs.records import dataclass
from kgrun.runtime.memory.offload.records import Part, Problem, Schedule
from kgrun.runtime.memory.offload.simulate import simulate
from kgrun.runtime.memory.offload.stays import parts_of

Cost = tuple[float, int]
WORK = 60_000  # steps and parts to simulate in all: a second or less
MOST = 600  # simulations
PATIENCE = 150  # simulations without a better run
ENOUGH = 1.002  # times the time of the steps: not worth a search


@dataclass(frozen=True, slots=True)
class Candidate:
    """A choice of gaps, its simulated run and what that costs: nanoseconds, then bytes copied."""

    chosen: tuple[int, ...]
    schedule: Schedule
    cost: Cost


def evaluate(problem: Problem, chosen: Collection[int], capacity: int) -> Candidate | None:
    """The candidate of a choice; None where some step does not fit."""
    schedule = simulate(problem, parts_of(problem, chosen), capacity)
    if schedule is None:
        return None
    copied = copied_bytes(problem, [m.part for m in schedule.moves])
    return Candidate(tuple(sorted(chosen)), schedule, (round(schedule.total_ns, 3), copied))


def copied_bytes(problem: Problem, parts: Sequence[Part]) -> int:
    """Bytes that parts move over the link, both ways."""
    return sum(problem.tensors[p.tensor].nbytes * ((p.ready is not None) + p.back) for p in parts)


def improve(problem: Problem, start: Candidate, capacity: int, kept: Collection[int]) -> Candidate:
    """The best candidate found from `start` on; the gaps `kept` stay chosen."""
    best = current = start
    size = len(problem.ns) + len(start.schedule.moves) + 1
    chance = random.Random(0)
    draw = _draws(problem, frozenset(kept), chance)
    last = 0
    for number in range(min(MOST, WORK // size)):
        if best.cost[0] <= ENOUGH * best.schedule.compute_ns or number - last > PATIENCE:
            break
        changed = draw(set(current.chosen))
        found = None if changed is None else evaluate(problem, changed, capacity)
        if found is None or found.cost[0] > current.cost[0] * 1.001:
            continue
        current = found
        if current.cost < best.cost:
            best, last = current, number
        elif current.cost[0] > best.cost[0] * 1.003:
            current = best
    return best


def _draws(problem: Problem, kept: frozenset[int], chance: random.Random) -> Callable[[set[int]], set[int] | None]:
    """A function that changes a choice a little."""
    gaps = range(len(problem.gaps))

    def draw(chosen: set[int]) -> set[int] | None:
        free = sorted(chosen - kept)
        others = sorted(set(gaps) - chosen)
        kind = chance.random()
        if kind < 0.4 and free:
            return chosen - {chance.choice(free)}
        if kind < 0.6 and others:
            return chosen | {chance.choice(others)}
        if not free or not others:
            return None
        changed = (chosen - set(chance.sample(free, min(len(free), 1 + (kind > 0.9))))) | {chance.choice(others)}
        return changed

    return draw
