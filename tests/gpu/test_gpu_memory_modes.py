"""Memory modes on a GPU: the same bits from planned, pool and none, under limits that the device keeps."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kgrun.graphs.errors import DoesNotFit
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.memory.pool.live import LivePool
from tests.runtime.memory_oracle import MODES, RUNS, graph_with_updates


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(6))
def test_S108_every_mode_gives_the_same_bits_under_its_own_peak_as_limit(device: CudaDevice, seed: int) -> None:
    model = KernelGraph.model_validate(graph_with_updates(random.Random(seed), 20))
    held = device.memory_in_use()
    found: dict[str, dict[str, bytes]] = {}
    for mode, options in MODES.items():
        with Session(model, device=device, **options) as session:
            peak = session.plan.peak_bytes
            assert device.memory_in_use() == held + peak
            free = session.run(iterations=RUNS, warmup=0, per_step=False).outputs
        with Session(model, device=device, memory_limit=peak, **options) as session:
            limited = session.run(iterations=RUNS, warmup=0, per_step=False, poison=True).outputs
        found[mode] = {name: array.tobytes() for name, array in free.items()}
        assert found[mode] == {name: array.tobytes() for name, array in limited.items()}
        assert device.memory_in_use() == held
    assert all(outputs == found["none"] for outputs in found.values())


def test_the_device_refuses_what_goes_over_the_limit_and_stays_good(device: CudaDevice) -> None:
    device.limit_memory(4 << 20)
    try:
        address = device.allocate(3 << 20)
        with pytest.raises(DoesNotFit) as failed:
            device.allocate(2 << 20)
        assert failed.value.code == "KG410"
        assert failed.value.details["total_bytes"] == device.free_memory()[1]
        device.free(address)
    finally:
        device.limit_memory(None)
    device.free(device.allocate(8 << 20))


def test_S6_S69_U5_a_live_pool_grows_to_its_limit_and_gives_everything_back(device: CudaDevice) -> None:
    held = device.memory_in_use()
    with LivePool(device, unit=16 << 20, limit=64 << 20, headroom=128 << 20, reserve=True) as pool:
        assert pool.statistics().total == 16 << 20
        addresses = [pool.allocate(5 << 20, f"t{i}") for i in range(12)]
        for value, address in enumerate(addresses):
            device.fill(address, value, 5 << 20)
        back = np.empty(5 << 20, np.uint8)
        for value, address in enumerate(addresses):
            device.download(address, back)
            assert (back == value).all()
        with pytest.raises(DoesNotFit) as failed:
            pool.allocate(5 << 20, "more", step="last")
        assert failed.value.code == "KG411"
        assert device.memory_in_use() == held + (64 << 20)
        assert pool.check() == []
    assert device.memory_in_use() == held
