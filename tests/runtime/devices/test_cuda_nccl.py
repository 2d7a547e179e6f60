"""NCCL's library against fake bindings: what is called with which addresses, counts and numbers."""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.bind import bind
from kgrun.graphs.errors import DeviceFault, DeviceUnavailable, TimeoutExpired
from kgrun.runtime.collectives import alone, ranks
from kgrun.runtime.devices import cuda_nccl
from kgrun.runtime.devices.cuda_libraries import Libraries
from kgrun.runtime.devices.cuda_nccl import Nccl
from kgrun.runtime.lower import lower
from kgrun.runtime.program import LibraryCall
from tests.runtime.devices.fake_cuda_driver import FakeDriver
from tests.runtime.devices.fake_nccl import ID, SIGNATURES, Comm, Log, install
from tests.support import graph, node, tensor

STREAM, COMM = 7, "comm of 3"


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
    def __init__(self, rank: int, size: int = 3) -> None:
        self.info, self.meeting = ranks.RankInfo(rank, size, rank), FakeMeeting()
        self.everyone = tuple(range(size))
        self.proposed: list[Any] = []
        self.patience = 50

    def occasion(self, what: str) -> str:
        return f"{what}:1"

    def propose(self, *what: Any) -> None:
        self.proposed.append(what)

    def wait(self, request: Any, members: Any, node: str, turn: int) -> None:
        for _ in range(self.patience):
            if request.done():
                return
            time.sleep(0.01)
        raise TimeoutExpired("ranks 0, 2 did not come", code="KG904")


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """The calls of the bindings, in order."""
    return install(monkeypatch)


def shown(calls: Sequence[Any]) -> list[Any]:
    """Calls with communicators as words."""
    return [tuple(repr(each) if isinstance(each, Comm) else each for each in call) for call in calls]


def prepared(
    monkeypatch: pytest.MonkeyPatch, op: str, shape: tuple[int, ...] = (6, 2), dtype: str = "float32", rank: int = 1,
    count: int = 1, size: int = 3, **more: Any,
) -> tuple[Nccl, FakeWorld, list[Callable[[], None]]]:  # fmt: skip
    world = FakeWorld(rank, size)
    monkeypatch.setattr(cuda_nccl, "current_for", lambda *_: world)
    inputs, outputs = [f"x{i}" for i in range(count)], [f"y{i}" for i in range(count)]
    tensors = {name: tensor("input", shape, dtype) for name in inputs}
    row = node("n", inputs, outputs, op=op) | more
    # A graph has outputs; a node that makes none stands beside one that does.
    others = [] if row["outputs"] else [node("copy", ["x0"], outputs, op="Shard")]
    if op == "Recv":
        tensors = {"y0": tensor(None, shape, dtype)}
    made = lower(bind(graph([row, *others], tensors, outputs), dims={"rank": rank, "world_size": size}), "cuda")
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
    monkeypatch: pytest.MonkeyPatch, log: Log, op: str, more: dict[str, Any], calls: list[Any]
) -> None:
    _, _, (run,) = prepared(monkeypatch, op, **more)
    assert log == [("comm_init_rank_scalable", 3, 1, 1, bytearray(ID), 0)]
    run()
    run()
    assert shown(log[1:]) == calls * 2


