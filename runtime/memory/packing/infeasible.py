"""Why a problem does not fit a limit: who is to blame, from which limit on it fits, and what would help most."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace

from .bounds import Peak, buffer_lives, peak_section
from .normalise import alias_root
from .pack import pack
from .problem import Group, Problem
from .result import PackOptions

FILTERED = 400  # units up to which the culprits of a proof by search are thinned out one by one


@dataclass(frozen=True)
class Change:
    """One change and the height it leads to: `shorten` or `offload` keep the buffer away from the peak, `shrink`
    makes it smaller (it lives nowhere else)."""

    kind: str
    buffer: int
    saves: int
    height: int


@dataclass(frozen=True)
class Infeasible:
    """Attributes: `limit` asked for; `culprits`, buffers that cannot be placed together (none can be left out where
    `proven`); `time` at which they collide; `smallest_limit` a plan was found for; `lower_bound`; `change` that lowers
    the bound most, or None where the bound is not what is in the way."""

    limit: int
    culprits: tuple[int, ...]
    time: int
    smallest_limit: int
    lower_bound: int
    proven: bool
    change: Change | None
    advice: str = ""

    @property
    def feasible(self) -> bool:
        """Whether a plan within the limit was found after all; there are no culprits then."""
        return self.smallest_limit <= self.limit


def explain_infeasible(problem: Problem, limit: int, options: PackOptions | None = None) -> Infeasible:
    """Why the largest space of the problem does not fit `limit` bytes; `feasible` where a plan is found after all."""
    options = options or PackOptions()
    packing = pack(problem, replace(options, capacity=limit))
    height = max(packing.heights.values(), default=0)
    if height <= limit:
        return Infeasible(limit, (), 0, height, packing.lower_bound, False, None)
    found = pack(problem, options)
    height = min(max(p.heights.values()) for p in (found, packing))
    peak = peak_section(problem)
    change = best_change(problem, peak)
    advice = _advice(problem, change, limit)
    bound = peak.nbytes if problem.spaces else max(found.lower_bound, packing.lower_bound)
    if peak.nbytes > limit:
        return Infeasible(limit, _heaviest(problem, peak, limit), peak.time, height, bound, True, change, advice)
    culprits = tuple(range(len(problem)))
    proven = problem.spaces is None and packing.lower_bound > limit
    if proven:
        culprits = _thinned(problem, limit, replace(options, capacity=limit, node_limit=2_000, time_limit=0.2))
        return Infeasible(limit, culprits, _time_of(problem, culprits), height, bound, True, change, advice)
    culprits = _stack(problem, found.offsets)
    return Infeasible(limit, culprits, _time_of(problem, culprits), height, bound, False, change, advice)


def best_change(problem: Problem, peak: Peak) -> Change | None:
    """The buffer of the peak whose absence from it lowers the largest live sum most."""
    lives = buffer_lives(problem)
    members = [i for i in peak.buffers if i not in problem.aliases and problem.sizes[i]]
    best: Change | None = None
    for i in members[:64]:
        others = _largest_sum(problem, lives, without=i, space=peak.space)
        after = max(others, 0)
        if best is None or peak.nbytes - after > best.saves:
            first, last = min(s[0] for s in lives[i]), max(s[1] for s in lives[i])
            if (first, last) == (peak.start, peak.end):
                kind = "shrink"
            else:
                near = min(peak.start - first, last - peak.end) * 4 <= last - first
                kind = "shorten" if near else "offload"
            best = Change(kind, i, peak.nbytes - after, after)
    return best


def _advice(problem: Problem, change: Change | None, limit: int) -> str:
    if change is None or not change.saves:
        return ""
    name = problem.name(change.buffer)
    how = {
        "shorten": f"shorten the life of {name} so that it is not live at the peak",
        "offload": f"offload {name} over the peak",
        "shrink": f"make {name} smaller",
    }[change.kind]
    enough = "enough" if change.height <= limit else "not enough alone"
    return f"{how}: at least {change.height:,} bytes would remain live at once ({enough})"


def _largest_sum(problem: Problem, lives: list[list[tuple[int, int]]], without: int, space: int) -> int:
    steps: dict[int, int] = {}
    for i, spans in enumerate(lives):
        if i == without or i in problem.aliases or (problem.spaces and problem.spaces[i] != space):
            continue
        for low, high in spans:
            steps[low] = steps.get(low, 0) + problem.occupied(i)
            steps[high] = steps.get(high, 0) - problem.occupied(i)
    best = live = 0
    for time in sorted(steps):
        live += steps[time]
        best = max(best, live)
    return best


def _heaviest(problem: Problem, peak: Peak, limit: int) -> tuple[int, ...]:
    """A smallest set of the buffers live at the peak that exceeds the limit already."""
    total, chosen = 0, []
    for i in peak.buffers:
        if i in problem.aliases:
            continue
        chosen.append(i)
        total += problem.occupied(i)
        if total > limit:
            break
    return tuple(chosen)


def _thinned(problem: Problem, limit: int, options: PackOptions) -> tuple[int, ...]:
    """A set that is still proven not to fit and of which no single unit can be left out (deletion filter)."""
    units = _units(problem)
    if len(units) > FILTERED:
        return tuple(range(len(problem)))
    size = max(1, len(units) // 4)
    while size:
        at = 0
        while at < len(units):
            rest = units[:at] + units[at + size :]
            keep = sorted(i for unit in rest for i in unit)
            if keep and pack(subset(problem, keep), options).lower_bound > limit:
                units = rest
            else:
                at += size
        size //= 2
    return tuple(sorted(i for unit in units for i in unit))


def _units(problem: Problem) -> list[list[int]]:
    """Buffers that can only go together: alias classes and groups."""
    root = [alias_root(problem, i)[0] for i in range(len(problem))]
    for group in problem.group_list:
        for i in group.members[1:]:
            old, new = root[i], root[group.members[0]]
            root = [new if r == old else r for r in root]
    units: dict[int, list[int]] = {}
    for i, r in enumerate(root):
        units.setdefault(r, []).append(i)
    return list(units.values())


def subset(problem: Problem, keep: list[int]) -> Problem:
    """The problem with the buffers `keep` alone, renumbered; classes and groups must be kept whole."""
    p, at = problem, {i: k for k, i in enumerate(keep)}

    def column(values: array[int]) -> array[int]:
        return array("q", [values[i] for i in keep])

    def pairs(given: object) -> list[tuple[int, int]]:
        return [(at[a], at[b]) for a, b in given if a in at and b in at]  # type: ignore[attr-defined]

    groups = [g for g in p.group_list if all(i in at for i in g.members)]
    return Problem(
        column(p.lowers), column(p.uppers), column(p.sizes), [p.name(i) for i in keep],
        p.alignment if isinstance(p.alignment, int) else [p.align(i) for i in keep], p.pad,
        {at[i]: s for i, s in p.extra_intervals.items() if i in at},
        {at[i]: o for i, o in p.fixed.items() if i in at}, {at[i]: o for i, o in p.hint.items() if i in at},
        [Group(tuple(at[i] for i in g.members), g.before, g.between, g.after) for g in groups],
        {at[c]: (at[q], o) for c, (q, o) in p.aliases.items() if c in at},
        None if p.conflicts is None else pairs(p.conflicts), pairs(p.extra_conflicts),
        [at[i] for i in p.persistent if i in at], None if p.spaces is None else column(p.spaces), p.capacity,
        p.max_chunk,
    )  # fmt: skip


def _stack(problem: Problem, offsets: array[int]) -> tuple[int, ...]:
    """The buffers live together with the topmost one, which pushed it over the limit; nothing is proven by them."""
    top = max(range(len(problem)), key=lambda i: (offsets[i] + problem.occupied(i), -i))
    lives = buffer_lives(problem)
    time = lives[top][0][0] if lives[top] else 0
    here = [i for i, spans in enumerate(lives) if any(low <= time < high for low, high in spans)]
    return tuple(i for i in here if problem.spaces is None or problem.spaces[i] == problem.spaces[top]) or (top,)


def _time_of(problem: Problem, culprits: tuple[int, ...]) -> int:
    """The time at which most bytes of the culprits are live."""
    return peak_section(subset(problem, sorted(_closed(problem, culprits)))).time


def _closed(problem: Problem, culprits: tuple[int, ...]) -> set[int]:
    wanted = set(culprits)
    return {i for unit in _units(problem) if wanted & set(unit) for i in unit}
