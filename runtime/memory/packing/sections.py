"""Time reduced to what matters: the sections between which the set of live blocks grows again, and their load."""

from __future__ import annotations

from array import array
from itertools import accumulate

from . import native


def sections(lower: array[int], upper: array[int]) -> tuple[array[int], array[int], int]:
    """First and past-last section of every life, and the number of sections.

    A section opens where blocks start after others have ended, so each is a maximal set of blocks live together:
    two lives overlap exactly where they share a section. Every life must be non-empty.
    """
    if native.available():
        lo, up = zeros(len(lower)), zeros(len(lower))
        count: int = native.call("sections", lower, upper, lo, up)
        return lo, up, count
    starts, ends = set(lower), set(upper)
    opened, ended, first, past = 0, True, {}, {}
    for time in sorted(starts | ends):
        if time in ends:
            past[time] = opened
            ended = True
        if time in starts:
            opened += ended
            ended = False
            first[time] = opened - 1
    return array("q", [first[t] for t in lower]), array("q", [past[t] for t in upper]), opened


def zeros(n: int) -> array[int]:
    return array("q", bytes(8 * n))


def load(lo: array[int], up: array[int], size: array[int], count: int) -> array[int]:
    """Live bytes of every section."""
    if native.available():
        out = zeros(count)
        native.call("load", lo, up, size, out)
        return out
    change = [0] * (count + 1)
    for low, high, s in zip(lo, up, size, strict=True):
        change[low] += s
        change[high] -= s
    return array("q", list(accumulate(change))[:count])


def loudest(lo: array[int], up: array[int], loads: array[int]) -> array[int]:
    """The largest load each life passes through (range maximum by doubling)."""
    out = zeros(len(lo))
    if native.available():
        native.call("loudest", lo, up, loads, out)
        return out
    table = [list(loads)]
    while 2 << len(table) - 1 <= len(loads):
        last, half = table[-1], 1 << len(table) - 1
        table.append(list(map(max, last, last[half:])))
    for k, (low, high) in enumerate(zip(lo, up, strict=True)):
        level = (high - low).bit_length() - 1
        row = table[level]
        out[k] = max(row[low], row[high - (1 << level)])
    return out