def test_several_tensors_are_one_group(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    _, _, (run,) = prepared(monkeypatch, "AllGather", count=2)
    run()
    assert [call[0] for call in log[1:]] == ["group_start", "all_gather", "all_gather", "group_end"]


def test_S57_neighbours_are_one_call(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    _, world, (run,) = prepared(monkeypatch, "AllReduce", (1024,), count=2)  # a page each, in a row
    run()
    assert shown(log[1:]) == [("all_reduce", X, X + 2 * 4096, 2048, 7, 0, COMM, STREAM)]
    assert world.proposed[0][0][2] is True  # all ranks must have fused it


def test_the_first_rank_of_a_group_makes_its_id(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    _, world, _ = prepared(monkeypatch, "AllReduce", rank=0)
    assert world.meeting.posted == {"nccl:0.1.2:1": ID.hex()}
    assert log[0][:3] == ("comm_init_rank_scalable", 3, 0)


def test_communicators_are_aborted_when_a_rank_ends_and_not_destroyed_then(
    monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    library, world, (run,) = prepared(monkeypatch, "AllReduce")
    for alarm in world.meeting.alarms * 2:
        alarm()  # by the thread that listens: it must not wait for NCCL
    with pytest.raises(DeviceFault) as caught:
        run()
    assert caught.value.code == "KG620"
    library.close(lost=False)
    assert [call[0] for call in log[1:]] == ["comm_abort"]


def test_communicators_are_destroyed_while_there_is_a_context(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    for lost, expected in ((True, []), (False, ["comm_destroy"])):
        log.clear()
        library, _, _ = prepared(monkeypatch, "AllReduce")
        library.close(lost)
        library.close(lost)
        assert [call[0] for call in log[1:]] == expected


def test_a_refused_call_names_the_node(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    log.refuses = "all_reduce", "unhandled system error"
    _, _, (run,) = prepared(monkeypatch, "AllReduce")
    with pytest.raises(DeviceFault, match="NCCL refused 'n': unhandled system error") as caught:
        run()
    assert caught.value.code == "KG603"


def test_a_refused_call_ends_its_group(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    log.refuses = "recv", "invalid usage"
    _, _, (run,) = prepared(monkeypatch, "AllToAll")
    with pytest.raises(DeviceFault, match="invalid usage"):
        run()
    assert [call[0] for call in log[1:]] == ["group_start", "send", "group_end"]


def one_rank(monkeypatch: pytest.MonkeyPatch, world: FakeWorld | None) -> tuple[bytes, dict[str, str]]:
    """What an AllReduce over one rank makes of the bytes 0 to 19, and the versions."""
    monkeypatch.setattr(cuda_nccl, "current_for", lambda *_: world)
    monkeypatch.setattr(alone, "current", lambda: world)
    made = lower(bind(graph([node("n", ["x"], ["y"], op="AllReduce")], {"x": tensor("input", [20])}, ["y"])), "cuda")
    driver, versions = FakeDriver(), dict[str, str]()
    places = driver.alloc(20), driver.alloc(20)
    driver.copy_in(places[0], np.arange(20, dtype=np.uint8))
    work = made.steps[0].work
    assert isinstance(work, LibraryCall)
    Libraries(driver, "float32", versions).prepare(work, lambda pointer: places[pointer.buffer])()
    return driver.memory_of[places[1]][:20].tobytes(), versions


def test_a_job_of_one_rank_goes_through_nccl(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    _, versions = one_rank(monkeypatch, FakeWorld(0, 1))
    assert [call[0] for call in log] == ["comm_init_rank_scalable", "all_reduce"]
    assert versions == {"nccl": "2.27.3"}


@pytest.mark.parametrize("size", [0, 3])
def test_a_group_of_one_copies_elsewhere(monkeypatch: pytest.MonkeyPatch, log: Log, size: int) -> None:
    copied, versions = one_rank(monkeypatch, FakeWorld(0, size) if size else None)
    assert copied == bytes(range(20))
    assert (log, versions) == ([], {})


def test_a_rank_that_never_comes_does_not_hold_the_start(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    gate = threading.Event()
    monkeypatch.setattr(sys.modules["nccl.bindings.nccl"], "comm_init_rank_scalable", lambda *_: gate.wait(20))
    monkeypatch.setattr(FakeWorld, "wait", lambda *_: (_ for _ in ()).throw(TimeoutExpired("late", code="KG904")))
    with pytest.raises(TimeoutExpired):
        prepared(monkeypatch, "AllReduce")
    gate.set()


def test_a_wait_for_the_gpu_is_given_up_and_ends_what_it_waits_for(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    library, world, _ = prepared(monkeypatch, "AllReduce")
    driver: Any = library._driver
    driver.synchronize()
    driver.hangs, world.patience = True, 2
    with pytest.raises(TimeoutExpired):
        driver.synchronize()
    assert library._abort is not None
    library._abort.join()
    assert log[-1][0] == "comm_abort"
    driver.synchronize()  # what frees memory on the way out waits for the device alone


def test_what_nccl_says_of_a_start_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
    log.refuses = "comm_init_rank_scalable", "invalid usage"
    with pytest.raises(DeviceFault, match=r"NCCL does not connect \[0, 1, 2\]: invalid usage"):
        prepared(monkeypatch, "AllReduce")


def test_the_bindings_are_what_the_fake_says() -> None:
    bindings = pytest.importorskip("nccl.bindings.nccl")
    for name, arguments in SIGNATURES.items():
        assert tuple(inspect.signature(getattr(bindings, name)).parameters) == arguments, name
    kinds, reductions = bindings.DataType, bindings.RedOp
    assert {name: int(getattr(kinds, name.capitalize())) for name in cuda_nccl._DATA_TYPE} == cuda_nccl._DATA_TYPE
    assert {name: int(getattr(reductions, name.capitalize())) for name in cuda_nccl._REDUCTION} == cuda_nccl._REDUCTION
    with pytest.raises(TypeError):
        bindings.comm_destroy(0)
    with pytest.raises(ValueError, match="writable"):
        bindings.comm_init_rank_scalable(1, 0, 1, ID, 0)


def test_without_nccl_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nccl.bindings.nccl", None)
    with pytest.raises(DeviceUnavailable) as caught:
        Nccl(FakeDriver())  # type: ignore[arg-type]
    assert caught.value.code == "KG707"
    assert "kgrun[nccl]" in str(caught.value.help)
