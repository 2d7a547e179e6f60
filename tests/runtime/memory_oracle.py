"""The oracle of memory modes: one graph, every mode, several limits; the same bits, and never a byte over the limit.

A mode is a set of Session arguments: what adds a way of running out of less memory adds a row to `MODES`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from kgrun.graphs.errors import DoesNotFit
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.devices.cpu import CpuDevice
from kgrun.runtime.memory.plan_types import MemoryPlan
from tests.graphs.random_graphs import Graph, random_graph

MODES: Mapping[str, Mapping[str, Any]] = {
    "planned": {"offload": "off"},
    "offload": {"offload": "auto"},
    "pool": {"memory": "pool"},
    "pool of small blocks": {"memory": "pool", "pool_unit": 4_096},
    "none": {"memory": "none"},
}
RUNS = 2  # updates of parameters add up over them


def graph_with_updates(rng: random.Random, nodes: int = 30) -> Graph:
    """A random graph in which most parameters are halved by every run, with contiguous groups and lifelong tensors.

    The halved parameters are the last outputs; their names end in `.halved`.
    """
    graph = random_graph(rng, nodes)
    made = {output: node for node in graph["nodes"] for output in node["outputs"]}
    overwritten = {name for node in graph["nodes"] for name in node.get("inplace", {}).values()}
    free = [n for n, node in made.items() if n not in overwritten and not node.get("inplace") and _runs(node)]
    rng.shuffle(free)
    if len(free) >= 4 and rng.random() < 0.5:
        graph["contiguous"] = [free[:2], free[2:4]] if rng.random() < 0.5 else [free[:3]]
    for name in free[4:6]:
        if rng.random() < 0.5:
            graph["tensors"][name] = {"lifelong": True}
    viewed = {node["inputs"][0] for node in graph["nodes"] if not _runs(node)}  # others may still look at its bytes
    for name, tensor in list(graph["tensors"].items()):
        if tensor.get("role") != "parameter" or name in viewed or rng.random() < 0.2:
            continue
        half = f"{name}.half"
        graph["tensors"][half] = {"role": "constant", "dtype": tensor["dtype"], "value": 0.5}
        node = {"name": f"halve_{name}", "op": "Mul", "inputs": [name, half], "outputs": [f"{name}.halved"]}
        graph["nodes"].append(node | {"inplace": {f"{name}.halved": name}})
        graph["outputs"].append(f"{name}.halved")
    return graph


def _runs(node: Graph) -> bool:
    return node["op"] not in ("Identity", "Reshape", "Flatten", "Unsqueeze")


class Outcome:
    """One run: its outputs and plan, or the error where it did not fit; what the device counted."""

    def __init__(
        self, graph: Graph, mode: str, limit: int | None = None, memory: int | None = None, seconds: float = 0.02
    ) -> None:
        """`limit` is the session's, `memory` the simulated device's; a planner may search for so many seconds."""
        self.device = CpuDevice(memory=memory)
        self.outputs: Mapping[str, np.ndarray[Any, Any]] = {}
        self.plan: MemoryPlan | None = None
        self.error: DoesNotFit | None = None
        try:
            model = KernelGraph.model_validate(graph)
            with Session(model, device=self.device, memory_limit=limit, time_limit=seconds, **MODES[mode]) as session:
                self.plan = session.plan
                self.outputs = session.run(iterations=RUNS, per_step=False).outputs
        except DoesNotFit as error:
            self.error = error
        assert self.device.memory_in_use() == 0, "a leak"
        self.peak = self.device.peak_memory()


def check_graph(seed: int, nodes: int = 30) -> None:
    """All modes, without limits and at several: raises AssertionError where a promise is broken."""
    graph = graph_with_updates(random.Random(seed), nodes)
    right = Outcome(graph, "none")
    check_updates(graph, right)
    for mode in MODES:
        free = Outcome(graph, mode)
        same_bits(right, free)
        assert free.plan is not None
        check_blocks(free.plan)
        assert free.peak == free.plan.peak_bytes
        assert free.plan.lower_bound_bytes <= free.plan.dynamic_bytes
        for limit in limits(free.plan):
            check_limit(right, graph, mode, limit)


def limits(plan: MemoryPlan) -> Iterator[int]:
    """From what the mode takes without a limit down to where nothing can run."""
    least, most = plan.static_bytes + plan.lower_bound_bytes, plan.peak_bytes
    yield from dict.fromkeys((most, most - 1, (least + most) // 2, least, least - 1, plan.static_bytes - 1))


def check_limit(right: Outcome, graph: Graph, mode: str, limit: int) -> None:
    """The run fits and has the right bits, or fails with exit 4 and names a limit at which it does fit.

    Without reuse the error names a limit of planned mode for the same program, without in-place results that only
    planned mode grants: there is no session to try it with. With offload it also names one that needs no offload.
    """
    found = Outcome(graph, mode, limit)
    assert found.peak <= limit
    if found.error is None:
        same_bits(right, found)
        return
    told = found.error.details
    assert found.error.exit == 4
    smallest = told["smallest_without_offload_bytes" if mode == "offload" else "smallest_feasible_limit_bytes"]
    assert isinstance(smallest, int)
    if mode == "none":
        return
    assert smallest > limit
    again = Outcome(graph, mode, smallest, seconds=2.0)
    assert again.error is None, again.error
    assert again.peak <= smallest
    same_bits(right, again)


def check_device(seed: int, nodes: int = 30) -> None:
    """A device with too little memory refuses what a plan without a limit wants, and keeps nothing."""
    graph = graph_with_updates(random.Random(seed), nodes)
    for mode in MODES:
        free = Outcome(graph, mode)
        assert free.plan is not None
        assert Outcome(graph, mode, memory=free.plan.peak_bytes).error is None
        short = Outcome(graph, mode, memory=free.plan.peak_bytes - 1)
        assert short.peak < free.plan.peak_bytes
        if mode.startswith("pool"):
            continue  # it looks at the device first, and may find another way
        assert short.error is not None
        assert short.error.code == "KG410"


def same_bits(one: Outcome, other: Outcome) -> None:
    """Outputs are equal to the last bit."""
    assert one.outputs.keys() == other.outputs.keys() != set()
    for name, array in one.outputs.items():
        assert array.tobytes() == other.outputs[name].tobytes(), name


def check_updates(graph: Graph, outcome: Outcome) -> None:
    """Every updated parameter is what so many halvings make of it, exactly."""
    for name in graph["outputs"]:
        if name.endswith(".halved"):
            source = name.removesuffix(".halved")
            tensor = graph["tensors"][source] | {"role": "input"}
            alone = {"kgrun": 1, "tensors": {source: tensor}, "outputs": ["y"]}
            alone["nodes"] = [{"name": "n", "op": "Abs", "inputs": [source], "outputs": ["y"]}]
            with Session(KernelGraph.model_validate(alone), device="cpu") as session:
                before = session.run().outputs["y"]
            assert np.array_equal(np.abs(outcome.outputs[name]), before * 0.5**RUNS), name


def check_blocks(plan: MemoryPlan) -> None:
    """No buffer crosses the border of two pieces of device memory."""
    borders = np.cumsum([0, *plan.blocks])
    assert borders[-1] == plan.dynamic_bytes
    for place in plan.placements:
        if place.space == "dynamic":
            block = np.searchsorted(borders, place.offset, side="right") - 1
            assert borders[block] <= place.offset
            assert place.offset + place.aligned <= borders[block + 1]
