"""The planner's front: one packing an arena by the method asked for, with its certificate."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from time import thread_time

from .arena import Arena, step_up
from .bounds import arena_bound
from .chunks import pin_large
from .conflicts import Graph, graph
from .gaps import BELOW_TOP, LOWEST, TIGHTEST, fill
from .normalise import arenas
from .orders import PORTFOLIO, View
from .outward import STACKS, Outward
from .problem import PackingError, Problem
from .result import METHODS, Packing, PackOptions
from .skyline import NONE, skyline

MOST_EDGES = 20_000_000  # conflict graphs above this are not built
FEW_EDGES = 3_000_000  # up to here `auto` also tries the heuristics that walk the graph
LARGE = 20_000
MOST_PASSES = 60  # orderings tried on that many blocks or fewer, proportionally less on more
SEARCHABLE = 2_500  # blocks of a component the exact search takes on


def pack(problem: Problem, options: PackOptions | None = None) -> Packing:
    """Offsets for every buffer of the problem. Deterministic for equal input, while the time limit is not reached.

    Raises ProblemError where constraints contradict each other and PackingError for an unknown method.
    """
    options = options or PackOptions()
    if options.method not in METHODS:
        raise PackingError(f"no method {options.method!r}; there are {', '.join(METHODS)}")
    begin = thread_time()
    deadline = thread_time() + options.time_limit
    offsets = array("q", bytes(8 * len(problem)))
    height = bound = nodes = 0
    optimal, heights, names = True, {}, []
    for arena in arenas(problem):
        limits = [c for c in (options.capacity, problem.capacity.get(arena.space)) if c is not None]
        best = _Solver(arena, options, min(limits, default=None), deadline).solve()
        _write(arena, best.origins, offsets)
        heights[arena.space] = best.height
        height, bound, nodes = height + best.height, bound + best.bound, nodes + best.nodes
        optimal = optimal and best.height == best.bound
        names.append((best.method, best.order))
    method, order = names[0] if len(set(names)) == 1 else ("/".join(dict.fromkeys(m for m, _ in names)), "")
    fits = all(
        h <= min([c for c in (options.capacity, problem.capacity.get(s)) if c is not None], default=h)
        for s, h in heights.items()
    )
    return Packing(
        offsets, height, bound, optimal, method or options.method, order, nodes, thread_time() - begin,
        options.seed, heights, fits,
    )  # fmt: skip


def _write(arena: Arena, origins: array[int], offsets: array[int]) -> None:
    if arena.members is None or arena.block_of is None or arena.inner is None:
        offsets[:] = origins
        return
    for i, b, at in zip(arena.members, arena.block_of, arena.inner, strict=True):
        offsets[i] = origins[b] + at


@dataclass
class _Best:
    origins: array[int]
    height: int
    bound: int
    method: str = ""
    order: str = ""
    nodes: int = 0


class _Solver:
    """Tries methods on one arena and keeps the lowest plan; stops at the goal."""

    def __init__(self, arena: Arena, options: PackOptions, capacity: int | None, deadline: float) -> None:
        self.arena = pin_large(arena)
        self.options, self.deadline = options, deadline
        self.bound = arena_bound(arena)
        self.goal = self.bound if options.capacity is None else max(self.bound, options.capacity)
        self.capacity = capacity
        self.best = _Best(array("q"), NONE, self.bound)
        self._graph: Graph | None = None
        self._graph_limit = -1

    @property
    def done(self) -> bool:
        return self.best.height <= self.goal

    def offer(self, origins: array[int] | None, method: str, order: str) -> None:
        if origins is None:
            return
        height = self.arena.height(origins)
        if height < self.best.height:
            self.best.origins, self.best.height, self.best.method, self.best.order = origins, height, method, order

    def solve(self) -> _Best:
        method = self.options.method
        if not len(self.arena):
            return _Best(array("q"), 0, 0, method)
        if method == "none":
            self.offer(_apart(self.arena), "none", "")
        elif method in ("greedy-size", "best-fit", "first-fit", "somas"):
            self.by_graph(method, MOST_EDGES)
        else:
            self.search(method)
        if self.best.height == NONE:
            raise PackingError(f"the conflict graph is too large for method {method}")
        return self.best

    def search(self, method: str) -> None:
        view, live = self.view()
        if self.arena.hull_is_valid and live:
            self.by_skyline(view, live)
        if not self.done and (method == "auto" or self.best.height == NONE):
            for name in ("greedy-size", "first-fit", "more"):
                self.by_graph(name, FEW_EDGES if self.best.height < NONE else MOST_EDGES)
        if not self.done and live and method != "skyline":
            self.by_search(view, live)
        if self.best.height == NONE and not live:
            self.offer(self.rest(), "none", "")

    def view(self) -> tuple[View, list[int]]:
        """The blocks that take part in overlaps, as rectangles."""
        a = self.arena
        live = [b for b in range(len(a)) if a.size[b] and a.lower[b] < a.upper[b]]
        if len(live) == len(a):
            return View(a.lower, a.upper, a.size, a.align), live
        lower, upper, size = (array("q", [c[b] for b in live]) for c in (a.lower, a.upper, a.size))
        align = a.align if isinstance(a.align, int) else array("q", [a.align[b] for b in live])
        return View(lower, upper, size, align), live

    def rest(self) -> array[int]:
        """Origins with everything at 0, pins kept: what blocks that meet nobody get."""
        origins = array("q", bytes(8 * len(self.arena)))
        for b, origin in self.arena.fixed.items():
            origins[b] = origin
        return origins

    def spread(self, offsets: array[int], live: list[int]) -> array[int]:
        if len(live) == len(self.arena):
            return offsets
        origins = self.rest()
        for b, offset in zip(live, offsets, strict=True):
            origins[b] = offset
        return origins

    def by_skyline(self, view: View, live: list[int]) -> None:
        """The two linear-memory heuristics in turn, order by order, as often as the size of the problem allows."""
        many = len(view) > LARGE
        passes = max(MOST_PASSES * LARGE // max(len(view), LARGE), 4)
        outward = Outward(view)
        tries: list[tuple[str, str, int]] = []
        for k in range(max(len(PORTFOLIO), len(STACKS))):
            tries += [("skyline", order, 0) for order in PORTFOLIO[k : k + 1]]
            tries += [("outward", order, fit) for order in STACKS[k : k + 1] for fit in (TIGHTEST, LOWEST)[: 2 - many]]
        if many:
            tries[2:2] = [("outward", "-U", LOWEST), ("outward", "Z", LOWEST), ("skyline", "T^256W", 0)]
            tries.insert(0, tries.pop(1))  # the one that is always fast comes first
        for turn, (kind, order, fit) in enumerate(tries[:passes]):
            if kind == "skyline":
                found = skyline(view.lo, view.up, view.size, view.align, view.rank(order), view.count,
                                self.arena.chunk, self.best.height)  # fmt: skip
            else:
                found = outward.run(order, fit, self.best.height)
                if found and self.arena.chunk and max(map(int.__add__, found, view.size)) > self.arena.chunk:
                    continue
            self.offer(self.spread(found, live) if found else None, kind, order)
            if self.done or (turn and thread_time() >= self.deadline):
                return

    def by_graph(self, method: str, most: int) -> None:
        arena, pieces = self.arena, self.arena.all_pieces()
        if self._graph is None and most > self._graph_limit:
            self._graph, self._graph_limit = graph(pieces, most), most
        if self._graph is None:
            return
        size, start, end = arena.size, arena.lower, arena.upper
        blocks = range(len(arena))
        by_size = sorted(blocks, key=lambda b: (-size[b], b))
        if method == "somas":
            from .somas import somas

            origins, name = somas(arena, pieces, self._graph)
            self.offer(origins, method, name)
        elif method == "greedy-size":
            self.offer(fill(arena, pieces, self._graph, by_size, LOWEST), method, "size, lowest gap")
            self.offer(fill(arena, pieces, self._graph, by_size, TIGHTEST), method, "size, tightest gap")
        elif method in ("first-fit", "best-fit"):
            order = sorted(blocks, key=lambda b: (start[b], b))
            fit = BELOW_TOP if method == "best-fit" else LOWEST
            self.offer(fill(arena, pieces, self._graph, order, fit), method, "start")
        else:
            orders = {
                "area": sorted(blocks, key=lambda b: (-size[b] * (end[b] - start[b]), b)),
                "width": sorted(blocks, key=lambda b: (start[b] - end[b], -size[b], b)),
                "end": sorted(blocks, key=lambda b: (-end[b], b)),
                "large half, start": sorted(blocks, key=lambda b: (2 * size[b] < size[by_size[0]], start[b], b)),
                "hint": sorted(blocks, key=lambda b: (arena.hint.get(b, NONE), -size[b], b)),
            }
            for name, order in orders.items():
                if name == "hint" and not arena.hint:
                    continue
                self.offer(fill(arena, pieces, self._graph, order, LOWEST, self.best.height), "first-fit", name)
                self.offer(fill(arena, pieces, self._graph, order, TIGHTEST, self.best.height), "best-fit", name)

    def by_search(self, view: View, live: list[int]) -> None:
        """Exact search, a component at a time: each lies between sections that no block crosses."""
        arena = self.arena
        exact = arena.pieces is None or (not arena.pieces.pairs and arena.pieces.by_pairs_only is False)
        if not exact:
            return
        proofs = arena.pieces is None or all(
            len(spans) == 1 and arena.size[b] == s and rel == 0
            for b, rel, s, spans in zip(
                arena.pieces.block, arena.pieces.rel, arena.pieces.size, arena.pieces.spans, strict=True
            )
        )
        pinned = array("q", [arena.fixed.get(b, -1) for b in live])
        origins = self.best.origins[:]
        bound = self.bound
        for part in _components(view):
            if len(part) > SEARCHABLE:
                bound = self.bound
                continue
            high = max(origins[live[k]] + view.size[k] for k in part)
            if high <= max(bound, self.goal):
                continue
            budget = self.options.node_limit * 256 // max(256, len(part))
            align = view.align if isinstance(view.align, int) else array("q", [view.align[k] for k in part])
            lower, upper, size, pins = (
                array("q", [c[k] for k in part]) for c in (view.lower, view.upper, view.size, pinned)
            )
            from .ladder import climb  # the exact search: most problems are solved before it

            out = climb(View(lower, upper, size, align), pins, arena.chunk, bound, high, self.goal, budget,
                        self.options.seed, self.deadline, proofs)  # fmt: skip
            self.best.nodes += out.nodes
            bound = max(bound, min(out.bound, out.height)) if proofs else bound
            if out.offsets is not None:
                for k, offset in zip(part, out.offsets, strict=True):
                    origins[live[k]] = offset
        self.offer(origins, "exact", "")
        self.best.bound = max(self.best.bound, bound)


def _components(view: View) -> list[list[int]]:
    order = sorted(range(len(view)), key=view.lo.__getitem__)
    parts: list[list[int]] = []
    reach = -1
    for k in order:
        if view.lo[k] >= reach:
            parts.append([])
        parts[-1].append(k)
        reach = max(reach, view.up[k])
    return parts


def _apart(arena: Arena) -> array[int]:
    """Every block its own bytes, above the pinned ones."""
    origins = array("q", bytes(8 * len(arena)))
    top = 0
    for b, origin in arena.fixed.items():
        origins[b] = origin
        top = max(top, origin + arena.size[b])
    for b in range(len(arena)):
        if b not in arena.fixed:
            origins[b] = step_up(top, arena.size[b], arena.align_of(b), arena.chunk)
            top = origins[b] + arena.size[b]
    return origins
