"""Offload on a GPU: the same bits as without, captured or step by step, and never more memory than the limit."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kgrun.graphs.errors import DoesNotFit
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.memory.offload.times import PROFILES
from tests.graphs.random_graphs import random_graph
from tests.runtime.memory.offload.test_offload_state import training


def outputs(graph: KernelGraph, device: CudaDevice, **options: Any) -> tuple[dict[str, bytes], Session]:
    with Session(graph, device=device, **options) as session:
        held = device.memory_in_use()
        limit = options.get("memory_limit")
        assert limit is None or held <= limit
        session.run(iterations=2, warmup=1, per_step=False)
        report = session.run(iterations=3, warmup=0, per_step=False, poison=True)
        return {name: array.tobytes() for name, array in report.outputs.items()}, session


def smallest(graph: KernelGraph, device: CudaDevice) -> int:
    with pytest.raises(DoesNotFit) as caught:
        Session(graph, device=device, memory_limit=1)
    found = caught.value.details["smallest_feasible_limit_bytes"]
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("replay", [True, False])
@pytest.mark.parametrize("mode", ["auto", "seeds"])
def test_S106_S124_updated_parameters_are_right(device: CudaDevice, mode: str, replay: bool) -> None:
    graph = training(8)
    free, session = outputs(graph, device)
    least, peak = smallest(graph, device), session.plan.peak_bytes
    for share in (0.0, 0.4, 0.8):
        limit = int(least + share * (peak - least))
        found, limited = outputs(graph, device, memory_limit=limit, offload=mode, graph_replay=replay)
        assert found == free
        assert limited.program.offload is not None
        assert (limited.not_replayed is None) == replay
    assert device.memory_in_use() == 0


def test_weights_that_live_on_the_host(device: CudaDevice) -> None:
    free, _ = outputs(training(8), device)
    found, session = outputs(training(8, location="host"), device)
    assert found == free
    assert session.program.offload is not None
    assert session.program.offload.profile == "measured"


@pytest.mark.parametrize("seed", range(20))
def test_B11_random_graphs_under_random_limits(device: CudaDevice, seed: int) -> None:
    chance = random.Random(seed)
    graph = KernelGraph.model_validate(random_graph(chance, 30))
    free, session = outputs(graph, device)
    least, peak = smallest(graph, device), session.plan.peak_bytes
    for _ in range(2):
        limit = chance.randint(min(least, peak), peak)
        found, _ = outputs(graph, device, memory_limit=limit, profile=PROFILES["h200"])
        assert found == free
