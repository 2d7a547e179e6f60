"""Transfers run beside steps: any order that the dependencies allow gives the same bits, and too few are found out."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kgrun.graphs.errors import DoesNotFit, InternalError
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.devices.base import PreparedStep
from kgrun.runtime.devices.cpu import CpuDevice
from kgrun.runtime.memory.offload.apply import IN, OUT
from kgrun.runtime.memory.offload.order import check_order
from kgrun.runtime.memory.offload.residency import check_residency
from kgrun.runtime.program import Program, Transfer
from kgrun.runtime.streams import dependencies, plan_streams
from tests.graphs.random_graphs import random_graph
from tests.runtime.memory.offload.test_offload_oracle import QUICK, needs, run, same
from tests.runtime.memory.offload.test_offload_state import floor_of, results, training


class AnyOrder:
    """A replay that issues steps in a random order of those that their dependencies allow, as a CUDA graph may."""

    def __init__(self, calls: Sequence[Callable[[], None]], after: Sequence[Sequence[int]], seed: int) -> None:
        self.calls, self.after, self.chance = calls, after, random.Random(seed)

    def launch(self) -> None:
        done: set[int] = set()
        late = self.chance.choice(("steps", "transfers", "neither"))
        while len(done) < len(self.calls):
            ready = [i for i in range(len(self.calls)) if i not in done and done.issuperset(self.after[i])]
            best = max(ready) if late == "steps" else min(ready) if late == "transfers" else self.chance.choice(ready)
            self.calls[best]()
            done.add(best)

    def close(self) -> None:
        pass


class ShuffledDevice(CpuDevice):
    """A CPU that replays."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    def capture(self, prepared: Sequence[PreparedStep], after: Sequence[Sequence[int]]) -> AnyOrder:  # type: ignore[override]
        return AnyOrder([step.launch for step in prepared], after, self.seed)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), share=st.floats(0, 0.8))
def test_B11_S101_S124_any_order_that_the_dependencies_allow_gives_the_same_bits(seed: int, share: float) -> None:
    graph = KernelGraph.model_validate(random_graph(random.Random(seed), 20))
    free = run(graph, None)
    assume(free.steps)
    least = needs(graph)["smallest_feasible_limit_bytes"]
    limit = int(least + share * max(free.plan.peak_bytes - least, 0))
    for number in range(2):
        device = ShuffledDevice(seed + number)
        with Session(graph, device=device, memory_limit=limit, time_limit=QUICK) as session:
            same(free, session.run(per_step=False, iterations=2))
        assert device.memory_in_use() == 0


def test_B11_updated_parameters_in_any_order() -> None:
    made = training()
    free, _ = results(made)
    least = floor_of(made)
    for seed in range(10):
        with Session(made, device=ShuffledDevice(seed), memory_limit=least + seed * 4096) as session:
            session.run(iterations=1)
            session.run(iterations=3)
            report = session.run(iterations=2)
            assert {name: array.tobytes() for name, array in report.outputs.items()} == free


def offloaded(seed: int = 5) -> tuple[Program, Session]:
    graph = KernelGraph.model_validate(random_graph(random.Random(seed), 40))
    limit = needs(graph)["smallest_feasible_limit_bytes"]
    session = Session(graph, device="cpu", memory_limit=limit, time_limit=QUICK)
    return session.program, session


def test_S124_transfers_have_streams_of_their_own_one_a_direction() -> None:
    program, session = offloaded()
    session.close()
    streams = {s.stream for s in program.steps if isinstance(s.work, Transfer) and s.work.direction == "in"}
    assert streams == {IN}
    assert {s.stream for s in program.steps if not isinstance(s.work, Transfer)} & {IN, OUT} == set()
    after = dependencies(plan_streams(program))
    last = {}
    for step in program.steps:
        if isinstance(step.work, Transfer):  # first in, first out
            assert step.stream not in last or last[step.stream] in after[step.index]
            last[step.stream] = step.index


def test_B11_S101_a_slot_that_could_be_reused_before_its_copy_ended_is_found_out() -> None:
    """Without the waits for addresses the verifier refuses, whatever step they are taken from."""
    program, session = offloaded()
    session.close()
    check_order(program, session.plan)
    refused = 0
    for step in program.steps:
        if not step.after:
            continue
        fewer = replace(step, after=())
        steps = (*program.steps[: step.index], fewer, *program.steps[step.index + 1 :])
        try:
            check_order(replace(program, steps=steps), session.plan)
        except InternalError:
            refused += 1
    assert refused > 3


def test_S102_S99_a_schedule_that_forgets_a_transfer_is_found_out() -> None:
    program, session = offloaded()
    session.close()
    offload = program.offload
    assert offload is not None
    check_residency(program, offload.homes)
    transfers = [s for s in program.steps if isinstance(s.work, Transfer)]
    assert transfers
    for transfer in transfers:
        idle = replace(transfer, reads=(), writes=(), work=replace(program.steps[0].work))
        if isinstance(idle.work, Transfer):
            continue
        steps = (*program.steps[: transfer.index], idle, *program.steps[transfer.index + 1 :])
        with pytest.raises(InternalError, match="schedule is wrong"):
            check_residency(replace(program, steps=steps), offload.homes)


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_S58_S88_programs_on_several_streams_stay_right(seed: int) -> None:
    """Streams of the file and those of transfers together."""
    chance = random.Random(seed)
    document = random_graph(chance, 20)
    for node in document["nodes"]:
        node["stream"] = chance.choice(("compute", "side", "third"))
    graph = KernelGraph.model_validate(document)
    free = run(graph, None)
    assume(free.steps)
    least = needs(graph)["smallest_feasible_limit_bytes"]
    for limit in (least, (least + free.plan.peak_bytes) // 2):
        try:
            session = Session(graph, device=ShuffledDevice(seed), memory_limit=max(limit, least), time_limit=QUICK)
        except DoesNotFit:  # what runs side by side shares fewer bytes than the bound supposes
            continue
        with session:
            assert session.device.peak_memory() <= max(limit, least)
            same(free, session.run(per_step=False, iterations=2))
