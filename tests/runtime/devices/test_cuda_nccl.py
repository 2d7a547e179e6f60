"""NCCL's library against fake bindings: what is called with which addresses, counts and numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from kgrun.graphs.bind import bind
from kgrun.graphs.errors import DeviceFault, DeviceUnavailable
from kgrun.runtime.collectives import ranks
from kgrun.runtime.devices import cuda_nccl
from kgrun.runtime.devices.cuda_nccl import Nccl
from kgrun.runtime.lower import lower
from kgrun.runtime.program import LibraryCall
from tests.runtime.devices.fake_cuda_driver import FakeDriver
from tests.support import graph, node, tensor

STREAM, COMM = 7, "comm of 3"
ID = bytes(range(128))
CALLS = ("all_reduce", "reduce", "reduce_scatter", "all_gather", "broadcast", "send", "recv", "group_start",
         "group_end", "comm_abort", "comm_destroy")  # fmt: skip


class FakeMeeting:
    """Everybody says what is awaited."""

    def __init__(self) -> None:
        self.posted: dict[str, Any] = {}
        self.alarms: list[Callable[[], None]] = []

    def post(self, key: str, value: Any) -> None:
        self.posted[key] = value

    def collect(self, key: str, members: Any, doing: str) -> list[Any]:
        return [self.posted.get(key, ID.hex())]

    def when_one_ends(self, call: Callable[[], None]) -> None:
        self.alarms.append(call)


class FakeWorld:
    def __init__(self, rank: int) -> None:
        self.info, self.meeting, self.everyone = ranks.RankInfo(rank, 3, rank), FakeMeeting(), (0, 1, 2)
        self.proposed: list[Any] = []

    def propose(self, *what: Any) -> None:
        self.proposed.append(what)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of the bindings, in order; a name in `refuses` of the log's first entry fails."""
    calls: list[Any] = []
    fake: Any = ModuleType("nccl.bindings.nccl")

    def record(name: str) -> Callable[..., Any]:
        return lambda *arguments: calls.append((name, *arguments))

    for name in CALLS:
        setattr(fake, name, record(name))
    fake.get_version = lambda: 22_703
    fake.get_unique_id = lambda: ID
    fake.comm_init_rank_scalable = lambda *arguments: calls.append(("init", *arguments)) or f"comm of {arguments[0]}"
    for name in ("nccl", "nccl.bindings"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "nccl.bindings.nccl", fake)
    return calls


def prepared(
    monkeypatch: pytest.MonkeyPatch, op: str, shape: tuple[int, ...] = (6, 2), dtype: str = "float32", rank: int = 1,
    count: int = 1, **more: Any,
) -> tuple[Nccl, FakeWorld, list[Callable[[], None]]]:  # fmt: skip
    world = FakeWorld(rank)
    monkeypatch.setattr(cuda_nccl, "current_for", lambda *_: world)
    inputs, outputs = [f"x{i}" for i in range(count)], [f"y{i}" for i in range(count)]
    tensors = {name: tensor("input", shape, dtype) for name in inputs}
    row = node("n", inputs, outputs, op=op) | more
    # A graph has outputs; a node that makes none stands beside one that does.
    others = [] if row["outputs"] else [node("copy", ["x0"], outputs, op="Shard")]
    if op == "Recv":
        tensors = {"y0": tensor(None, shape, dtype)}
    made = lower(bind(graph([row, *others], tensors, outputs), dims={"rank": rank, "world_size": 3}), "cuda")
    library = Nccl(FakeDriver())  # type: ignore[arg-type]
    places = {buffer.name: 4096 * (1 + buffer.index) for buffer in made.buffers}
    calls = [step.work for step in made.steps if isinstance(step.work, LibraryCall)]
    return library, world, [
        library.prepare(call, lambda p: places[made.buffers[p.buffer].name] + p.offset) for call in calls
    ]  # fmt: skip


