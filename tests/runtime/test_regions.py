"""Plans on a device: how much a pool may plan for, and where the pieces of a region lie."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

import pytest

from kgrun.graphs.errors import DoesNotFit
from kgrun.runtime.devices.cpu import CpuDevice
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.regions import Regions, headroom, plan_limit
from tests.runtime.devices.fake_cuda_driver import FACTS, FakeDriver
from tests.support import chain_of, planned, program

KIB = 1024


@pytest.mark.parametrize("armed", [False, True])
def test_U2_a_pool_plans_for_no_more_than_a_gpu_has_free_and_leaves_it_headroom(armed: bool) -> None:
    driver = FakeDriver(replace(FACTS, total_memory=1 << 30))
    device = CudaDevice(driver=driver)
    free = (1 << 30) - driver.other_bytes
    kept = headroom(device)
    assert kept == 16 << 20  # 128 MiB on GPUs of 8 GiB and more
    assert plan_limit(device, "pool", None) == free - kept
    assert plan_limit(device, "planned", None) is None
    if armed:
        device.limit_memory(64 * KIB)
    assert plan_limit(device, "pool", 64 * KIB) == 64 * KIB  # a limit this low leaves headroom anyway
    device.limit_memory(None)
    held = device.allocate(free - kept - 4 * KIB)
    assert plan_limit(device, "pool", 64 * KIB) == 4 * KIB
    more = device.allocate(8 * KIB)
    assert plan_limit(device, "pool", None) == 0
    device.free(held)
    device.free(more)
    device.close()


def test_a_pool_plans_for_no_more_than_a_simulated_memory_holds() -> None:
    device = CpuDevice(memory=32 * KIB)
    device.allocate(8 * KIB)
    assert plan_limit(device, "pool", None) == 24 * KIB
    assert plan_limit(device, "pool", 16 * KIB) == 16 * KIB


def test_every_block_is_an_allocation_and_every_buffer_lies_inside_one() -> None:
    nodes, tensors = chain_of(6, size=3 * KIB)
    plan, _ = planned(program(nodes, tensors, ["t5"], target="cpu"), mode="pool", pool_unit=4 * KIB)
    device = CpuDevice()
    with ExitStack() as undo:
        regions = Regions(device, plan, undo)
        assert len(device._blocks) == 1 + len(plan.blocks) == 3
        ends = [(start, start + block.nbytes - 512) for start, block in device._blocks.items()]
        for place in plan.placements:
            at = regions.address(place)
            assert any(start <= at and at + place.aligned <= end for start, end in ends)
    assert device.memory_in_use() == 0


def test_out_of_memory_of_a_block_tells_the_whole_plan() -> None:
    nodes, tensors = chain_of(6, size=3 * KIB)
    plan, _ = planned(program(nodes, tensors, ["t5"], target="cpu"), mode="pool", pool_unit=4 * KIB)
    device = CpuDevice(memory=plan.peak_bytes - 1)
    with ExitStack() as undo, pytest.raises(DoesNotFit, match="planned") as failed:
        Regions(device, plan, undo)
    assert failed.value.details["planned_bytes"] == plan.peak_bytes
    assert device.memory_in_use() == 0
