"""Binding collectives: groups, roots, peers and shapes from the dimensions of the job."""

from __future__ import annotations

from typing import Any

import pytest

from kgrun.graphs.bind import bind
from kgrun.graphs.bound import BoundGraph
from kgrun.graphs.errors import GraphError
from tests.support import graph, tensor

JOB = {"rank": 1, "world_size": 4}


def one(op: str, dims: dict[str, int] = JOB, dtype: str = "float32", top: Any = None, **more: Any) -> BoundGraph:
    declared = more.pop("tensors", {})
    node = {"name": "n", "op": op, "inputs": ["x"], "outputs": ["y"]} | more
    tensors = {"x": tensor("input", [8, 3], dtype)} if node["inputs"] else {}
    return bind(graph([node], tensors | declared, node["outputs"], **(top or {})), dims=dims)


@pytest.mark.parametrize(
    ("op", "shape"),
    [("AllReduce", (8, 3)), ("Reduce", (8, 3)), ("Broadcast", (8, 3)), ("AllGather", (32, 3)),
     ("ReduceScatter", (2, 3)), ("AllToAll", (8, 3)), ("Shard", (2, 3))],
)  # fmt: skip
def test_shapes_follow_the_number_of_ranks(op: str, shape: tuple[int, ...]) -> None:
    assert one(op).tensors["y"].type.shape == shape
    assert one(op, {}).tensors["y"].type.shape == (8, 3)  # alone


def test_S84_a_collective_needs_no_record_to_be_one() -> None:
    bound = one("AllReduce")
    assert bound.nodes[0].collective is not None
    assert bound.nodes[0].stream == "comm"
    assert one("Shard").nodes[0].stream == "compute"  # nothing moves


def test_each_rank_has_its_own_group_where_the_group_says_so() -> None:
    top = {"groups": {"pair": ["rank // 2 * 2", "rank // 2 * 2 + 1"]}}
    for rank, members in ((0, (0, 1)), (3, (2, 3))):
        dims = {"rank": rank, "world_size": 4}
        call = one("AllGather", dims, top=top, collective={"group": "pair"}).nodes[0].call
        assert call is not None
        assert call.attributes["members"] == members
        assert call.outputs[0].shape == (16, 3)


def test_the_file_may_say_how_many_ranks_there_are() -> None:
    bound = one("AllGather", {}, top={"dims": {"world_size": 2}})
    assert bound.tensors["y"].type.shape == (16, 3)
    assert one("AllGather", {"world_size": 3}, top={"dims": {"world_size": 2}}).dims["world_size"] == 3


@pytest.mark.parametrize(("peer", "known"), [("rank + 1", 2), ("rank - 2", -1), ("world_size", -1), (0, 0)])
def test_a_peer_outside_of_the_job_is_nobody(peer: Any, known: int) -> None:
    call = one("Send", outputs=[], collective={"peer": peer}).nodes[0].call
    assert call is not None
    assert call.attributes["peer"] == known


def test_what_is_received_has_the_declared_type() -> None:
    declared = {"y": tensor(None, ["world_size", 5], "int16")}
    bound = one("Recv", inputs=[], collective={"peer": 0}, tensors=declared)
    assert (bound.tensors["y"].type.dtype, bound.tensors["y"].type.shape) == ("int16", (4, 5))


@pytest.mark.parametrize(
    ("fault", "more"),
    [
        ("there is no group 'g'", {"op": "AllReduce", "collective": {"group": "g"}}),
        ("there are 4 ranks", {"op": "AllReduce", "collective": {"group": "g"}, "top": {"groups": {"g": [1, 4]}}}),
        ("rank 1 is not in", {"op": "AllReduce", "collective": {"group": "g"}, "top": {"groups": {"g": [0, 2]}}}),
        ("is no group", {"op": "AllReduce", "collective": {"group": "g"}, "top": {"groups": {"g": [1, 1]}}}),
        ("the root, rank 9", {"op": "Broadcast", "collective": {"root": 9}}),
        ("AllReduce has no root", {"op": "AllReduce", "collective": {"root": 0}}),
        ("AllReduce has no peer", {"op": "AllReduce", "collective": {"peer": 0}}),
        ("Send needs a peer", {"op": "Send", "outputs": []}),
        ("is no attribute", {"op": "Broadcast", "attributes": {"root": 1}}),
        ("it comes from the group", {"op": "AllReduce", "attributes": {"members": [0, 1]}}),
        ("is one of sum, prod", {"op": "AllReduce", "attributes": {"reduction": "xor"}}),
        ("averages floats, not int32", {"op": "AllReduce", "attributes": {"reduction": "avg"}, "dtype": "int32"}),
        ("does not take bool", {"op": "AllReduce", "dtype": "bool"}),
        ("does not take int16", {"op": "ReduceScatter", "dtype": "int16"}),
        ("8 rows are not divisible among 3", {"op": "ReduceScatter", "dims": {"rank": 0, "world_size": 3}}),
        ("as many results", {"op": "AllReduce", "outputs": ["y", "z"]}),
        ("dtype and shape of what comes", {"op": "Recv", "inputs": [], "collective": {"peer": 0}}),
    ],
)
def test_faults_are_named_with_their_place(fault: str, more: dict[str, Any]) -> None:
    with pytest.raises(GraphError) as caught:
        one(**more)
    assert fault in f"{caught.value.message} {caught.value.help}"
    assert caught.value.where is not None
    assert caught.value.where.path[:2] == ("nodes", 0)
