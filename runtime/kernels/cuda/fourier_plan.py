"""How a fast Fourier transform is cut into passes, stages and blocks: plain integers in and out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from math import prod

from kgrun.graphs.records import dataclass

LARGEST_FACTOR = 97  # of a direct transform; beyond, three transforms of twice the length take fewer steps
_TILE_BYTES = 32 << 10  # complex numbers of one block; a 16th more goes to padding, and 48 KiB need no permission
_SECTOR = 32  # bytes that memory reads at least
_EACH = 8  # numbers a thread
_MOST_THREADS = 512
_ENOUGH_BLOCKS = 264  # two for each multiprocessor of a large GPU


@dataclass(frozen=True, slots=True)
class Stage:
    """Passes by `factors` on groups of their product, by one block each or several groups together.

    Attributes:
        before, after: products of the factors of earlier and later stages.
        lanes: groups a block.
        load_lanes, store_lanes: whether neighbouring threads take neighbouring groups, or numbers of one group.
    """

    factors: tuple[int, ...]
    before: int
    after: int
    lanes: int
    threads: int
    load_lanes: bool
    store_lanes: bool

    @property
    def radix(self) -> int:
        """Numbers of a group."""
        return prod(self.factors)


def factors(n: int) -> tuple[int, ...]:
    """The factors of `n` in the order of passes: eights, fours, a single two before all of them, then odd primes.

    The order of classic implementations: results are rounded as theirs are.
    """
    found = []
    for factor in (8, 4):
        while n % factor == 0:
            found.append(factor)
            n //= factor
    if n % 2 == 0:
        # It changes places with the first.
        found = [2, *found[1:], found[0]] if found else [2]
        n //= 2
    divisor = 3
    while divisor * divisor <= n:
        while n % divisor == 0:
            found.append(divisor)
            n //= divisor
        divisor += 2
    return (*found, n) if n > 1 else tuple(found)


def direct(n: int) -> bool:
    """Whether passes by the factors of `n` are the way to transform `n` numbers."""
    return max(factors(n), default=1) <= LARGEST_FACTOR


def smooth_length(least: int) -> int:
    """The smallest 2^a·3^b·5^c that is `least` or more."""
    best = 1 << max(least - 1, 0).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            best = min(best, three << max(-(-least // three) - 1, 0).bit_length())
            three *= 3
        five *= 5
    return best


def stages(n: int, inner: int, rows: int, number_bytes: int) -> tuple[Stage, ...]:
    """Stages that transform `rows`·`inner` signals of `n` complex numbers of `number_bytes`.

    A transform that fits into a block's shared memory is one stage; a longer one, or one over columns of which a
    block should take several, is as few as leave room for neighbours to be read together.
    """
    tile = _TILE_BYTES // number_bytes
    together = _SECTOR // number_bytes  # neighbours that one read brings
    parts = _split(factors(n), tile if inner < together else tile // together, tile // together)
    result, before = [], 1
    for part in parts:
        radix = prod(part)
        after = n // before // radix
        groups = rows * before * after * inner
        fill = -(-groups // _ENOUGH_BLOCKS)
        lanes = min(max(fill, together), tile // radix, groups)
        threads = min(-(-radix * lanes // _EACH // 32) * 32, _MOST_THREADS)
        near_in, near_out = after * inner >= together, before * after * inner >= together
        result.append(Stage(part, before, after, lanes, threads, near_in, near_out))
        before *= radix
    return tuple(result)


def _split(given: Sequence[int], alone: int, most: int) -> list[tuple[int, ...]]:
    """`given` as one part of product at most `alone`, or as few as have at most `most` each, as even as can be."""
    if prod(given) <= alone:
        return [tuple(given)]
    for cuts in range(1, len(given)):
        edges = ((0, *places, len(given)) for places in combinations(range(1, len(given)), cuts))
        parts = min(([tuple(given[a:b]) for a, b in pairwise(edge)] for edge in edges), key=_largest)
        if _largest(parts) <= most:
            return parts
    return [(factor,) for factor in given]


def _largest(parts: Sequence[Sequence[int]]) -> int:
    return max(map(prod, parts))
