"""The oracle of offload: bit-equal outputs within the limit, data on the device whenever a step touches them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kgrun.graphs.errors import DoesNotFit
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.memory.offload.records import OffloadMode
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.program import Program, Step, Transfer
from kgrun.runtime.report import RunReport
from tests.graphs.random_graphs import random_graph

QUICK = 5.0  # CPU seconds the planner may search: a net, so that what decides is the nodes it visits


def needs(graph: KernelGraph) -> dict[str, Any]:
    """What the error says when nothing fits."""
    with pytest.raises(DoesNotFit) as caught:
        Session(graph, device="cpu", memory_limit=1, time_limit=QUICK)
    assert caught.value.code == "KG405"
    assert caught.value.exit == 4
    return caught.value.details


def run(graph: KernelGraph, limit: int | None, mode: OffloadMode = "auto", **options: Any) -> RunReport:
    with Session(graph, device="cpu", memory_limit=limit, offload=mode, time_limit=QUICK) as session:
        report = session.run(per_step=False, **options)
        assert limit is None or session.device.peak_memory() <= limit
        return report


def same(one: RunReport, other: RunReport) -> None:
    assert one.outputs.keys() == other.outputs.keys()
    for name, array in one.outputs.items():
        assert array.tobytes() == other.outputs[name].tobytes(), name


class Residency:
    """Follows the bytes of a program in list order: whose data stand where, written by no code of the planner.

    Each byte range has an owner: the original buffer and the number of times it was written. A step may touch a buffer
    only where all its bytes are there and of the latest version; a copy in brings the version the host has.
    """

    def __init__(self, program: Program, plan: MemoryPlan) -> None:
        self.program = program
        self.place = {p.buffer: (p.space, p.offset, p.offset + p.aligned) for p in plan.placements}
        self.origin = {b.index: b.name.partition("@")[0] for b in program.buffers}
        self.version = dict.fromkeys(self.origin.values(), 0)
        self.host = dict.fromkeys(self.version, -1)
        self.owner: list[tuple[str, int, int, int, int]] = []  # space, low, high, buffer, version
        offload = program.offload
        homes = {} if offload is None else {h.name: h for h in offload.homes}
        for buffer in program.buffers:
            home = homes.get(self.origin[buffer.index])
            outside = str(buffer.memory_class) in ("input", "parameter", "constant")
            if outside and home is not None:
                self.host[home.name] = 0
                if home.first == buffer.index:
                    self.take(buffer.index, 0)
            elif outside:
                self.take(buffer.index, 0)

    def take(self, buffer: int, version: int) -> None:
        if buffer not in self.place:
            return
        space, low, high = self.place[buffer]
        rest = []
        for where, start, end, other, held in self.owner:
            if where != space or end <= low or high <= start:
                rest.append((where, start, end, other, held))
        self.owner = [*rest, (space, low, high, buffer, version)]

    def holds(self, buffer: int) -> bool:
        space, low, high = self.place[buffer]
        return (space, low, high, buffer, self.version[self.origin[buffer]]) in self.owner

    def step(self, step: Step) -> None:
        if isinstance(step.work, Transfer):
            buffer = step.work.pointer.buffer
            name = self.origin[buffer]
            if step.work.direction == "out":
                assert self.holds(buffer), f"{step.name} copies out what is not there"
                self.host[name] = self.version[name]
            else:
                assert self.host[name] == self.version[name], f"{step.name} copies in old data"
                self.take(buffer, self.version[name])
            return
        for buffer in step.reads:
            if buffer in self.place and str(self.program.buffers[buffer].memory_class) != "workspace":
                assert self.holds(buffer), f"{step.name} reads {self.program.buffers[buffer].name}, which is not there"
        for buffer in step.writes:
            if buffer in self.place:
                name = self.origin[buffer]
                if self.version[name] > 0:
                    assert self.holds(buffer), f"{step.name} overwrites {name}, which is not there"
                self.version[name] += 1
                self.take(buffer, self.version[name])

    def end(self) -> None:
        """What lives on is where the program says."""
        for home in self.program.offload.homes if self.program.offload is not None else ():
            if home.persistent or home.memory_class == "output":
                if home.last is None:
                    assert self.host[home.name] == self.version[home.name], f"{home.name} is nowhere after the run"
                else:
                    assert self.holds(home.last), f"{home.name} is not where it should be after the run"
                if home.first is not None:
                    assert home.first == home.last


def check_residency(report: RunReport) -> None:
    follower = Residency(report.program, report.plan)
    for step in report.program.steps:
        follower.step(step)
    follower.end()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), nodes=st.integers(2, 40), share=st.floats(0, 1), poison=st.booleans())
def test_S95_S97_S101_S102_any_limit_from_the_floor_on_gives_the_same_bits(
    seed: int, nodes: int, share: float, poison: bool
) -> None:
    graph = KernelGraph.model_validate(random_graph(random.Random(seed), nodes))
    free = run(graph, None)
    assume(free.steps)
    found = needs(graph)
    least = found["smallest_feasible_limit_bytes"]
    assert found["floor_bytes"] <= least <= max(free.plan.peak_bytes, least)
    limit = int(least + share * max(free.plan.peak_bytes - least, 0))
    for mode in ("auto", "seeds"):
        try:
            report = run(graph, limit, mode, poison=poison, iterations=2)  # type: ignore[arg-type]
        except DoesNotFit:
            assert mode == "seeds"
            continue
        assert report.plan.peak_bytes <= limit
        check_residency(report)
        same(free, report)


def never_copied_out(report: RunReport) -> set[str]:
    """Names of tensors that transfers bring in only."""
    rows = report.program.offload.transfers if report.program.offload is not None else ()
    out = {row.tensor for row in rows if row.direction == "out"}
    return {row.tensor for row in rows} - out


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_S99_S102_what_nobody_writes_is_never_copied_out(seed: int) -> None:
    graph = KernelGraph.model_validate(random_graph(random.Random(seed), 30))
    report = run(graph, needs(graph)["smallest_feasible_limit_bytes"])
    if report.program.offload is None:
        return
    clean = {h.name for h in report.program.offload.homes if h.persistent and not h.updated}
    moved = {row.tensor for row in report.program.offload.transfers}
    assert clean & moved <= never_copied_out(report)


def test_the_same_limit_gives_the_same_schedule() -> None:
    graph = KernelGraph.model_validate(random_graph(random.Random(5), 40))
    limit = needs(graph)["smallest_feasible_limit_bytes"]
    one, two = run(graph, limit), run(graph, limit)
    assert one.program.offload is not None
    assert two.program.offload is not None
    assert one.program.offload.transfers == two.program.offload.transfers
    assert np.array_equal([p.offset for p in one.plan.placements], [p.offset for p in two.plan.placements])
