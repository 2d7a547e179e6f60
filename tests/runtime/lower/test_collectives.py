"""Collectives as steps: one call each, on the communication stream, over operands that lie side by side."""

from __future__ import annotations

from typing import Any

import pytest

from kgrun.graphs.bind import bind
from kgrun.runtime.lower import lower
from kgrun.runtime.program import Clear, Copy, LibraryCall, Program
from kgrun.runtime.streams import plan_streams
from tests.support import graph, node, planned, tensor

X = {"x": tensor("input", [64], "float32")}
DOUBLE = {"to": "float64"}  # too large to be written over what it is made of
JOB = {"rank": 0, "world_size": 2}


def job(nodes: list[dict[str, Any]], outputs: list[str], target: str = "cuda", tensors: Any = X) -> Program:
    return lower(bind(graph(nodes, tensors, outputs), dims=JOB), target)


def layers(count: int) -> Program:
    """Compute, AllReduce, and a reader of both, `count` times."""
    nodes, last = [], "x"
    for i in range(count):
        nodes.append(node(f"grad{i}", [last], [f"g{i}"], op="Relu"))
        nodes.append(node(f"sum{i}", [f"g{i}"], [f"s{i}"], op="AllReduce"))
        last = f"g{i}"
    nodes.append(node("use", [f"s{i}" for i in range(count)], ["y"], op="Sum"))
    return job(nodes, ["y"])


@pytest.mark.parametrize(("target", "engine"), [("cpu", "mpi"), ("cuda", "nccl")])
def test_S84_a_collective_is_one_call_of_the_engine(target: str, engine: str) -> None:
    made = job([node("a", ["x"], ["y"], op="AllReduce", attributes={"reduction": "max"})], ["y"], target)
    (step,) = made.steps
    assert isinstance(step.work, LibraryCall)
    assert (step.work.library, step.work.routine) == (engine, "all_reduce")
    assert step.work.config["members"] == [0, 1]
    assert step.work.config["reduction"] == "max"


def test_S7_S9_every_collective_runs_on_the_communication_stream_with_a_wait_before_and_after() -> None:
    made = layers(2)
    streams = plan_streams(made)
    assert set(streams.names) == {"compute", "comm"}
    by_name = {step.name: step.index for step in made.steps}
    found = {(event.record_after, event.wait_before) for event in streams.events}
    # Each waits for the kernel before it; the first that reads them waits for the last, which implies the first.
    assert found == {
        (by_name["grad0"], by_name["sum0"]),
        (by_name["grad1"], by_name["sum1"]),
        (by_name["sum1"], by_name["use"]),
    }
    assert not streams.precedes(by_name["sum0"], by_name["grad1"])  # they may overlap


def test_S85_operands_from_a_pool_stand_side_by_side() -> None:
    nodes = [node("p", ["x"], ["a"], op="Relu"), node("q", ["x"], ["b"], op="Abs")]
    nodes += [node("comm", ["b", "a"], ["u", "v"], op="AllReduce"), node("c", ["u", "v"], ["y"], op="Add")]
    _, by_name = planned(job(nodes, ["y"]), mode="pool")
    assert by_name["a"].offset == by_name["b"].offset + by_name["b"].aligned
    assert by_name["v"].offset == by_name["u"].offset + by_name["u"].aligned


def test_S86_planned_results_are_one_block_and_static_where_one_is_an_output() -> None:
    nodes = [
        node("comm", ["x", "w"], ["u", "v"], op="AllReduce"),
        node("c", ["v"], ["y"], op="Cast", attributes=DOUBLE),
    ]
    tensors = {**X, "w": tensor("parameter", [200], "float32", init={"fill": 1})}
    _, by_name = planned(job(nodes, ["u", "y"], tensors=tensors))
    assert by_name["u"].space == by_name["v"].space == "static"
    assert by_name["v"].offset == by_name["u"].offset + by_name["u"].aligned
    nodes = [*nodes, node("d", ["u"], ["z"], op="Cast", attributes=DOUBLE)]
    _, by_name = planned(job(nodes, ["z", "y"], tensors=tensors))
    assert by_name["u"].space == by_name["v"].space == "dynamic"
    assert by_name["v"].offset == by_name["u"].offset + by_name["u"].aligned
    assert by_name["w"].memory_class == "parameter"  # its bytes are its own (B6)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_rank_alone_has_the_same_program(target: str) -> None:
    made = lower(bind(graph([node("a", ["x"], ["y"], op="AllReduce")], X, ["y"])), target)
    (step,) = made.steps
    assert isinstance(step.work, LibraryCall)
    assert (step.work.routine, step.work.config["members"]) == ("all_reduce", [0])


def test_a_result_that_only_the_root_has_is_cleared_elsewhere() -> None:
    row = node("a", ["x"], ["y"], op="Reduce", collective={"root": 1})
    assert [type(step.work) for step in job([row], ["y"]).steps] == [LibraryCall, Clear]
    row["collective"] = {"root": 0}
    assert [type(step.work) for step in job([row], ["y"]).steps] == [LibraryCall]


def test_a_shard_is_a_copy_from_the_ranks_place() -> None:
    made = lower(
        bind(graph([node("a", ["x"], ["y"], op="Shard")], X, ["y"]), dims={"rank": 1, "world_size": 4}), "cuda"
    )
    (step,) = made.steps
    assert isinstance(step.work, Copy)
    assert (step.work.source.offset, step.work.nbytes) == (64, 64)
