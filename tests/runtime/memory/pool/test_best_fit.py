"""The best-fit pool against a plain model of its rules, and each rule on its own."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrun.runtime.memory.pool import BestFitPool, DryBlocks, NoRoom, PoolExhausted, UnknownAddress

KIB = 1024


def pool(limit: int = 1 << 30, unit: int = 8 * KIB) -> BestFitPool:
    return BestFitPool(DryBlocks(limit), unit)


def test_S68_the_smallest_idle_piece_that_fits_is_taken_and_the_rest_split_off() -> None:
    made = pool(unit=16 * KIB)
    large, wall, small = (made.allocate(size) for size in (4 * KIB, 512, 2 * KIB))
    last = made.allocate(512)
    made.free(large)
    made.free(small)
    assert made.allocate(1536) == small  # 2 KiB beats 4 KiB and the rest of the block
    assert made.allocate(512) == small + 1536  # what was split off, exactly
    assert made.allocate(4 * KIB) == large
    assert {wall, last}.isdisjoint({large, small})
    assert made.check() == []


def test_S68_free_pieces_merge_with_both_neighbours_in_their_block_alone() -> None:
    made = pool(unit=2 * KIB)
    first = [made.allocate(512) for _ in range(4)]  # fills one block
    second = [made.allocate(512) for _ in range(4)]  # and another
    assert len(made.blocks()) == 2
    for address in (first[0], first[2], first[1], first[3], *second):
        made.free(address)
        assert made.check() == []
    stats = made.statistics()
    assert (stats.fragments, stats.largest_idle, stats.idle) == (2, 2 * KIB, 4 * KIB)
    assert stats.fragmentation == 0.5


@pytest.mark.parametrize("wrong", ["never", "inside", "twice"])
def test_S68_S73_freeing_an_address_that_is_not_in_use_is_an_error(wrong: str) -> None:
    made = pool()
    held = made.allocate(2 * KIB)
    address = {"never": 1 << 40, "inside": held + 512, "twice": held}[wrong]
    if wrong == "twice":
        made.free(held)
    with pytest.raises(UnknownAddress):
        made.free(address)
    assert made.check() == []


def test_S69_a_block_is_the_unit_doubled_until_it_holds_the_request() -> None:
    made = pool(unit=2 * KIB)
    for size in (512, 2 * KIB, 2 * KIB + 1, 9 * KIB):
        made.allocate(size)
    assert list(made.blocks().values()) == [2 * KIB, 2 * KIB, 4 * KIB, 16 * KIB]


def test_S69_growth_is_capped_by_what_is_free_and_fails_only_below_the_request() -> None:
    made = pool(limit=5 * KIB, unit=4 * KIB)
    made.allocate(3 * KIB, "a")
    made.allocate(512, "b")
    assert made.allocate(1 * KIB, "c") >= 0  # only 1 KiB may still be taken: a small block, no failure
    assert list(made.blocks().values()) == [4 * KIB, 1 * KIB]
    with pytest.raises(PoolExhausted) as failed:
        made.allocate(1 * KIB, "d")
    assert (failed.value.needed, failed.value.room, failed.value.name) == (KIB, 0, "d")
    assert failed.value.statistics.largest_idle == 512
    assert [(h.name, h.nbytes) for h in failed.value.holders] == [("a", 3 * KIB), ("c", KIB), ("b", 512)]
    assert made.check() == []


class Grudging(DryBlocks):
    """Has many bytes, but none in a piece larger than `piece`; remembers what it was asked for."""

    def __init__(self, piece: int) -> None:
        super().__init__(1 << 40)
        self.piece, self.asked = piece, list[int]()

    def take(self, nbytes: int) -> int:
        self.asked.append(nbytes)
        if nbytes > self.piece:
            raise NoRoom
        return super().take(nbytes)


@pytest.mark.parametrize("piece", [3 * KIB, 40 * KIB, 999 * KIB, 1024 * KIB])
def test_S70_a_refused_block_is_asked_for_again_smaller_down_to_the_request(piece: int) -> None:
    source = Grudging(piece)
    made = BestFitPool(source, 1024 * KIB)
    made.allocate(3 * KIB)
    assert source.asked == sorted(source.asked, reverse=True)
    assert 3 * KIB <= next(iter(made.blocks().values())) <= piece
    assert made.check() == []


def test_S70_a_device_that_refuses_even_the_request_fails_the_allocation() -> None:
    source = Grudging(2 * KIB)
    made = BestFitPool(source, 64 * KIB)
    with pytest.raises(PoolExhausted):
        made.allocate(3 * KIB)
    assert source.asked[-1] == 3 * KIB
    assert len(source.asked) <= 12
    assert made.statistics().total == 0


def test_S66_B23_sizes_are_rounded_up_to_512_and_nothing_gets_512() -> None:
    made = pool()
    for asked, held in ((0, 512), (1, 512), (480, 512), (512, 512), (513, 1024)):
        address = made.allocate(asked)
        assert made.size_of(address) == held
        assert address % 512 == 0


def test_S71_statistics_follow_every_step() -> None:
    made = pool(unit=4 * KIB)
    one, two = made.allocate(KIB), made.allocate(2 * KIB)
    made.free(one)
    made.allocate(512)
    stats = made.statistics()
    assert (stats.total, stats.used, stats.peak, stats.idle) == (4 * KIB, 2560, 3 * KIB, 1536)
    made.free(two)
    assert made.statistics().peak == 3 * KIB


def test_S71_the_check_finds_books_that_disagree() -> None:
    made = pool()
    made.allocate(512)
    made._idle.append((KIB, 77))
    assert any("by size" in fault for fault in made.check())
    made._idle.pop()
    made._used += 512
    assert any("together" in fault for fault in made.check())


def test_S72_B24_contiguous_pieces_touch_in_order_each_aligned_and_each_freed_on_its_own() -> None:
    made = pool(unit=16 * KIB)
    addresses = made.allocate_contiguous([100, 700, 0, 512], ["a", "b", "c", "d"])
    assert [b - a for a, b in itertools.pairwise(addresses)] == [512, 1024, 512]
    assert all(address % 512 == 0 for address in addresses)
    assert sorted(h.name for h in made.holders()) == ["a", "b", "c", "d"]
    made.free(addresses[1])
    assert made.allocate(1024) == addresses[1]  # the hole, although its neighbours are in use
    assert made.check() == []


def test_S72_an_empty_contiguous_request_is_an_error_and_one_that_does_not_fit_takes_nothing() -> None:
    made = pool(limit=2 * KIB)
    with pytest.raises(ValueError):
        made.allocate_contiguous([])
    with pytest.raises(PoolExhausted):
        made.allocate_contiguous([KIB, KIB, 512])
    assert made.statistics().used == 0


def test_trim_gives_empty_blocks_back_and_keeps_the_others() -> None:
    source = DryBlocks(1 << 20)
    made = BestFitPool(source, 4 * KIB)
    kept, freed = made.allocate(3 * KIB), made.allocate(3 * KIB)
    made.free(freed)
    assert made.trim() == 4 * KIB
    assert source.room() == (1 << 20) - 4 * KIB
    made.free(kept)
    assert made.trim() == 4 * KIB
    assert made.statistics().total == 0
    assert made.check() == []


@pytest.mark.parametrize("unit", [0, -512, 700])
def test_a_unit_that_is_no_multiple_of_512_is_refused(unit: int) -> None:
    with pytest.raises(ValueError):
        pool(unit=unit)


class Model:
    """The rules of S68 and S69 over a map of 512-byte cells; slow and plain."""

    def __init__(self, unit: int, limit: int) -> None:
        self.unit, self.limit = unit, limit
        self.blocks: list[list[bool]] = []

    def allocate(self, cells: int) -> tuple[int, int] | None:
        """Block and first cell of the smallest gap that fits; ties go to the lowest."""
        gaps = [
            (length, block, start)
            for block, used in enumerate(self.blocks)
            for start, length in self.gaps(used)
            if length >= cells
        ]
        if not gaps:
            size = self.unit
            while size < cells:
                size *= 2
            size = min(size, self.limit - sum(map(len, self.blocks)))
            if size < cells:
                return None
            self.blocks.append([False] * size)
            gaps = [(size, len(self.blocks) - 1, 0)]
        _, block, start = min(gaps)
        self.blocks[block][start : start + cells] = [True] * cells
        return block, start

    @staticmethod
    def gaps(used: list[bool]) -> list[tuple[int, int]]:
        found, start = [], 0
        for at, taken in enumerate([*used, True]):
            if taken:
                if at > start:
                    found.append((start, at - start))
                start = at + 1
        return found


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), unit=st.integers(1, 20), limit=st.integers(1, 120))
def test_S68_S69_S71_the_pool_does_what_the_model_does(seed: int, unit: int, limit: int) -> None:
    chance = random.Random(seed)
    made, model = pool(limit * 512, unit * 512), Model(unit, limit)
    held: dict[int, tuple[int, int, int]] = {}
    for _ in range(60):
        if held and chance.random() < 0.45:
            address = chance.choice(list(held))
            block, start, cells = held.pop(address)
            made.free(address)
            model.blocks[block][start : start + cells] = [False] * cells
        else:
            cells = chance.randint(1, 12)
            wanted = model.allocate(cells)
            if wanted is None:
                with pytest.raises(PoolExhausted):
                    made.allocate(cells * 512)
            else:
                address = made.allocate(cells * 512)
                bases = list(made.blocks())
                assert address == bases[wanted[0]] + wanted[1] * 512
                held[address] = (*wanted, cells)
        assert made.check() == []
        stats = made.statistics()
        assert stats.used == 512 * sum(map(sum, model.blocks))
        assert stats.total == 512 * sum(map(len, model.blocks)) <= limit * 512
        assert stats.fragments == sum(len(model.gaps(used)) for used in model.blocks)


def test_a_piece_with_a_clock_waits_until_the_request_has_come_that_far() -> None:
    made = pool(limit=2 * KIB, unit=2 * KIB)
    one, two = made.allocate(KIB, now=(0, 0)), made.allocate(KIB, now=(0, 0))
    made.free(one, ready=(3, 0))
    with pytest.raises(PoolExhausted):
        made.allocate(KIB, now=(2, 9))
    made.free(two, ready=(0, 2))
    with pytest.raises(PoolExhausted):
        made.allocate(2 * KIB, now=(3, 1))  # only one of the two may be touched
    assert made.allocate(KIB, now=(3, 1)) == one
    made.free(one, ready=(4, 0))
    assert made.allocate(2 * KIB, now=(4, 2)) == one  # both may: they are one piece for this request
    assert made.check() == []


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), limit=st.integers(8, 60))
def test_clocks_are_kept_cell_by_cell_and_no_usable_run_is_overlooked(seed: int, limit: int) -> None:
    chance = random.Random(seed)
    made = pool(limit * 512, limit * 512)
    cells: list[tuple[int, int] | None] = [(0, 0)] * limit  # the clock from which a cell is free; None in use
    base = made.allocate(512)
    made.free(base)
    held: dict[int, int] = {}
    clock = [0, 0]
    for _ in range(80):
        clock[chance.randrange(2)] += 1
        now = (clock[0], max(clock[1] - chance.randint(0, 3), 0))
        if held and chance.random() < 0.5:
            address = chance.choice(list(held))
            ready = (clock[0] + chance.randint(0, 2), clock[1])
            made.free(address, ready)
            start, count = (address - base) // 512, held.pop(address)
            cells[start : start + count] = [ready] * count
        else:
            count = chance.randint(1, 6)
            usable = [cell is not None and cell[0] <= now[0] and cell[1] <= now[1] for cell in cells]
            runs = [length for _, length in Model.gaps([not each for each in usable])]
            if max(runs, default=0) < count:
                with pytest.raises(PoolExhausted):
                    made.allocate(count * 512, now=now)
            else:
                address = made.allocate(count * 512, now=now)
                start = (address - base) // 512
                assert all(usable[start : start + count])
                cells[start : start + count] = [None] * count
                held[address] = count
        assert made.check() == []
