"""The oracle of memory plans: every mode gives bit-equal outputs, and lower bound ≤ planned ≤ no reuse."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.memory.plan import PLANNERS
from kgrun.runtime.memory.plan_types import MemoryMode
from kgrun.runtime.report import RunReport
from tests.graphs.random_graphs import random_graph


def run(document: dict[str, object], memory: MemoryMode, planner: str = "auto") -> RunReport:
    graph = KernelGraph.model_validate(document)
    with Session(graph, device="cpu", memory=memory, planner=planner) as session:
        return session.run(per_step=False)


def same(one: RunReport, other: RunReport) -> None:
    assert one.outputs.keys() == other.outputs.keys()
    for name, array in one.outputs.items():
        assert array.tobytes() == other.outputs[name].tobytes(), name


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), nodes=st.integers(1, 40))
def test_S44_planned_and_none_give_the_same_bits(seed: int, nodes: int) -> None:
    document = random_graph(random.Random(seed), nodes)
    planned, none = run(document, "planned"), run(document, "none")
    same(planned, none)
    plan = planned.plan
    assert plan.lower_bound_bytes <= plan.dynamic_bytes <= plan.no_reuse_bytes
    assert none.plan.dynamic_bytes == none.plan.no_reuse_bytes
    assert plan.dynamic_bytes <= none.plan.dynamic_bytes
    assert planned.measured_peak_bytes == plan.peak_bytes


@pytest.mark.parametrize("planner", PLANNERS)
def test_S61_S65_every_planner_gives_the_same_bits_and_none_beats_the_lower_bound(planner: str) -> None:
    for seed in range(12):
        document = random_graph(random.Random(seed), 30)
        report = run(document, "planned", planner)
        same(report, run(document, "none"))
        assert report.plan.lower_bound_bytes <= report.plan.dynamic_bytes <= report.plan.no_reuse_bytes


def test_a_second_run_gives_the_same_bits() -> None:
    graph = KernelGraph.model_validate(random_graph(random.Random(3), 40))
    with Session(graph, device="cpu") as session:
        first, second = session.run(), session.run(iterations=3)
    same(first, second)
    assert all(np.isfinite(array).all() for array in first.outputs.values() if array.dtype.kind == "f")


@pytest.mark.parametrize("more", [{"streams": "auto"}, {"checks": ("redzone", "init")}, {"graph_replay": False}])
def test_a_pool_goes_with_streams_and_checks(more: dict[str, Any]) -> None:
    for seed in range(3):
        graph = KernelGraph.model_validate(random_graph(random.Random(seed), 25))
        with Session(graph, device="cpu", memory="none") as session:
            right = session.run(per_step=False)
        with Session(graph, device="cpu", memory="pool", pool_unit=4096, **more) as session:
            report = session.run(per_step=False)
            assert session.device.memory_in_use() == session.plan.peak_bytes
        same(report, right)
        assert report.findings == ()
