"""Limits: when nothing moves, what the error says, retries, host memory, and what never moves."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from kgrun.graphs.errors import DoesNotFit
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.memory.offload.fit import plan_within, problem_of
from kgrun.runtime.memory.plan import plan_memory
from kgrun.runtime.memory.plan_types import MemoryPlan
from kgrun.runtime.program import Program
from tests.graphs.random_graphs import random_graph
from tests.runtime.memory.offload.test_offload_state import floor_of, training
from tests.support import chain_of, node, overlap, planned, program, tensor


def test_S90_a_graph_that_fits_stays_as_it_is() -> None:
    made = training()
    with Session(made, device="cpu") as session:
        peak = session.plan.peak_bytes
        assert session.program.offload is None
    with Session(made, device="cpu", memory_limit=peak) as session:
        assert session.program.offload is None
        assert session.plan.peak_bytes <= peak
    with Session(made, device="cpu", memory_limit=peak - 1) as session:
        assert session.program.offload is not None


def test_S91_S92_uses_are_read_from_the_program_before_anything_runs() -> None:
    nodes, tensors = chain_of(5)
    made = program(nodes, tensors, ["t4"])
    found = problem_of(made, 1 << 20)
    assert {t.name: t.touches for t in found.tensors} == {
        "x": (0,), "t0": (0, 1), "t1": (1, 2), "t2": (2, 3), "t3": (3, 4), "t4": (4,),
    }  # fmt: skip
    assert {t.name for t in found.tensors if t.persistent} == {"x"}
    assert {t.name for t in found.tensors if t.wanted} == {"t4"}


def test_S97_the_error_has_both_numbers_the_step_and_its_operands() -> None:
    nodes, tensors = chain_of(4, size=10_000)
    nodes[2]["workspace"] = [50_000]
    with pytest.raises(DoesNotFit) as caught:
        plan_within(program(nodes, tensors, ["t3"]), plan_memory, 30_000, "auto")
    error = caught.value
    held = 2 * 10_240 + 50_176
    assert (error.code, error.exit) == ("KG405", 4)
    assert f"step k2 needs {held:,} bytes at once, the limit is 30,000" in error.message
    assert error.details["floor_bytes"] == held
    assert error.details["step"] == "k2"
    assert {row["name"] for row in error.details["culprits"]} == {"t1", "t2", "k2.workspace[0]"}  # type: ignore[attr-defined]
    assert error.details["smallest_feasible_limit_bytes"] == held
    without = plan_memory(program(nodes, tensors, ["t3"])).peak_bytes
    assert error.details["smallest_without_offload_bytes"] == without
    assert f"{held:,} bytes with offload, {without:,} without" in str(error.help)


def test_S97_the_smallest_limit_of_the_error_fits() -> None:
    for seed in range(3):
        made = KernelGraph.model_validate(random_graph(random.Random(seed), 25))
        least = floor_of(made)
        with Session(made, device="cpu", memory_limit=least) as session:
            assert session.plan.peak_bytes <= least


def test_S100_a_schedule_that_packs_too_high_is_made_again_for_less() -> None:
    made = program(*chain_of(3, size=4096), ["t2"])
    nodes = [node(f"f{i}", [f"a{i - 1}" if i else "x"], [f"a{i}"]) for i in range(8)]
    nodes += [node(f"b{i}", [f"a{i}", f"g{i + 1}" if i < 7 else f"a{i}"], [f"g{i}"]) for i in reversed(range(8))]
    tensors = {"x": tensor("input", [4096])}
    tensors |= {f"{k}{i}": tensor(None, [4096]) for k in "ag" for i in range(8)}
    made = program(nodes, tensors, ["g0"])
    limit = 8 * 4096
    tried: list[int] = []

    def pack(subject: Program, **options: Any) -> MemoryPlan:
        plan = plan_memory(subject, **options)
        if subject is not made:
            tried.append(plan.peak_bytes)
            if len(tried) == 1:  # as if fragments had cost another buffer
                return replace(plan, dynamic_bytes=limit)
        return plan

    fitted, plan = plan_within(made, pack, limit, "auto")
    assert len(tried) == 2
    assert plan.peak_bytes <= limit
    assert fitted.offload is not None


def test_S104_each_tensor_has_its_own_place_in_one_block_of_host_memory() -> None:
    made = training(6)
    with Session(made, device="cpu", memory_limit=floor_of(made)) as session:
        offload = session.program.offload
    assert offload is not None
    places = sorted((h.host_offset, h.host_offset + h.nbytes) for h in offload.homes)
    assert all(a[1] <= b[0] for a, b in pairwise(places))
    assert places[-1][1] <= offload.host_bytes
    assert all(low % 512 == 0 for low, _ in places)
    assert len({h.name for h in offload.homes}) == len(offload.homes)


def test_S104_U1_no_room_on_the_host_is_an_error_and_nothing_stays_allocated() -> None:
    from kgrun.runtime.devices.cpu import CpuDevice

    made = training()
    limit = floor_of(made)
    device = CpuDevice()
    with pytest.raises(DoesNotFit, match="offloaded tensors") as caught:
        Session(made, device=device, memory_limit=limit, host_memory_limit=8192)
    assert caught.value.code == "KG404"
    assert device.memory_in_use() == 0
    with Session(made, device=device, memory_limit=limit):
        assert device.host.held > 0
    assert device.host.held == 0


def test_S125_the_schedule_is_kept_from_run_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    made = training()
    with Session(made, device="cpu", memory_limit=floor_of(made)) as session:
        before = session.program

        def again(*_: object, **__: object) -> None:
            raise AssertionError("planned again")

        monkeypatch.setattr("kgrun.runtime.memory.offload.fit.plan_within", again)
        session.run(iterations=2)
        session.run()
        assert session.program is before


@pytest.mark.parametrize("mark", [{"lifelong": True}, {"no_reuse": True}, {"offload": "never"}])
def test_what_must_keep_its_bytes_never_moves(mark: dict[str, Any]) -> None:
    nodes, tensors = chain_of(6, size=4096)
    nodes.append(node("last", ["t0", "t5"], ["y"]))
    tensors |= {"t0": tensor(None, [4096], **mark), "y": tensor(None, [4096])}
    made = program(nodes, tensors, ["y"])
    pack = partial(plan_memory)
    fitted, plan = plan_within(made, pack, 4 * 4096, "auto")
    assert plan.peak_bytes <= 4 * 4096
    assert fitted.offload is not None
    assert "t0" not in {h.name for h in fitted.offload.homes}


def test_contiguous_groups_never_move() -> None:
    nodes = [node("a", ["x"], ["p", "q"]), *chain_of(6, size=4096)[0][1:], node("z", ["p", "q", "t5"], ["y"])]
    nodes.insert(1, node("k0", ["x"], ["t0"]))
    tensors = chain_of(6, size=4096)[1] | {n: tensor(None, [4096]) for n in ("p", "q", "y")}
    made = program(nodes, tensors, ["y"], contiguous=[["p", "q"]])
    fitted, _ = plan_within(made, plan_memory, 5 * 4096, "auto")
    assert fitted.offload is not None
    assert not {h.name for h in fitted.offload.homes} & {"p", "q"}


def test_S89_bytes_that_another_stream_reads_are_not_reused_before_it_is_waited_for() -> None:
    nodes = [
        node("make", ["x"], ["t"]),
        node("send", ["t"], ["u"], stream="comm"),
        node("other", ["x"], ["v"]),
        node("more", ["v"], ["w"]),
        node("join", ["u", "w"], ["y"]),
        node("after", ["y"], ["z"]),
        node("end", ["z"], ["out"]),
    ]
    _, places = planned(program(nodes, {"x": tensor("input")}, ["out"]))
    assert not overlap(places["t"], places["v"])
    assert not overlap(places["t"], places["w"])
    assert overlap(places["t"], places["z"]) or overlap(places["u"], places["z"]) or overlap(places["v"], places["z"])
