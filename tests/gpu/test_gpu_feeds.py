"""Data queues and embedding caches on a GPU: the same results as on the CPU, copies ahead of the runs, no leaks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError, TimeoutExpired
from kgrun.graphs.load import load_graph
from kgrun.runtime import Session
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.queues import QueueFeed
from tests.examples.test_example_files import DATA, EXAMPLES, script
from tests.runtime.embedding import embedding_graphs
from tests.runtime.embedding.embedding_graphs import VOCABULARY, WIDTH, Direct, batches, lookup_graph
from tests.runtime.queues.queue_graphs import fed_graph

Array = np.ndarray[Any, Any]


def test_S143_a_thousand_batches_reach_a_replayed_graph(device: CudaDevice) -> None:
    x = np.random.default_rng(0).integers(-8, 8, (64, 2)).astype(np.float32)
    held = device.memory_in_use()
    with Session(fed_graph(), device=device, queues={"q": QueueFeed({"x": x}, epochs=0, shuffle=3)}) as session:
        assert session.not_replayed is None
        first = session.run(iterations=1, warmup=5)  # runs that do not count take nothing
        order = np.random.default_rng([3, 0]).permutation(64)
        np.testing.assert_array_equal(first.outputs["y"], -x[order[:4]])
        report = session.run(iterations=15 + 62 * 16, per_step=False)
        assert report.outputs["total2"] == 63 * x.sum()
        assert report.queues[0].pinned is True
    assert device.memory_in_use() == held


@pytest.mark.parametrize("shuffle", [None, 5])
def test_S143_large_arrays_are_sent_from_where_they_lie(device: CudaDevice, shuffle: int | None) -> None:
    x = np.random.default_rng(1).integers(-8, 8, (1 << 18, 2)).astype(np.float32)
    feed = QueueFeed({"x": x}, epochs=0, shuffle=shuffle)
    order = np.arange(len(x)) if shuffle is None else np.random.default_rng([5, 0]).permutation(len(x))
    for _ in range(2):  # what the first session pinned the second can pin again
        filled = 0
        with Session(fed_graph(), device=device, queues={"q": feed}) as session:
            for start in range(0, 100, 4):
                report = session.run(iterations=1, per_step=False)
                np.testing.assert_array_equal(report.outputs["y"], -x[order[start : start + 4]])
                filled += report.queues[0].filled_ns
        assert (filled == 0) is (shuffle is None)


def test_S145_feeders_that_die_or_hang_end_the_run(device: CudaDevice) -> None:
    gate = threading.Event()

    def dies() -> Iterator[Array]:
        yield np.ones((4, 2), np.float32)
        raise OSError("disk")

    def hangs() -> Iterator[Array]:
        yield np.ones((4, 2), np.float32)
        gate.wait(20)

    with Session(fed_graph(), device=device, queues={"q": dies}) as session, pytest.raises(GraphError, match="died"):
        session.run(iterations=5)
    with Session(fed_graph(), device=device, queues={"q": QueueFeed(hangs, timeout=0.2)}) as session:
        with pytest.raises(TimeoutExpired):
            session.run(iterations=5)
        gate.set()
    device.synchronize()  # the device is as good as before


@pytest.mark.parametrize("rows", [6, 11, 100])
@pytest.mark.parametrize("update", [True, False])
@pytest.mark.parametrize("direct", [True, False])
def test_S155_every_lookup_is_that_of_the_whole_table(
    device: CudaDevice, rows: int, update: bool, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kgrun.runtime.embedding.direct_rows.SHARE", 0.25 if direct else 0)
    table = np.random.default_rng(5).normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
    pairs, whole, held = batches(120, rows, outside=True), Direct(table, update), device.memory_in_use()
    queues = {"q": list(pairs)}
    session = Session(lookup_graph(rows, update=update), device=device, values={"table": table}, queues=queues)
    with session:
        assert session.not_replayed is None
        for ids, step in pairs[:60]:
            report = session.run(iterations=1, warmup=1, per_step=False)
            np.testing.assert_array_equal(report.outputs["found"], whole.run(ids, step))
        report = session.run(per_step=False)  # in a row, each batch prepared while the run before goes on
        for ids, step in pairs[60:]:
            whole.run(ids, step)
        assert report.embeddings[0].ahead > 0
        assert report.embeddings[0].direct is direct
        np.testing.assert_array_equal(session.output("table"), whole.table)
        np.testing.assert_allclose(report.outputs["total2"], whole.total, rtol=1e-5, atol=1e-5)
    assert device.memory_in_use() == held


@pytest.mark.parametrize("width", [1, 33, 160])
def test_S155_many_rows_of_every_width_come_and_go(
    device: CudaDevice, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rows in a batch than a launch moves at once, and rows of fewer and of more parts than a warp has threads."""
    for name, value in (("VOCABULARY", 60_000), ("WIDTH", width), ("BATCH", 6_000)):
        monkeypatch.setattr(embedding_graphs, name, value)
    generator = np.random.default_rng(6)
    table = generator.normal(size=(60_000, width)).astype(np.float32)
    whole, held = Direct(table), device.memory_in_use()
    pairs = batches(30, 3, outside=True)
    queues = {"q": QueueFeed(list(pairs), capacity=4)}
    with Session(lookup_graph(9_000), device=device, values={"table": table}, queues=queues) as session:
        for ids, step in pairs[:10]:
            report = session.run(iterations=1, warmup=0, per_step=False)
            np.testing.assert_array_equal(report.outputs["found"], whole.run(ids, step))
        report = session.run(per_step=False)
        for ids, step in pairs[10:]:
            found = whole.run(ids, step)
        np.testing.assert_array_equal(report.outputs["found"], found)
        cache = report.embeddings[0]
        assert cache.direct is True
        assert cache.loaded > 20 * 264 * 8  # rows that one launch moves at once
        assert cache.written == cache.evicted > 0
        np.testing.assert_array_equal(session.output("table"), whole.table)
    assert device.memory_in_use() == held


def test_S39_the_digits_are_learned_as_in_numpy(device: CudaDevice) -> None:
    from safetensors.numpy import load_file

    steps, given = script("train_steps"), np.load(DATA / "digits_train.npz")
    wanted = steps.trained(load_file(DATA / "digits_start.safetensors"), given["images"], given["labels"])
    with Session(load_graph(str(EXAMPLES / "train_digits.yaml")), device=device) as session:
        assert session.run().iterations == 420
        held = {name: session.output(name) for name in wanted}
    for name, array in wanted.items():
        np.testing.assert_allclose(held[name], array, rtol=0, atol=1e-4)
    test = np.load(DATA / "digits.npz")
    assert steps.accuracy(held, test["images"], test["labels"]) >= 0.95
