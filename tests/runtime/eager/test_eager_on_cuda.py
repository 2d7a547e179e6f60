"""Node by node, several graphs, many shapes on the CUDA device, over a fake driver: launches, memory, faults."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import DeviceFault, KgrunError
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.eager import EagerSession
from kgrun.runtime.several import Graphs
from kgrun.runtime.shapes import ShapeSession
from tests.runtime.devices.fake_cuda_driver import ILLEGAL, FakeDriver

pytest.importorskip("cuda.bindings")

N = 64
SOURCE = 'extern "C" __global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }'


def node(name: str, source: str, target: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "kernel": "twice", "inputs": [source], "outputs": [target], "grid": [1], "block": [N], **more}


def looped() -> KernelGraph:
    floats = {"dtype": "float32", "shape": [N]}
    body = {
        "inputs": ["i", "go", "v"],
        "tensors": {"v2": floats},
        "nodes": [node("double", "v", "v2")],
        "outputs": ["go", "v2", "v2"],
    }
    return KernelGraph.model_validate(
        {
            "kgrun": 1,
            "tensors": {
                "x": floats | {"role": "input", "init": {"arange": [0, 1]}},
                "first": floats,
                "trips": {"role": "input", "dtype": "int64", "shape": [], "init": {"fill": 3}},
            },
            "kernels": {"twice": {"source": SOURCE, "entry": "twice"}},
            "nodes": [
                node("first", "x", "first", dynamic=True),
                {
                    "name": "loop", "op": "Loop", "inputs": ["trips", None, "first"], "outputs": ["y", "ys"],
                    "subgraphs": {"body": "body"},
                },
            ],
            "outputs": ["y", "ys"],
            "graphs": {"body": body},
        }
    )  # fmt: skip


@pytest.fixture
def driver() -> FakeDriver:
    made = FakeDriver()

    def launch(symbol: str, grid: Any, block: Any, packed: bytes, shared: int) -> None:
        if symbol != "twice":
            return
        x, y = struct.unpack("<QQ", packed)
        made.view(y, 4 * N).view(np.float32)[:] = 2 * made.view(x, 4 * N).view(np.float32)

    made.on_launch = launch
    return made


def test_a_loop_over_a_custom_kernel(driver: FakeDriver) -> None:
    device, x = CudaDevice(driver=driver), np.arange(N, dtype=np.float32)
    with EagerSession(looped(), device=device) as session:
        report = session.run(iterations=2, warmup=1)
        np.testing.assert_array_equal(report.outputs["y"], 16 * x)
        np.testing.assert_array_equal(report.outputs["ys"], np.stack([4 * x, 8 * x, 16 * x]))
        assert [(s.name, len(s.samples), s.grid) for s in report.steps] == [
            ("first", 2, (1, 1, 1)),
            ("loop.double", 6, (1, 1, 1)),
        ]
        assert session.store.pool.check() == []
        held = driver.held
        session.run(iterations=20)
        assert driver.held == held
    assert driver.held == 0
    device.close()


def test_S82_a_dynamic_node_is_waited_for_before_the_next_is_bound(driver: FakeDriver) -> None:
    with EagerSession(looped(), device=CudaDevice(driver=driver)) as session:
        session.run(iterations=1, warmup=0)
        first, second, *_ = (i for i, call in enumerate(driver.calls) if call == "launch")
        assert "synchronize" in driver.calls[first:second]
        session.device.close()


def test_a_fault_in_a_body_names_its_node(driver: FakeDriver) -> None:
    device = CudaDevice(driver=driver)
    session = EagerSession(looped(), device=device, sync_each=True)
    driver.fail("synchronize", ILLEGAL, skip=2)
    with session, pytest.raises(DeviceFault) as caught:
        session.run(iterations=1, warmup=0)
    assert isinstance(caught.value, KgrunError)
    assert "'double'" in caught.value.message
    assert str(caught.value.where) == "graphs.body.nodes[0]"
    device.close()
    assert driver.held == 0


def doubling(name: str, tensors: dict[str, Any], source: str) -> KernelGraph:
    return KernelGraph.model_validate(
        {
            "kgrun": 1,
            "name": name,
            "tensors": tensors | {"y": {"dtype": "float32", "shape": [N]}},
            "kernels": {"twice": {"source": SOURCE, "entry": "twice"}},
            "nodes": [node("n", source, "y")],
            "outputs": ["y"],
        }
    )


def test_S23_captured_graphs_hand_on_an_output_in_place(driver: FakeDriver) -> None:
    first = doubling("a", {"x": {"role": "input", "dtype": "float32", "shape": [N], "init": {"fill": 3}}}, "x")
    second = doubling("b", {"h": {"from_graph": {"graph": "a", "output": "y"}}}, "h")
    device = CudaDevice(driver=driver)
    with Graphs([first, second], device=device) as graphs:
        reports = graphs.run(iterations=2)
        assert reports["b"].outputs["y"].tolist() == [12] * N
        assert reports["b"].not_replayed is None
        assert graphs.static_bytes == 3 * 512
    assert driver.held == 0
    device.close()


def test_shapes_keep_their_captured_graphs(driver: FakeDriver) -> None:
    tensors = {"x": {"role": "input", "dtype": "float32", "shape": ["n", N]}}
    graph = doubling("a", tensors, "x").model_copy(update={"dims": {"n": 1}})
    device = CudaDevice(driver=driver)
    with ShapeSession(graph, device=device) as session:
        for n in (1, 2, 1, 3, 2):
            session({"x": np.ones((n, N), np.float32)})
        assert (session.statistics.plans, driver.calls.count("capture")) == (3, 3)
    assert driver.held == 0
    device.close()
