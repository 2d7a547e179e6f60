"""Node by node, several graphs, many shapes: the same on the GPU as on the CPU, and no memory left behind."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.dump import DumpConfig
from kgrun.runtime.eager import EagerSession
from kgrun.runtime.several import Graphs
from kgrun.runtime.shapes import ShapeSession
from tests.graphs.random_graphs import random_graph
from tests.support import graph, node, tensor

F = "float32"
BODY = {
    "inputs": ["i", "go", "v"],
    "tensors": {"limit": {"role": "constant", "dtype": F, "value": 50.0}},
    "nodes": [
        node("double", ["v", "v"], ["v2"], op="Add"),
        node("sum", ["v2"], ["s"], op="ReduceSum", attributes={"keepdims": 0}),
        node("more", ["s", "limit"], ["on"], op="Less"),
    ],
    "outputs": ["on", "v2", "v2"],
}


def control() -> KernelGraph:
    nodes = [
        node("loop", ["trips", "yes", "x"], ["y", "ys"], op="Loop", subgraphs={"body": "body"}),
        node("places", ["y"], ["p"], op="NonZero"),
        node("turned", ["p"], ["q"], op="Transpose"),
    ]
    tensors = {
        "x": tensor("input", ["n"], F),
        "trips": {"role": "constant", "dtype": "int64", "value": 20},
        "yes": {"role": "constant", "dtype": "bool", "value": True},
    }
    return graph(nodes, tensors, ["y", "ys", "q"], graphs={"body": BODY})


def test_loops_and_shapes_that_only_the_run_tells(device: CudaDevice) -> None:
    x: np.ndarray[Any, Any] = np.array([1, 0, 2, 0, 1], F)
    with EagerSession(control(), device="cpu", values={"x": x}) as session:
        wanted = session.run().outputs
    held = device.memory_in_use()
    with EagerSession(control(), device=device, values={"x": x}) as session:
        report = session.run()
        assert {n: a.shape for n, a in report.outputs.items()} == {"y": (5,), "ys": (4, 5), "q": (3, 1)}
        for name, array in wanted.items():
            np.testing.assert_array_equal(report.outputs[name], array)
        assert all(step.times is not None for step in report.steps)
        peak = device.peak_memory()
        session.run(iterations=200)
        assert device.peak_memory() == peak
        assert session.store.pool.check() == []
    assert device.memory_in_use() == held


@pytest.mark.timeout(300)
def test_U9_random_graphs_planned_and_single_give_the_same_bits(device: CudaDevice) -> None:
    for seed in range(10):
        made = KernelGraph.model_validate(random_graph(random.Random(seed), 25))
        with Session(made, device=device) as session:
            planned = session.run(iterations=1, per_step=False).outputs
        with EagerSession(made, device=device) as session:
            single = session.run(iterations=2, poison=True).outputs
        for name, array in planned.items():
            assert array.tobytes() == single[name].tobytes(), (seed, name)


@pytest.mark.parametrize("kind", [Session, EagerSession])
def test_dumps_are_the_tensors_as_they_were_made(device: CudaDevice, tmp_path: Any, kind: type[Any]) -> None:
    document = random_graph(random.Random(7), 30)
    made = KernelGraph.model_validate(document)
    for place, name in ((device, "gpu"), ("cpu", "cpu")):
        with kind(made, device=place) as session:
            session.run(iterations=2, dump=DumpConfig(("all",), tmp_path / name))
    files = sorted(path.name for path in (tmp_path / "cpu" / "iteration_0").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "gpu" / "iteration_0").iterdir())
    for file in files:
        on_gpu, on_cpu = (np.load(tmp_path / name / "iteration_0" / file) for name in ("gpu", "cpu"))
        np.testing.assert_allclose(on_gpu.astype(float), on_cpu.astype(float), rtol=2e-2, atol=1e-3, err_msg=file)


def test_many_shapes_are_captured_once_each(device: CudaDevice) -> None:
    from tests.runtime.shapes.test_shape_session import layers

    rng = np.random.default_rng(3)
    inputs = {n: rng.uniform(-1, 1, (n, 16)).astype(F) for n in (1, 7, 64, 300, 7, 1)}
    held = device.memory_in_use()
    with ShapeSession(layers(), device=device) as session:
        for _ in range(2):
            for x in inputs.values():
                with Session(layers(), device="cpu", values={"x": x}) as exact:
                    wanted = exact.run().outputs
                for name, array in session({"x": x}).items():
                    np.testing.assert_allclose(array, wanted[name], rtol=1e-4, atol=1e-5)
        assert session.statistics.plans == len(inputs)
    assert device.memory_in_use() == held


def test_two_graphs_hand_on_an_output_in_place(device: CudaDevice) -> None:
    from tests.runtime.several.test_graphs import X, first, second

    with Graphs([first(), second()], device="cpu", values={"a": {"x": X}}) as graphs:
        wanted = graphs.run()["b"].outputs["y"]
    held = device.memory_in_use()
    with Graphs([first(), second()], device=device, values={"a": {"x": X}}) as graphs:
        reports = graphs.run()
        np.testing.assert_allclose(reports["b"].outputs["y"], wanted, rtol=1e-4)
        assert reports["b"].not_replayed is None
    assert device.memory_in_use() == held
