"""Queues of a session: which runs take batches, the end of the data, faults of the feeder, long runs."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError, KgrunError, TimeoutExpired, UsageError
from kgrun.runtime import Session
from kgrun.runtime.queues import QueueFeed
from tests.runtime.queues.queue_graphs import fed_graph
from tests.support import graph, node, tensor

Array = np.ndarray[Any, Any]


def data(count: int) -> dict[str, Array]:
    return {"x": np.arange(2 * count, dtype=np.float32).reshape(count, 2)}


def session(source: Any, batch: int = 4, **settings: Any) -> Session:
    return Session(fed_graph(batch, **settings), device="cpu", queues={"q": source})


def run_and_raise(fed: Session, error: Exception) -> None:
    fed.run(iterations=1)
    raise error


def alive() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kgrun queue")]


def test_S144_each_run_that_counts_takes_a_batch_and_no_other_run_does() -> None:
    x = data(12)["x"]
    with session({"x": x}) as fed:
        first = fed.run(iterations=1, warmup=3)
        assert (first.outputs["y"] == -x[:4]).all()
        assert first.outputs["total2"] == x[:4].sum()
        rest = fed.run(warmup=2, first=True)  # as many runs as there are batches
        assert (rest.iterations, rest.outputs["total2"]) == (2, x.sum())
        assert (rest.outputs["y"] == -x[8:]).all()
        (queue,) = rest.queues
        assert (queue.name, queue.batches, queue.nbytes, queue.left) == ("q", 2, 32, 0)
    assert alive() == []


def test_runs_in_which_each_step_waits_take_batches_too() -> None:
    x = data(12)["x"]
    with Session(fed_graph(), device="cpu", queues={"q": {"x": x}}, sync_each=True) as fed:
        report = fed.run(warmup=1)
        assert (report.iterations, report.outputs["total2"]) == (3, x.sum())
    with Session(fed_graph(), device="cpu", queues={"q": {"x": x}}, checks=["nan"]) as fed:
        assert fed.run(iterations=2).outputs["total2"] == x[:8].sum()


def test_the_end_of_the_data_is_known_before_anything_runs() -> None:
    with session(data(12)) as fed:
        with pytest.raises(GraphError, match="has 3 batches left, 4 iterations were asked for") as caught:
            fed.run(iterations=4)
        assert (caught.value.code, caught.value.exit) == ("KG395", 3)
        assert fed.run(iterations=3).outputs["total2"] == data(12)["x"].sum()
        with pytest.raises(GraphError, match="at its end after 3 batches"):
            fed.run()


def test_the_end_of_an_iterator_ends_the_run_or_is_an_error_where_more_was_asked_for() -> None:
    def source() -> Iterator[Array]:
        for start in range(0, 12, 4):
            yield data(12)["x"][start : start + 4]

    with session(source()) as fed:
        report = fed.run()
        assert (report.iterations, report.outputs["total2"]) == (3, data(12)["x"].sum())
    with session(source) as fed, pytest.raises(GraphError, match="at its end after 3 batches") as caught:
        fed.run(iterations=5)
    assert caught.value.code == "KG395"
    with session(source) as fed:
        assert fed.run(duration=30.0).iterations == 3  # the data end first


def test_epochs_and_settings_of_the_graph_are_beaten_by_the_callers() -> None:
    with session(data(10), epochs=2, last="pad") as fed:
        assert fed.run().iterations == 6
    with session(QueueFeed(data(10), epochs=0, last="drop"), epochs=2, last="pad") as fed:
        assert fed.run().iterations == 1  # no end: the default of the device
        assert fed.run(iterations=9).queues[0].left is None


@pytest.mark.parametrize(
    ("queues", "code", "says"),
    [
        ({}, "KG277", "queue 'q' has no data"),
        ({"q": data(4), "p": data(4)}, "KG275", "the graph has no queue 'p'"),
        ({"q": QueueFeed(data(4), epochs=-1)}, "KG253", "epochs=-1 cannot be: it is a whole number from 0"),
        ({"q": QueueFeed(data(4), epochs="2")}, "KG253", "epochs='2' cannot be"),  # type: ignore[arg-type]
        ({"q": QueueFeed(data(4), epochs=2.5)}, "KG253", "epochs=2.5 cannot be"),  # type: ignore[arg-type]
        ({"q": QueueFeed(data(4), shuffle=1.5)}, "KG253", "shuffle=1.5 cannot be"),  # type: ignore[arg-type]
        ({"q": QueueFeed(data(4), timeout="3")}, "KG253", "timeout='3' cannot be"),  # type: ignore[arg-type]
        ({"q": QueueFeed(data(4), capacity=2.5)}, "KG253", "capacity=2.5 cannot be"),  # type: ignore[arg-type]
        ({"q": QueueFeed(data(4), last="Pad")}, "KG253", "last='Pad' cannot be: it is drop, pad or error"),  # type: ignore[arg-type]
        ({"q": QueueFeed(data(4), timeout=0)}, "KG253", "timeout=0"),
        ({"q": QueueFeed(data(4), capacity=0)}, "KG253", "capacity=0 cannot be"),
        ({"q": QueueFeed(data(4), capacity=10**12)}, "KG253", "capacity=1000000000000 cannot be"),
    ],
)
def test_queues_without_data_and_data_without_queues_are_refused(queues: Any, code: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        Session(fed_graph(), device="cpu", queues=queues)
    assert (caught.value.code, caught.value.exit) == (code, 2)


def test_S144_a_feeder_that_is_too_slow_ends_the_run_with_a_timeout() -> None:
    gate = threading.Event()

    def slow() -> Iterator[Array]:
        yield data(4)["x"]
        gate.wait(20)

    with session(QueueFeed(slow, timeout=0.05)) as fed:
        try:
            with pytest.raises(TimeoutExpired, match=r"queue 'q' had no batch for 0\.05 s") as caught:
                fed.run(iterations=2)
        finally:
            gate.set()
        assert caught.value.exit == 9


@pytest.mark.parametrize("seed", range(8))
def test_S145_a_feeder_killed_at_random_is_a_documented_end_and_no_hang(seed: int) -> None:
    chance = random.Random(seed)
    good, cause = chance.randrange(0, 20), chance.choice([OSError("disk"), SystemExit(1), ZeroDivisionError("1/0")])

    def dies() -> Iterator[Array]:
        for _ in range(good):
            if chance.random() < 0.2:
                time.sleep(0.001)
            yield data(4)["x"]
        raise cause

    with session(QueueFeed(dies, timeout=20.0, capacity=chance.randrange(1, 4))) as fed:
        with pytest.raises(GraphError, match="the feeder of queue 'q' died") as caught:
            fed.run(iterations=25)
        assert (caught.value.code, caught.value.exit) == ("KG397", 3)
        assert fed.output("total") == good * data(4)["x"].sum()  # every batch before it was run
    assert alive() == []


def test_S143_a_batch_that_is_none_ends_the_run() -> None:
    with session([data(4)["x"], data(5)["x"]]) as fed:
        with pytest.raises(GraphError, match=r"a batch has float32 \[5, 2\]") as caught:
            fed.run()
        assert caught.value.code == "KG394"


def test_S146_a_fault_in_a_run_stops_the_feeder_and_stays_the_error() -> None:
    class Stop(Exception):
        pass

    with pytest.raises(Stop), session(QueueFeed(data(4), epochs=0)) as fed:
        run_and_raise(fed, Stop())
    assert alive() == []


def test_S145_a_feeder_that_hangs_does_not_hide_the_error_that_ends_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    from kgrun.runtime.queues.registry import QueueSet

    monkeypatch.setattr(QueueSet.close, "__defaults__", (0.05,))
    gate = threading.Event()

    def hangs() -> Iterator[Array]:
        yield data(4)["x"]
        gate.wait(20)

    with pytest.raises(ZeroDivisionError), session(hangs) as fed:
        run_and_raise(fed, ZeroDivisionError())
    with pytest.raises(TimeoutExpired, match="could not be closed"), session(hangs) as fed:
        fed.run(iterations=1)
    gate.set()


def test_S143_ten_thousand_steps() -> None:
    rows = 64
    x = np.random.default_rng(0).integers(-8, 8, (rows, 2)).astype(np.float32)
    with session(QueueFeed({"x": x}, epochs=0, shuffle=7), batch=4) as fed:
        report = fed.run(iterations=10_000, per_step=False)
    assert report.iterations == 10_000
    assert report.outputs["total2"] == 10_000 * 4 // rows * x.sum()  # exact: small integers
    assert report.queues[0].batches == 10_000


def test_two_queues_end_with_the_shorter() -> None:
    from tests.support import graph, node, tensor

    tensors = {"a": tensor(None, (1,), "float32"), "b": tensor(None, (1,), "float32")}
    nodes = [
        node("na", [], ["a"], op="GetNext", queue="qa"),
        node("nb", [], ["b"], op="GetNext", queue="qb"),
        node("add", ["a", "b"], ["y"], op="Add"),
    ]
    made = graph(nodes, tensors, ["y"], queues={"qa": {"items": ["a"]}, "qb": {"items": ["b"]}})
    feeds = {"qa": {"a": np.arange(3, dtype=np.float32)}, "qb": {"b": np.arange(0, 50, 10, dtype=np.float32)}}
    with Session(made, device="cpu", queues=feeds) as fed:
        report = fed.run()
        assert (report.iterations, report.outputs["y"].tolist()) == (3, [22])
        with pytest.raises(KgrunError, match="queue 'qa' has 0 batches left"):
            fed.run(iterations=1)


def test_items_that_wait_on_the_host_are_fed_there() -> None:
    """Offload moves items like other inputs; every mode gives the same."""
    x = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    made = fed_graph(8)
    tensors = made.tensors | {"x": made.tensors["x"].model_copy(update={"offload": "always"})}
    totals = []
    for each, settings in ((made, {}), (made.model_copy(update={"tensors": tensors}), {"offload": "auto"})):
        with Session(each, device="cpu", queues={"q": {"x": x}}, **settings) as fed:  # type: ignore[arg-type]
            report = fed.run(warmup=2)
            assert (report.outputs["y"] == -x[32:]).all()
            totals.append(report.outputs["total2"])
            assert bool(settings) == (fed.program.offload is not None)
    assert totals[0] == totals[1]


def test_runs_that_are_dumped_take_batches(tmp_path: Path) -> None:
    from kgrun.runtime.dump.config import DumpConfig, Iterations

    x = data(12)["x"]
    with session({"x": x}) as fed:
        fed.run(dump=DumpConfig(("x", "y"), tmp_path, Iterations(((0, 9),))))
    for i in range(3):
        folder = tmp_path / f"iteration_{i}"
        assert (np.load(folder / "x.npy") == x[4 * i : 4 * i + 4]).all()
        assert (np.load(folder / "y.npy") == -x[4 * i : 4 * i + 4]).all()


@pytest.mark.parametrize("limit", [None, 1536])
@pytest.mark.parametrize("memory", ["planned", "pool", "none"])
def test_an_item_that_no_kernel_reads_is_an_output_all_the_same(memory: Any, limit: int | None) -> None:
    tensors = {"x": tensor(None, (4, 2), "float32"), "i": tensor(None, (4,), "int64")}
    nodes = [
        node("next", [], ["x", "i"], op="GetNext", queue="q"),
        node("neg", ["x"], ["y"], op="Neg"),
        node("abs", ["y"], ["z"], op="Abs"),
    ]
    made = graph(nodes, tensors, ["z", "i"], queues={"q": {"items": ["x", "i"]}})
    feed = {"x": data(12)["x"], "i": np.arange(12)}
    limit = None if memory != "planned" else limit
    with Session(made, device="cpu", queues={"q": feed}, memory=memory, memory_limit=limit) as fed:
        assert [fed.run(iterations=1).outputs["i"].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        report = fed.run()
    assert report.outputs["i"].tolist() == [8, 9, 10, 11]
    assert [warning.code for warning in report.warnings] == []


def died() -> Iterator[Array]:
    raise ValueError("no more")
    yield


@pytest.mark.parametrize("source", [data(4), [data(3)["x"]], died])
def test_what_goes_wrong_with_a_queue_says_which_it_is(source: Any) -> None:
    with session(source) as fed, pytest.raises(GraphError) as caught:
        fed.run(iterations=2)
    assert caught.value.where is not None
    assert str(caught.value.where).endswith("queues.q")
