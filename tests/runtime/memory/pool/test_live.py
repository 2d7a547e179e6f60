"""The pool on a device: blocks come and go, errors say who holds what, nothing stays behind."""

from __future__ import annotations

import numpy as np
import pytest

from kgrun.graphs.errors import DoesNotFit, InternalError
from kgrun.runtime.devices.cpu import CpuDevice
from kgrun.runtime.memory.pool.live import LivePool

KIB = 1024


def test_S6_the_first_block_is_reserved_at_once_or_the_pool_fails_at_once() -> None:
    device = CpuDevice(memory=64 * KIB)
    with LivePool(device, unit=16 * KIB, reserve=True) as pool:
        assert device.memory_in_use() == pool.statistics().total == 16 * KIB
        assert pool.statistics().used == 0
    assert device.memory_in_use() == 0
    with pytest.raises(DoesNotFit) as failed:
        LivePool(CpuDevice(memory=0), reserve=True)
    assert failed.value.code == "KG411"
    assert "first block" in failed.value.message


def test_S73_addresses_are_memory_of_the_device_and_come_back_to_the_pool() -> None:
    device = CpuDevice()
    with LivePool(device, unit=16 * KIB) as pool:
        one, two = pool.allocate(KIB, "one"), pool.allocate(KIB, "two")
        device.fill(one, 1, KIB)
        device.fill(two, 2, KIB)
        found = np.empty(KIB, np.uint8)
        device.download(one, found)
        assert (found == 1).all()
        pool.free(one)
        assert pool.allocate(KIB) == one
        with pytest.raises(InternalError) as failed:
            pool.free(one + 512)
        assert failed.value.code == "KG102"


def test_S72_B24_contiguous_memory_of_a_device_is_aligned_piece_by_piece() -> None:
    with LivePool(CpuDevice(), unit=16 * KIB) as pool:
        addresses = pool.allocate_contiguous([100, 700, 5], ["a", "b", "c"])
        assert [address - addresses[0] for address in addresses] == [0, 512, 1536]
        assert all(address % 512 == 0 for address in addresses)


def test_U5_S69_an_exhausted_pool_says_needed_available_fragments_holders_and_the_step() -> None:
    device = CpuDevice(memory=20 * KIB)
    with LivePool(device, unit=4 * KIB) as pool:
        held = [pool.allocate(KIB, f"t{i}") for i in range(16)]
        for address in held[::2]:
            pool.free(address)
        with pytest.raises(DoesNotFit) as failed:
            pool.allocate(6 * KIB, "y", step="cast")
        error = failed.value
        assert (error.exit, error.code) == (4, "KG411")
        told = error.details
        assert (told["needed_bytes"], told["available_bytes"], told["step"]) == (6 * KIB, 4 * KIB, "cast")
        assert (told["fragments"], told["largest_idle_bytes"], told["pool_idle_bytes"]) == (8, KIB, 8 * KIB)
        assert told["holders"] == [{"name": f"t{i}", "nbytes": KIB} for i in (1, 3, 5, 7, 9)]
        for word in ("'y'", "'cast'", "6,144", "4,096", "8 pieces", "t1 (1,024)"):
            assert word in error.message
        assert pool.check() == []
        assert pool.allocate(4 * KIB, "z")  # what fits still goes


def test_a_limit_holds_for_all_blocks_together() -> None:
    device = CpuDevice()
    with LivePool(device, unit=4 * KIB, limit=10 * KIB) as pool:
        for _ in range(10):
            pool.allocate(KIB)
        with pytest.raises(DoesNotFit):
            pool.allocate(512)
    assert device.peak_memory() == 10 * KIB


def test_U2_headroom_stays_free() -> None:
    device = CpuDevice(memory=16 * KIB)
    with LivePool(device, unit=64 * KIB, headroom=4 * KIB) as pool:
        pool.allocate(KIB)
        assert device.free_memory() == (4 * KIB, 16 * KIB)


def test_S70_a_device_without_one_large_piece_still_gives_smaller_blocks() -> None:
    class Fragmented(CpuDevice):
        def allocate(self, nbytes: int) -> int:
            if nbytes > 8 * KIB:
                raise DoesNotFit("no piece so large")
            return super().allocate(nbytes)

    device = Fragmented()
    with LivePool(device, unit=64 * KIB) as pool:
        pool.allocate(3 * KIB)
        assert 3 * KIB <= device.memory_in_use() <= 8 * KIB
        with pytest.raises(DoesNotFit, match="no piece so large"):
            pool.allocate(9 * KIB)


def test_S71_leaks_are_listed_with_their_names_and_trim_gives_idle_blocks_back() -> None:
    device = CpuDevice()
    with LivePool(device, unit=4 * KIB) as pool:
        kept, gone = pool.allocate(4 * KIB, "kept"), pool.allocate(4 * KIB, "gone")
        pool.free(gone)
        assert [(h.name, h.nbytes) for h in pool.leaks()] == [("kept", 4 * KIB)]
        assert pool.trim() == 4 * KIB
        assert device.memory_in_use() == 4 * KIB
        pool.free(kept)
        assert pool.leaks() == []
    assert device.memory_in_use() == 0


def test_closing_twice_gives_everything_back_once() -> None:
    device = CpuDevice()
    pool = LivePool(device, unit=4 * KIB)
    pool.allocate(KIB)
    pool.close()
    pool.close()
    assert device.memory_in_use() == 0
    assert pool.statistics().total == 0


@pytest.mark.parametrize(("unit", "block"), [(0, 512), (1, 512), (1000, 1024)])
def test_S69_any_unit_is_rounded_up_to_whole_pieces(unit: int, block: int) -> None:
    device = CpuDevice()
    with LivePool(device, unit=unit) as pool:
        pool.allocate(1)
        assert device.memory_in_use() == block