X, Y = 4096, 8192
ROWS = [
    ("AllReduce", {"attributes": {"reduction": "avg"}}, [("all_reduce", X, Y, 12, 7, 4, COMM, STREAM)]),
    ("AllReduce", {"dtype": "bfloat16"}, [("all_reduce", X, Y, 12, 9, 0, COMM, STREAM)]),
    ("AllReduce", {"dtype": "uint8", "attributes": {"reduction": "min"}},
     [("all_reduce", X, Y, 12, 1, 3, COMM, STREAM)]),
    ("Reduce", {"collective": {"root": 2}}, [("reduce", X, Y, 12, 7, 0, 2, COMM, STREAM)]),
    ("ReduceScatter", {"attributes": {"reduction": "max"}},
     [("reduce_scatter", X, Y, 4, 7, 2, COMM, STREAM)]),
    ("AllGather", {"dtype": "bool"}, [("all_gather", X, Y, 12, 1, COMM, STREAM)]),
    ("Broadcast", {"dtype": "float8_e5m2", "collective": {"root": 1}},
     [("broadcast", X, Y, 12, 1, 1, COMM, STREAM)]),
    ("Send", {"outputs": [], "collective": {"peer": 2}}, [("send", X, 48, 1, 2, COMM, STREAM)]),
    ("Recv", {"inputs": [], "collective": {"peer": 0}}, [("recv", X, 48, 1, 0, COMM, STREAM)]),
    ("Barrier", {"inputs": [], "outputs": []}, [("all_reduce", X + Y, X + Y, 1, 2, 0, COMM, STREAM)]),
    ("AllToAll", {"dtype": "int16"},
     [("group_start",),
      ("send", X, 8, 1, 0, COMM, STREAM), ("recv", Y, 8, 1, 0, COMM, STREAM),
      ("send", X + 8, 8, 1, 1, COMM, STREAM), ("recv", Y + 8, 8, 1, 1, COMM, STREAM),
      ("send", X + 16, 8, 1, 2, COMM, STREAM), ("recv", Y + 16, 8, 1, 2, COMM, STREAM),
      ("group_end",)]),
]  # fmt: skip


@pytest.mark.parametrize(("op", "more", "calls"), ROWS)
def test_S84_each_collective_is_what_nccl_calls_it(
    monkeypatch: pytest.MonkeyPatch, log: list[Any], op: str, more: dict[str, Any], calls: list[Any]
) -> None:
    _, _, (run,) = prepared(monkeypatch, op, **more)
    assert log == [("init", 3, 1, 1, bytearray(ID), 0)]
    run()
    run()
    assert log[1:] == calls * 2


def test_several_tensors_are_one_group(monkeypatch: pytest.MonkeyPatch, log: list[Any]) -> None:
    _, _, (run,) = prepared(monkeypatch, "AllGather", count=2)
    run()
    assert [call[0] for call in log[1:]] == ["group_start", "all_gather", "all_gather", "group_end"]


def test_S57_neighbours_are_one_call(monkeypatch: pytest.MonkeyPatch, log: list[Any]) -> None:
    _, world, (run,) = prepared(monkeypatch, "AllReduce", (1024,), count=2)  # a page each, in a row
    run()
    assert log[1:] == [("all_reduce", X, X + 2 * 4096, 2048, 7, 0, COMM, STREAM)]
    assert world.proposed[0][0][2] is True  # all ranks must have fused it


def test_the_first_rank_of_a_group_makes_its_id(monkeypatch: pytest.MonkeyPatch, log: list[Any]) -> None:
    _, world, _ = prepared(monkeypatch, "AllReduce", rank=0)
    assert world.meeting.posted == {"nccl:0.1.2": ID.hex()}
    assert log[0][:3] == ("init", 3, 0)


def test_communicators_are_aborted_when_a_rank_ends_and_not_destroyed_then(
    monkeypatch: pytest.MonkeyPatch, log: list[Any]
) -> None:
    library, world, (run,) = prepared(monkeypatch, "AllReduce")
    for alarm in world.meeting.alarms * 2:
        alarm()
    with pytest.raises(DeviceFault) as caught:
        run()
    assert caught.value.code == "KG620"
    library.close(lost=False)
    assert [call[0] for call in log[1:]] == ["comm_abort"]


def test_communicators_are_destroyed_while_there_is_a_context(monkeypatch: pytest.MonkeyPatch, log: list[Any]) -> None:
    for lost, expected in ((True, []), (False, ["comm_destroy"])):
        log.clear()
        library, _, _ = prepared(monkeypatch, "AllReduce")
        library.close(lost)
        library.close(lost)
        assert [call[0] for call in log[1:]] == expected


def test_a_refused_call_names_the_node(monkeypatch: pytest.MonkeyPatch, log: list[Any]) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("unhandled system error")

    monkeypatch.setattr(sys.modules["nccl.bindings.nccl"], "all_reduce", refuse, raising=False)
    _, _, (run,) = prepared(monkeypatch, "AllReduce")
    with pytest.raises(DeviceFault, match="NCCL refused 'n': unhandled system error") as caught:
        run()
    assert caught.value.code == "KG603"


def test_without_nccl_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nccl.bindings.nccl", None)
    with pytest.raises(DeviceUnavailable) as caught:
        Nccl(FakeDriver())  # type: ignore[arg-type]
    assert caught.value.code == "KG707"
    assert "kgrun[nccl]" in str(caught.value.help)
