"""An allocation fails, at every site in turn: exit 4, nothing leaked, no kernel run twice, the device still good."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import DoesNotFit
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.devices import cuda_measure
from kgrun.runtime.devices.base import Address, PreparedStep
from kgrun.runtime.devices.cpu import CpuDevice
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.memory.pool.live import LivePool
from kgrun.runtime.program import Step
from tests.runtime.devices.fake_cuda_driver import FACTS, FakeDriver
from tests.runtime.memory_oracle import MODES, RUNS, graph_with_updates
from tests.support import graph, node, tensor

OUT_OF_MEMORY = "cuMemAlloc failed: out of memory"


class FailingDevice(CpuDevice):
    """Refuses the allocation after `good` ones, and only that one; counts the launches of each step."""

    def __init__(self, good: int = 1 << 30) -> None:
        super().__init__()
        self.good, self.asked = good, 0
        self.launched: Counter[str] = Counter()

    def allocate(self, nbytes: int) -> int:
        self.asked += 1
        if self.asked == self.good + 1:
            raise DoesNotFit(f"injected: no room for {nbytes} bytes", code="KG410")
        return super().allocate(nbytes)

    def prepare(self, step: Step, address: Address) -> PreparedStep:
        return Counted(super().prepare(step, address), step.name, self.launched)


class Counted:
    """A step that counts its launches."""

    def __init__(self, step: PreparedStep, name: str, launched: Counter[str]) -> None:
        self.method = step.method
        self._step, self._name, self._launched = step, name, launched

    def launch(self) -> None:
        self._launched[self._name] += 1
        self._step.launch()


def run(document: Any, device: CpuDevice, options: Mapping[str, Any]) -> Mapping[str, Any]:
    with Session(KernelGraph.model_validate(document), device=device, **options) as session:
        return session.run(iterations=RUNS, per_step=False).outputs


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(4))
def test_B9_B10_U4_every_device_allocation_may_fail_once(mode: str, seed: int) -> None:
    document = graph_with_updates(random.Random(seed), 25)
    free = FailingDevice()
    right = run(document, free, MODES[mode])
    assert free.asked > 0
    assert set(free.launched.values()) == {RUNS}  # each kernel once a run, never twice
    for good in range(free.asked):
        device = FailingDevice(good)
        with pytest.raises(DoesNotFit) as failed:
            run(document, device, MODES[mode])
        assert (failed.value.exit, failed.value.code) == (4, "KG410")
        assert device.memory_in_use() == 0
        assert not device.launched
        again = run(document, device, MODES[mode])
        assert {name: array.tobytes() for name, array in again.items()} == {
            name: array.tobytes() for name, array in right.items()
        }
        assert device.memory_in_use() == 0


def test_S117_every_block_of_a_live_pool_may_fail_once() -> None:
    for good in range(6):
        device = FailingDevice(good)
        with LivePool(device, unit=4096) as pool:
            held = []
            for number in range(6):
                try:
                    held.append(pool.allocate(4096, f"t{number}"))
                except DoesNotFit as error:
                    assert (error.exit, error.code) == (4, "KG411")  # noqa: PT017
            assert len(held) == 5  # the refused one alone is missing
            assert pool.check() == []
            for address in held:
                pool.free(address)
            assert pool.leaks() == []
        assert device.memory_in_use() == 0


SOURCE = 'extern "C" __global__ void k(float* x, float* y) {}'


def kernels(elements: int = 300) -> KernelGraph:
    tensors = {name: tensor(None, (elements,), "float32") for name in "tuvy"}
    tensors["x"] = tensor("input", (elements,), "float32", init={"fill": 1.0})
    nodes = [node(f"n{i}", [a], [b]) for i, (a, b) in enumerate(zip("xtuv", "tuvy", strict=True))]
    return graph(nodes, tensors, ["y"], kernels={"k": {"source": SOURCE, "entry": "k"}})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", ["alloc", "load", "capture"])
def test_B9_B10_every_call_of_the_driver_may_run_out_of_memory(
    mode: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("cuda.bindings")
    monkeypatch.setattr(cuda_measure, "_LEAST_CACHE", 4096)
    facts = replace(FACTS, total_memory=1 << 30)

    def attempt(driver: FakeDriver) -> None:
        device = CudaDevice(driver=driver)
        try:
            with Session(kernels(), device=device, **MODES[mode]) as session:
                session.run(iterations=1, warmup=0, per_step=False, cache="cold")
            assert device.memory_in_use() == 0
        finally:
            assert device.memory_in_use() == 0
            device.close()
            assert driver.closed is False  # not lost: running out of memory ends nothing

    free = FakeDriver(facts)
    attempt(free)
    sites = free.calls.count(call)
    assert sites > 0
    assert Counter(launch[0] for launch in free.launches) == {"k": 4}
    for skip in range(sites):
        driver = FakeDriver(facts)
        driver.fail(call, OUT_OF_MEMORY, skip=skip)
        with pytest.raises(DoesNotFit) as failed:
            attempt(driver)
        assert (failed.value.exit, failed.value.code) == (4, "KG410")
        assert not driver.launches


@pytest.mark.parametrize("good", range(4))
def test_U1_pinned_memory_that_is_refused_is_a_warning_of_its_own_and_copies_go_on(good: int) -> None:
    pytest.importorskip("cuda.bindings")
    driver = FakeDriver(replace(FACTS, total_memory=1 << 30))
    driver.fail("pinned", "cuMemHostAlloc failed: out of memory", skip=good)
    device = CudaDevice(driver=driver)
    elements = 9 << 20  # 36 MiB: every block of the ring
    driver.on_launch = lambda *launch: None
    values = np.arange(elements, dtype="float32")
    made = graph(
        [node("a", ["x"], ["t"])],
        {"x": tensor("input", (elements,), "float32"), "t": tensor(None, (4,), "float32")},
        ["t"],
        kernels={"k": {"source": SOURCE, "entry": "k"}},
    )
    with Session(made, device=device) as session:
        report = session.run({"x": values}, iterations=1)
        at = session.loaded.address(session.program.slots["x"])
        assert driver.view(at, values.nbytes).tobytes() == values.tobytes()
        back = np.zeros_like(values)
        device.download(at, back)
        assert np.array_equal(back, values)
        again = session.run({"x": values + 1}, iterations=1)
    told = [warning for warning in report.warnings if warning.code == "W-PINNED"]
    assert len(told) == 1
    assert "pinned" in told[0].message
    assert "out of memory" in told[0].message
    assert [w.code for w in again.warnings] == [w.code for w in report.warnings]
    assert driver.calls.count("pinned") == good + 1  # not asked again for every copy
    device.close()


def test_U1_a_host_limit_below_the_pinned_ring_goes_the_pageable_way_too() -> None:
    pytest.importorskip("cuda.bindings")
    driver = FakeDriver(replace(FACTS, total_memory=1 << 30))
    device = CudaDevice(driver=driver)
    device.host.limit = 20 << 20  # two blocks of 8 MiB
    data = np.random.default_rng(0).integers(0, 256, 40 << 20, np.uint8)
    address = device.allocate(data.nbytes)
    device.upload(address, data)
    assert driver.view(address, data.nbytes).tobytes() == data.tobytes()
    assert [warning.code for warning in device.warnings()] == ["W-PINNED"]
    assert "20,971,520" in device.warnings()[0].message
    assert device.host.held == 0
    device.close()
