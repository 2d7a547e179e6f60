"""Which gaps to use: the portfolio of orders that planned offload tries, and the greedy rule of the older runtimes.

An order ranks gaps by what leaving costs; gaps are taken from its front while some step within them is over capacity,
and given back from its end where there is room after all. Belady's rule (longest until the next use) is one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kgrun.runtime.memory.offload.improve import Candidate, evaluate, improve
from kgrun.runtime.memory.offload.records import Gap, Problem, Schedule
from kgrun.runtime.memory.offload.simulate import full_load

STARTS = 2  # candidates that local search goes on from
ANY = 8  # candidates that are tried for their packing alone
Order = Callable[[Problem, Gap], tuple[float, ...]]

SHRINK = (1.0, 0.97, 0.93, 0.88, 0.8, 0.7, 0.5)  # shares of the capacity aimed at, so that copies in flight have room


def copy_ns(problem: Problem, gap: Gap) -> float:
    """Time on the link that a gap costs."""
    nbytes = problem.tensors[gap.tensor].nbytes
    out = problem.rates.out_ns(nbytes) if gap.out else 0.0
    return out + (problem.rates.in_ns(nbytes) if gap.back else 0.0)


def _surplus(problem: Problem, gap: Gap) -> tuple[float, ...]:
    """Bytes times the time beyond the copies."""
    return (problem.tensors[gap.tensor].held * (gap.idle_ns - copy_ns(problem, gap)),)


def _longest(problem: Problem, gap: Gap) -> tuple[float, ...]:
    return (gap.idle_ns, problem.tensors[gap.tensor].held)


def _yield(problem: Problem, gap: Gap) -> tuple[float, ...]:
    """Byte-time freed for each nanosecond of the link, among gaps that hide their copies."""
    cost = copy_ns(problem, gap)
    hidden = gap.idle_ns >= cost
    return (hidden, gap.idle_ns * problem.tensors[gap.tensor].held / max(cost, 1.0))


def _cheapest(problem: Problem, gap: Gap) -> tuple[float, ...]:
    """Clean tensors first: they leave for nothing."""
    return (not gap.out, gap.idle_ns - copy_ns(problem, gap))


ORDERS: tuple[tuple[str, Order], ...] = (
    ("longest", _longest),
    ("surplus", _surplus),
    ("yield", _yield),
    ("cheapest", _cheapest),
)


def forced_gaps(problem: Problem) -> list[int]:
    """Gaps of tensors that the user wants on the host."""
    return [i for i, gap in enumerate(problem.gaps) if problem.tensors[gap.tensor].forced]


def choose(problem: Problem, order: Order, capacity: int, forced: Sequence[int] = ()) -> list[int] | None:
    """Gaps that bring every step down to `capacity`, by `order`; None where no choice does."""
    load = full_load(problem)

    def change(index: int, sign: int) -> None:
        gap = problem.gaps[index]
        for low, high in gap.spans:
            load[low:high] += sign * problem.tensors[gap.tensor].held

    taken = set(forced)
    for index in taken:
        change(index, -1)
    ranked = sorted((i for i in range(len(problem.gaps)) if i not in taken), key=_rank(problem, order), reverse=True)
    used = []
    over = bool((load > capacity).any())
    for index in ranked:
        if not over:
            break
        if any(load[low:high].max() > capacity for low, high in problem.gaps[index].spans):
            used.append(index)
            change(index, -1)
            over = bool((load > capacity).any())
    if over:
        return None
    kept = []
    for index in reversed(used):
        held = problem.tensors[problem.gaps[index].tensor].held
        if any(load[low:high].max() + held > capacity for low, high in problem.gaps[index].spans):
            kept.append(index)
        else:
            change(index, 1)
    return sorted((*taken, *kept))


def _rank(problem: Problem, order: Order) -> Callable[[int], tuple[float, ...]]:
    return lambda index: (*order(problem, problem.gaps[index]), -index)


def any_schedules(problem: Problem, capacity: int, forced: Sequence[int] = ()) -> Iterator[Schedule]:
    """The portfolio's schedules as they are, the fastest first; for limits so tight that packing decides."""
    found = [evaluate(problem, chosen, capacity) for _, chosen in _candidates(problem, capacity, forced)]
    for candidate in sorted((c for c in found if c is not None), key=lambda c: c.cost)[:ANY]:
        yield candidate.schedule


def best_schedule(
    problem: Problem, capacity: int, *, forced: Sequence[int] = (), search: bool = True
) -> tuple[Schedule, str] | None:
    """The fastest simulated run within `capacity` that is found, with the order it comes from; None where none fits.

    Of equally fast runs the one that copies less. The best of the portfolio, and the best by another order, are
    improved by local search, unless `search` is False.
    """
    found: dict[str, Candidate] = {}
    for name, chosen in _candidates(problem, capacity, forced):
        candidate = evaluate(problem, chosen, capacity)
        if candidate is not None:
            found[name] = candidate
        if len(chosen) == len(forced):
            break  # nothing more had to leave
    if not found:
        return None
    ranked = sorted(found, key=lambda name: found[name].cost)
    starts = {name.split()[0]: name for name in reversed(ranked)}
    best = ranked[0]
    for name in sorted(starts.values(), key=ranked.index)[: STARTS if search else 0]:
        found[name] = improve(problem, found[name], capacity, forced)
        best = min(best, name, key=lambda each: found[each].cost)
    return found[best].schedule, best


def _candidates(problem: Problem, capacity: int, forced: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
    seen = set()
    for share in SHRINK:
        for name, order in ORDERS:
            found = choose(problem, order, int(capacity * share), forced)
            if found is not None and (key := tuple(found)) not in seen:
                seen.add(key)
                yield f"{name} {share:g}", found


def seeds_choice(problem: Problem, capacity: int) -> list[int] | None:
    """The gaps that the older runtimes' rule leaves empty (S97, S98); None where a step alone exceeds `capacity`.

    Every gap of more than a step starts empty; in descending order of (steps between the uses − 1) × bytes a tensor is
    kept over its gap where no step overflows by that.
    """
    gaps = problem.gaps
    load = full_load(problem)
    for gap in gaps:
        for low, high in gap.spans:
            load[low:high] -= problem.tensors[gap.tensor].held
    if (load > capacity).any():
        return None
    ranked = sorted(range(len(gaps)), key=lambda i: (-gaps[i].steps * problem.tensors[gaps[i].tensor].nbytes, i))
    swapped = []
    for index in ranked:
        held = problem.tensors[gaps[index].tensor].held
        if any(load[low:high].max() + held > capacity for low, high in gaps[index].spans):
            swapped.append(index)
            continue
        for low, high in gaps[index].spans:
            load[low:high] += held
    return sorted(swapped)
