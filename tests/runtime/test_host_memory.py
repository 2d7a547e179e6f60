"""What the host has to give, and the refusal of more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import DoesNotFit
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session, host_memory
from kgrun.runtime.devices.cpu import CpuDevice

MIB = 1 << 20


def test_available_is_between_nothing_and_the_whole() -> None:
    assert 0 < host_memory.available_memory() <= host_memory.total_memory()


def test_more_than_there_is_is_refused_with_both_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "available_memory", lambda: 100 * MIB)
    host_memory.check_room(100 * MIB, "a copy")
    with pytest.raises(DoesNotFit, match="a copy: 104,857,601 bytes, 104,857,600 are free") as caught:
        host_memory.check_room(100 * MIB + 1, "a copy")
    assert (caught.value.exit, caught.value.code) == (4, "KG402")


def test_the_cpu_device_takes_no_more_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "available_memory", lambda: 100 * MIB)
    device = CpuDevice()
    with pytest.raises(DoesNotFit):
        device.allocate(101 * MIB)
    assert device.memory_in_use() == 0


@pytest.mark.parametrize("what", ["input", "output"])
def test_copies_on_the_host_are_counted_too(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    large = 8 << 20  # floats: 32 MiB
    x = {"role": "input", "dtype": "float32", "shape": [large if what == "input" else 1], "init": {"fill": 1}}
    nodes: list[Any] = [{"name": "a", "op": "ReduceSum", "inputs": ["x"], "outputs": ["y"]}]
    tensors: dict[str, Any] = {"x": x}
    if what == "output":
        tensors["s"] = {"role": "constant", "value": [large]}
        nodes = [{"name": "a", "op": "Expand", "inputs": ["x", "s"], "outputs": ["y"]}]
    graph = KernelGraph.model_validate({"kgrun": 1, "tensors": tensors, "nodes": nodes, "outputs": ["y"]})
    with Session(graph, device="cpu") as session:
        monkeypatch.setattr(host_memory, "available_memory", lambda: 20 * MIB)
        with pytest.raises(DoesNotFit, match="copy of 'x'" if what == "input" else "output 'y'"):
            session.run()
        monkeypatch.undo()
        assert np.all(session.run().outputs["y"] == (large if what == "input" else 1))


def doubled(elements: int) -> KernelGraph:
    """y = w + w, and w halved in place: an upload, an output and a snapshot of `elements` floats."""
    tensors: dict[str, Any] = {
        "w": {"role": "parameter", "dtype": "float32", "shape": [elements], "init": {"fill": 8.0}},
        "half": {"role": "constant", "dtype": "float32", "value": 0.5},
    }
    nodes: list[Any] = [
        {"name": "a", "op": "Add", "inputs": ["w", "w"], "outputs": ["y"]},
        {"name": "b", "op": "Mul", "inputs": ["w", "half"], "outputs": ["v"], "inplace": {"v": "w"}},
    ]
    return KernelGraph.model_validate({"kgrun": 1, "tensors": tensors, "nodes": nodes, "outputs": ["y", "v"]})


@pytest.mark.parametrize(
    ("limit", "what"), [(999, "a copy of 'w'"), (1_999, "output 'y'"), (2_999, "output 'v'"), (3_000, None)]
)
def test_a_limit_on_host_memory_counts_copies_snapshots_and_outputs(limit: int, what: str | None) -> None:
    device = CpuDevice()

    def run() -> None:
        with Session(doubled(250), device=device, host_memory_limit=limit) as session:
            outputs = session.run(iterations=1, warmup=1).outputs
            assert outputs["y"].tolist() == [16.0] * 250
            assert outputs["v"].tolist() == [4.0] * 250
            assert device.host.peak <= limit

    if what is None:
        run()
    else:
        with pytest.raises(DoesNotFit, match=f"{what} takes 1,000 bytes") as caught:
            run()
        assert (caught.value.exit, caught.value.code) == (4, "KG404")
        assert caught.value.details["limit_bytes"] == limit
    assert device.memory_in_use() == 0
    assert device.host.limit is None  # the limit was the session's


def test_what_holds_nothing_any_more_is_not_counted() -> None:
    host = host_memory.HostMemory(100)
    host.hold("one", 60)
    host.hold("one", 80)  # in place of the 60
    with pytest.raises(DoesNotFit, match="80 are held, most by one"):
        host.hold("two", 21)
    host.hold("two", 20)
    host.drop("one")
    host.hold("three", 80)
    assert (host.held, host.peak) == (100, 100)
