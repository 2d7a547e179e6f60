"""Lanes for copies beside the steps: order by marks, threads, pinned memory that cannot be had, the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from kgrun.graphs.errors import DeviceFault
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.devices.cuda_driver import DriverCallFailed
from kgrun.runtime.queues.feeder import start_feeder
from kgrun.runtime.queues.ring import Ring
from kgrun.runtime.queues.slots import LaneSlots
from tests.runtime.devices.fake_cuda_driver import FakeDriver, FakeError
from tests.runtime.devices.fake_lane_api import FakeLaneApi

TYPES = [TensorType("float32", (4,)), TensorType("int64", (3,))]


@pytest.fixture
def api(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> FakeLaneApi:
    made = FakeLaneApi(driver)
    driver.errors = (FakeError, DriverCallFailed)
    made.install(monkeypatch)
    return made


@pytest.fixture
def device(driver: FakeDriver, api: FakeLaneApi) -> Iterator[CudaDevice]:
    made = CudaDevice(driver=driver)
    yield made
    made.close()
    assert api.alive == set()  # streams and events are destroyed


def test_S143_batches_reach_the_device_through_the_lane_in_order(device: CudaDevice, driver: FakeDriver) -> None:
    slots = LaneSlots(device, device.copy_lane(), TYPES, 2)
    ring = Ring("q", dict(zip("xi", TYPES, strict=True)), slots)
    targets = {0: device.allocate(16), 1: device.allocate(24)}
    feeder = start_feeder(ring, lambda: ((np.full(4, n, "f4"), np.full(3, -n, "i8")) for n in range(50)))
    for number in range(50):
        front = ring.front(5)
        assert front is not None
        slots.take(front, targets)
        ring.pop()
        assert driver.view(targets[0], 16).view("f4").tolist() == [number] * 4
        assert driver.view(targets[1], 24).view("i8").tolist() == [-number] * 3
    assert ring.front(5) is None
    feeder.join(5)
    ring.close(5)
    assert driver.held == 40  # the slots' own memory went back


def test_S143_parts_of_pinned_arrays_are_sent_from_where_they_lie(
    device: CudaDevice, driver: FakeDriver, api: FakeLaneApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kgrun.runtime.queues.slots.WORTH_PINNING", 0)
    x = np.arange(40 * 4, dtype="f4").reshape(40, 4)
    frozen = np.ones(5, "i8")
    frozen.flags.writeable = False
    copied: list[int] = []
    slots = LaneSlots(device, device.copy_lane(), TYPES, 3, (x, frozen, x[:, ::2]))
    monkeypatch.setattr(slots._copies, "copy", lambda to, of: (copied.append(of.nbytes), np.copyto(to, of)))
    assert api.registered == {x.ctypes.data: x.nbytes}
    targets = {0: device.allocate(16), 1: device.allocate(24)}
    for number in range(38):  # every fifth batch is not of the array
        rows = x[number] + 1 if number % 5 == 0 else x[number]
        slots.fill(number % 3, (rows, np.full(3, -number, "i8")))
        assert (slots.arrays(number % 3)[0] == rows).all()
        slots.take(number % 3, targets)
        assert driver.view(targets[0], 16).view("f4").tolist() == rows.tolist()
        assert driver.view(targets[1], 24).view("i8").tolist() == [-number] * 3
    assert copied.count(16) == 8
    assert copied.count(24) == 38
    assert slots.filled_ns > 0
    slots.close()
    assert api.registered == {}
    assert (x == np.arange(40 * 4).reshape(40, 4)).all()


def test_S143_arrays_that_cannot_be_pinned_are_copied(
    device: CudaDevice, driver: FakeDriver, api: FakeLaneApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kgrun.runtime.queues.slots.WORTH_PINNING", 0)
    api.fail("cuMemHostRegister", 712)
    x, target = np.arange(8, dtype="f4").reshape(2, 4), device.allocate(16)
    slots = LaneSlots(device, device.copy_lane(), TYPES, 1, (x,))
    slots.fill(0, (x[1], np.ones(3, "i8")))
    slots.take(0, {0: target})
    assert driver.view(target, 16).view("f4").tolist() == [4, 5, 6, 7]
    slots.close()


@pytest.mark.parametrize("sent", [(True, False), (False, True), (False, False)])
def test_S143_items_that_the_host_alone_reads_are_not_sent(
    device: CudaDevice, driver: FakeDriver, api: FakeLaneApi, sent: tuple[bool, bool]
) -> None:
    slots = LaneSlots(device, device.copy_lane(), TYPES, 2, sent=sent)
    targets = {i: device.allocate(TYPES[i].nbytes) for i in range(2) if sent[i]}
    for number in range(5):
        batch = np.full(4, number, "f4"), np.full(3, -number, "i8")
        slots.fill(number % 2, batch)
        assert all((a == b).all() for a, b in zip(slots.arrays(number % 2), batch, strict=True))
        slots.take(number % 2, targets)
        for i, at in targets.items():
            assert (driver.view(at, TYPES[i].nbytes).view(TYPES[i].dtype) == batch[i]).all()
    assert api.calls.count("cuMemcpyHtoDAsync") == 5 * sum(sent)
    slots.close()


def test_S143_only_what_is_used_is_moved(device: CudaDevice, driver: FakeDriver) -> None:
    slots = LaneSlots(device, device.copy_lane(), TYPES, 1)
    slots.fill(0, (np.ones(4, "f4"), np.ones(3, "i8")))
    before = driver.calls.count("copy")
    slots.take(0, {1: device.allocate(24)})
    assert driver.calls.count("copy") == before + 1


def test_marks_order_copies_and_steps_both_ways(device: CudaDevice, driver: FakeDriver) -> None:
    lane, address = device.copy_lane(), device.allocate(8)
    block, back = lane.host_block(8), lane.host_block(8)
    never, up, down = lane.new_mark(), lane.new_mark(), lane.new_mark()
    block[:] = 5
    lane.upload(address, block, after=never, mark=up)
    lane.download(back, address, after=up, mark=down)
    lane.wait(down)
    assert back.tolist() == [5] * 8
    steps = lane.new_mark()
    device.fill(address, 7, 8)
    lane.mark_steps(steps)
    lane.download(back, address, after=steps, mark=down)
    lane.wait(down)
    assert back.tolist() == [7] * 8


def test_a_thread_of_its_own_gets_the_devices_context(device: CudaDevice, api: FakeLaneApi) -> None:
    lane, address = device.copy_lane(), device.allocate(8)
    block, mark = lane.host_block(8), lane.new_mark()

    def work() -> None:
        for _ in range(3):
            lane.upload(address, block, after=mark, mark=mark)
        lane.wait(mark)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(5)
    assert api.calls.count("cuCtxSetCurrent") == 1


def test_U1_where_no_more_can_be_pinned_pageable_memory_does(device: CudaDevice, driver: FakeDriver) -> None:
    driver.fail("pinned", "cuMemHostAlloc failed: out of memory")
    lane = device.copy_lane()
    slots = LaneSlots(device, lane, TYPES, 1)
    slots.fill(0, (np.ones(4, "f4"), np.ones(3, "i8")))
    target = device.allocate(16)
    slots.take(0, {0: target})
    assert driver.view(target, 16).view("f4").tolist() == [1] * 4
    assert not lane.pinned


def test_a_copy_that_the_driver_refuses_is_a_fault_of_the_device(device: CudaDevice, api: FakeLaneApi) -> None:
    lane = device.copy_lane()
    mark = lane.new_mark()
    api.fail("cuEventRecord", 400)
    with pytest.raises(DeviceFault, match=r"marking the steps: .*[Ii]nvalid"):
        lane.mark_steps(mark)
