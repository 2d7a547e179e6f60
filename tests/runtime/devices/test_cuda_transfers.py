"""Transfers on the CUDA device, over a fake driver: one page-locked block, copies both ways, and what without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import DoesNotFit
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.program import Pointer, Step, Transfer
from tests.runtime.devices.fake_cuda_driver import FakeDriver

pytest.importorskip("cuda.bindings")


def step(direction: Any, offset: int, nbytes: int) -> Step:
    return Step(0, f"t.{direction}", 0, "H2D", "h2d", Transfer(direction, Pointer(0), offset, nbytes), (0,), (0,))


def test_S124_copies_go_both_ways_and_into_a_captured_graph(driver: FakeDriver, device: CudaDevice) -> None:
    address = device.allocate(1000)
    block = device.host_block(4096)
    assert block.pageable is None
    assert driver.pinned_blocks == 1
    out, back = step("out", 512, 1000), step("in", 512, 1000)
    prepared = [device.prepare(s, lambda pointer: address + pointer.offset) for s in (out, back)]
    device.fill(address, 7, 1000)
    prepared[0].launch()
    assert (block.data[512:1512] == 7).all()
    block.data[512:1512] = 9
    replay = device.capture(prepared[1:], [[]])
    replay.launch()
    seen = np.zeros(1000, np.uint8)
    device.download(address, seen)
    assert (seen == 9).all()


def test_U1_without_page_locked_memory_transfers_use_pageable_memory_and_say_why(
    driver: FakeDriver, device: CudaDevice
) -> None:
    driver.fail("pinned", "cuMemHostAlloc failed: out of memory")
    block = device.host_block(4096)
    assert "cuMemHostAlloc" in str(block.pageable)
    assert block.data.nbytes == 4096
    address = device.allocate(512)
    device.fill(address, 3, 512)
    device.prepare(step("out", 0, 512), lambda pointer: address).launch()
    assert (block.data[:512] == 3).all()


def test_S104_the_block_counts_as_host_memory(device: CudaDevice) -> None:
    device.host.limit = 4096
    device.host_block(4096)
    assert device.host.held == 4096
    with pytest.raises(DoesNotFit) as caught:
        device.host_block(4097)
    assert caught.value.code == "KG404"
