"""A slow verifier, a brute-force optimum and random problems over the whole constraint set."""

import random
from itertools import permutations

from kgrun.runtime.memory.packing import Group, PackOptions, Problem, ProblemError, pack


def root_of(p, i):
    while i in p.aliases:
        i = p.aliases[i][0]
    return i


def lives_together(p, a, b):
    """Whether two alias classes, named by their roots, must not share bytes."""
    if p.spaces is not None and p.spaces[a] != p.spaces[b]:
        return False
    persistent = {root_of(p, i) for i in p.persistent}
    if a in persistent or b in persistent:
        other = b if a in persistent else a
        return p.conflicts is not None or other in persistent or bool(times_of(p, other))
    pairs = [*(p.conflicts or ()), *p.extra_conflicts]
    if any({root_of(p, x), root_of(p, y)} == {a, b} for x, y in pairs):
        return True
    return p.conflicts is None and bool(times_of(p, a) & times_of(p, b))


def times_of(p, root):
    times = set()
    for i in range(len(p)):
        if root_of(p, i) == root:
            for low, high in ((p.lowers[i], p.uppers[i]), *p.extra_intervals.get(i, ())):
                times.update(range(low, high))
    return times


def region(p, offsets, root):
    """Bytes reserved for an alias class, group gaps included."""
    low, high = offsets[root], offsets[root] + p.occupied(root)
    for group in p.group_list:
        for k, i in enumerate(group.members):
            if root_of(p, i) != root:
                continue
            end = offsets[i] + (p.sizes[i] if i in p.aliases else p.occupied(i))
            if k == 0:
                low = min(low, offsets[i] - group.before)
            if k + 1 == len(group.members):
                high = max(high, end + group.after)
            else:
                high = max(high, offsets[group.members[k + 1]])
    return low, high


def is_sound(p, offsets):
    """The slow verifier: every pair of classes, every rule, by the definitions."""
    if any(o < 0 or o % p.align(i) for i, o in enumerate(offsets)):
        return False
    if any(offsets[i] != o for i, o in p.fixed.items()):
        return False
    if any(offsets[c] != offsets[q] + d for c, (q, d) in p.aliases.items()):
        return False
    for group in p.group_list:
        for a, b in zip(group.members, group.members[1:], strict=False):
            end = offsets[a] + (p.sizes[a] if a in p.aliases else p.occupied(a)) + group.between
            if offsets[b] != -(-end // p.align(b)) * p.align(b):
                return False
        if offsets[group.members[0]] < group.before:
            return False
    roots = [i for i in range(len(p)) if i not in p.aliases]
    regions = {i: region(p, offsets, i) for i in roots}
    for k, a in enumerate(roots):
        for b in roots[k + 1 :]:
            (la, ha), (lb, hb) = regions[a], regions[b]
            if max(la, lb) < min(ha, hb) and lives_together(p, a, b):
                return False
    if p.max_chunk:
        grouped = {i for g in p.group_list for i in g.members}
        for i in roots:
            if i not in grouped and p.occupied(i) > 0:
                first, last = offsets[i], offsets[i] + p.occupied(i) - 1
                large = p.occupied(i) > p.max_chunk
                if (large and first % p.max_chunk) or (not large and first // p.max_chunk != last // p.max_chunk):
                    return False
    return True


def optimum(lower, upper, size):
    """Least height by trying every order, each buffer at its lowest free place above the overlapping ones before it."""
    best = sum(size)
    for order in permutations(range(len(size))):
        ends, height = {}, 0
        for i in order:
            at = max((ends[j] for j in ends if max(lower[i], lower[j]) < min(upper[i], upper[j])), default=0)
            ends[i] = at + size[i]
            height = max(height, ends[i])
        best = min(best, height)
    return best


def plain_problem(seed, most=24, alignments=(1, 1, 4, 8)):
    r = random.Random(seed)
    n = r.randint(1, most)
    lower = [r.randint(0, 20) for _ in range(n)]
    upper = [low + r.randint(1, 9) for low in lower]
    return Problem(lower, upper, [r.randint(1, 40) for _ in range(n)], alignment=r.choice(alignments))


def any_problem(seed):
    """A feasible problem that draws from every constraint; pins come from a plan of the problem without them."""
    r = random.Random(seed)
    for _ in range(50):
        try:
            p = _draw(r)
            if r.random() < 0.3:
                plan = pack(p, PackOptions(node_limit=50))
                some = r.sample(range(len(p)), min(len(p), r.randint(1, 3)))
                fields = {name: getattr(p, name) for name in p.__dataclass_fields__}
                p = Problem(**{**fields, "fixed": {i: plan.offsets[i] for i in some}})
                pack(p, PackOptions(method="first-fit"))
            return p
        except ProblemError:
            continue
    raise AssertionError("no consistent problem drawn")


def _draw(r):
    n = r.randint(1, 18)
    lower = [r.randint(0, 20) for _ in range(n)]
    upper = [low + r.randint(0 if r.random() < 0.1 else 1, 9) for low in lower]
    size = [r.choice([0, 1, 3, 8, 16, 30, 64]) if r.random() < 0.5 else r.randint(1, 50) for _ in range(n)]
    alignment = r.choice([1, 4, 8, [r.choice([1, 2, 4, 8]) for _ in range(n)]])
    free = list(range(n))
    r.shuffle(free)
    kinds = {}
    if r.random() < 0.3:
        kinds["extra_intervals"] = {
            i: [(t, t + r.randint(1, 3)) for t in (r.randint(0, 25), r.randint(0, 25))] for i in free[: r.randint(1, 4)]
        }
    groups, aliases = [], {}
    if n > 4 and r.random() < 0.3:
        members = tuple(free.pop() for _ in range(r.randint(2, 3)))
        gaps = [r.choice([0, 0, 8, 16]) for _ in range(3)]
        groups.append(Group(members, *gaps))
    while len(free) > 1 and r.random() < 0.25:
        child, parent = free.pop(), r.choice(free)
        if size[child] <= size[parent]:
            aliases[child] = (parent, r.choice([0, 0, (size[parent] - size[child]) // 8 * 8]))
    pairs = [(r.randrange(n), r.randrange(n)) for _ in range(r.randint(0, 2 * n))]
    pairs = [(a, b) for a, b in pairs if a != b]
    relation = r.random()
    if relation < 0.15:
        kinds["conflicts"] = pairs
    elif relation < 0.3:
        kinds["extra_conflicts"] = pairs[:4]
    if r.random() < 0.2:
        kinds["persistent"] = r.sample(range(n), min(n, 2))
    if r.random() < 0.15 and not groups and not aliases:
        kinds["space"] = [r.randint(0, 1) for _ in range(n)]
    if r.random() < 0.15 and not groups and not aliases:
        kinds["max_chunk"] = r.choice([32, 64, 128])
    if r.random() < 0.2:
        kinds["hint"] = {i: 8 * r.randint(0, 10) for i in range(0, n, 2)}
    return Problem(
        lower, upper, size, alignment=alignment, pad=r.random() < 0.7, groups=groups, aliases=aliases, **kinds
    )
