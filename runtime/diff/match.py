"""Which kernel of one report is which of another: by name, then by operator and order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence

from kgrun.runtime.diff.document import KernelRow

Pair = tuple[KernelRow | None, KernelRow | None]


def match_kernels(a: Sequence[KernelRow], b: Sequence[KernelRow]) -> list[Pair]:
    """Pairs in order of `b`, those that `b` lacks at the end; None stands for the missing side.

    Kernels with no namesake are taken for renamed where both sides have equally many of their operator: paired in
    order. Where the numbers differ nothing tells which one is new, so they stay unpaired.
    """
    keys_a, keys_b = _numbered(a), _numbered(b)
    place_b = {key: at for at, key in enumerate(keys_b)}
    partner = {place_b[key]: at for at, key in enumerate(keys_a) if key in place_b}
    taken = set(partner.values())
    spare_a = _by_op(a, [at for at in range(len(a)) if at not in taken])
    spare_b = _by_op(b, [at for at in range(len(b)) if at not in partner])
    for op, places in spare_b.items():
        if len(spare_a.get(op, ())) == len(places):
            partner.update(zip(places, spare_a[op], strict=True))
    taken = set(partner.values())
    pairs: list[Pair] = [(a[partner[at]] if at in partner else None, row) for at, row in enumerate(b)]
    return pairs + [(row, None) for at, row in enumerate(a) if at not in taken]


def _numbered(rows: Sequence[KernelRow]) -> list[Hashable]:
    """A key for each row: its name, and which row of that name it is."""
    seen: Counter[str] = Counter()
    keys: list[Hashable] = []
    for row in rows:
        keys.append((row.name, seen[row.name]))
        seen[row.name] += 1
    return keys


def _by_op(rows: Sequence[KernelRow], places: Sequence[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for at in places:
        found[rows[at].op].append(at)
    return found
