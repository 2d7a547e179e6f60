"""Rows of a GPU's cache over the fake driver, whose copies happen as late as they may; and the kernels themselves."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.bind import bind
from kgrun.runtime.devices import cuda_lane
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.embedding import direct_rows, lane_rows
from kgrun.runtime.embedding.cache import EmbeddingCache
from kgrun.runtime.lower import lower
from kgrun.runtime.queues import QueueFeed
from kgrun.runtime.queues.feed import GraphFeed
from tests.runtime.devices.fake_cuda_driver import DeviceFacts, FakeDriver
from tests.runtime.devices.fake_lane_api import FakeLaneApi, _bytes
from tests.runtime.embedding.embedding_graphs import BATCH, VOCABULARY, WIDTH, Direct, batches, lookup_graph

Array = np.ndarray[Any, Any]
ROW = WIDTH * 4


@pytest.fixture(params=["direct", "gathered"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The two ways of rows: the device reaches the tables, or the host gathers for it."""
    if request.param == "gathered":
        monkeypatch.setattr(direct_rows, "SHARE", 0)
    return str(request.param)


@pytest.fixture
def device(way: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDevice]:
    driver = FakeDriver(DeviceFacts("Fake H200", "sm_90", 1 << 24, 232_448, (13, 0)))
    driver.on_launch = lambda symbol, grid, block, packed, shared: _launch(driver, symbol, packed)
    api = FakeLaneApi(driver)
    monkeypatch.setattr(cuda_lane, "_api", lambda: api)
    made = CudaDevice(driver=driver)
    yield made
    made.close()
    assert api.alive == set()
    assert api.registered == {}


def _launch(driver: FakeDriver, symbol: str, packed: bytes) -> None:
    """What rows.cu does, on the fake's memory."""
    cache, block, slots, count, units = struct.unpack("<QQQQi", packed[:36])
    assert units * 4 == ROW
    number = int(driver.view(count, 4).view(np.int32)[0])
    tables = symbol in ("kg_rows_fetch", "kg_rows_home")
    chosen = driver.view(slots, 8 * number).view(np.int64) if tables else driver.view(slots, 4 * number).view(np.int32)
    rows = driver.view(block, number * ROW).reshape(number, ROW)
    for i, slot in enumerate(chosen):
        if tables:
            assert 0 <= slot < VOCABULARY
            place = _bytes(cache + int(slot) * ROW, ROW)
        else:
            place = driver.view(cache + int(slot) * ROW, ROW)
        if symbol in ("kg_rows_in", "kg_rows_home"):
            place[:] = rows[i]
        else:
            rows[i] = place


class Run:
    """A cache on the fake device, and the graph's part of a run done by hand."""

    def __init__(self, device: CudaDevice, rows: int, table: Array, update: bool = True) -> None:
        bound = bind(lookup_graph(rows, update=update))
        self.driver: Any = device.driver
        self.update, self.rows = update, bound.caches[0].rows
        self.cache = EmbeddingCache(bound, bound.caches[0], device, {"table": table}, 0)
        self.place, self.ids = device.allocate((self.rows + 1) * ROW), device.allocate(8 * BATCH)
        self.cache.attach({"table": self.place}, self.ids)

    def step(self, ids: Array, step: Array) -> Array:
        self.cache.prepare(ids)
        self.cache.place()
        held = self.driver.view(self.place, (self.rows + 1) * ROW).view(np.float32).reshape(-1, WIDTH)
        found = held[self.driver.view(self.ids, 8 * BATCH).view(np.int64)].copy()
        if self.update:
            held[self.driver.view(self.ids, 8 * BATCH).view(np.int64)] = found + step
        return found


@pytest.mark.parametrize("rows", [BATCH, 9, 2 * VOCABULARY])
@pytest.mark.parametrize("update", [True, False])
@pytest.mark.parametrize("ahead", [True, False])
def test_S155_rows_come_and_go_in_the_order_of_the_steps(
    device: CudaDevice, way: str, rows: int, update: bool, ahead: bool
) -> None:
    table = np.random.default_rng(1).normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
    run, direct, pairs = Run(device, rows, table, update), Direct(table, update), batches(70, rows, outside=True)
    for (ids, step), (following, _) in zip(pairs, [*pairs[1:], pairs[0]], strict=True):
        assert (run.step(ids, step) == direct.run(ids, step)).all()
        if ahead:
            run.cache.prepare(following, ahead=True)
    report = run.cache.report()
    assert report.ahead == (len(pairs) if ahead else 0)
    assert report.direct is (way == "direct")
    assert 0 < report.lookup_ns < report.prepare_ns
    whole = run.cache.table("table")
    assert whole is not None
    assert (whole == direct.table).all()
    if ahead:  # what was prepared is still right after the table was read
        assert (run.step(*pairs[0]) == direct.run(*pairs[0])).all()
    run.cache.close()
    for address in (run.place, run.ids):
        device.free(address)
    assert device.memory_in_use() == 0


@pytest.mark.parametrize("count", [1, 4])
def test_S155_a_feed_prepares_the_next_batch_while_a_run_goes_on(device: CudaDevice, count: int) -> None:
    """The whole of it as a session has it, with the graph's part done by hand."""
    driver: Any = device.driver
    bound, pairs = bind(lookup_graph(8)), batches(40, 6, outside=True)
    table = np.random.default_rng(2).normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
    feed = GraphFeed(bound, device, {"q": QueueFeed(list(pairs), capacity=count + 1)}, {"table": table}, 0)
    program, direct = lower(bound, "cuda"), Direct(table)
    places = {b.index: device.allocate(max(b.nbytes, 1)) for b in program.buffers}

    def held(name: str, dtype: str) -> Array:
        buffer = program.buffers[program.slots[name].buffer]
        return driver.view(places[buffer.index], buffer.nbytes).view(dtype)

    feed.attach(program, lambda pointer: places[pointer.buffer] + pointer.offset)
    feed.reload()
    feed.prime()
    feed.prime()  # runs that do not count
    for ids, step in pairs:
        while feed._fed[0].ring.pushed < min(len(pairs), feed._fed[0].taken + count):
            time.sleep(0.001)  # what a slow run leaves the feeder time for
        feed.next()
        cached, slots = held("table", "f4").reshape(-1, WIDTH), held("ids", "i8")
        found = cached[slots].copy()
        assert (found == direct.run(ids, step)).all()
        assert (held("step", "f4").reshape(step.shape) == step).all()
        cached[slots] = found + step
        feed.ahead()
    (report,) = feed.cache_reports()
    assert report.batches == len(pairs)
    assert count == 1 or report.ahead >= len(pairs) - 2  # else the feeder was, or was not, in time by chance
    assert not feed.more()
    whole = feed.table("table")
    assert whole is not None
    assert (whole == direct.table).all()
    feed.close()
    for address in places.values():
        device.free(address)
    assert device.memory_in_use() == 0


def test_U1_a_cache_without_pinned_memory_works_too(device: CudaDevice) -> None:
    driver: Any = device.driver
    driver.fail("pinned", "cuMemHostAlloc failed: out of memory")
    table = np.ones((VOCABULARY, WIDTH), np.float32)
    run, direct = Run(device, 8, table), Direct(table)
    for ids, step in batches(20, 2):
        assert (run.step(ids, step) == direct.run(ids, step)).all()


def test_U1_tables_that_cannot_be_pinned_are_gathered_from(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    api: Any = cuda_lane._api()
    api.fail("cuMemHostRegister", 2)
    table = np.ones((VOCABULARY, WIDTH), np.float32)
    run, direct = Run(device, 8, table), Direct(table)
    for ids, step in batches(20, 2):
        assert (run.step(ids, step) == direct.run(ids, step)).all()
    assert run.cache.report().direct is False


def test_tables_beyond_the_limit_on_host_memory_stay_where_they_are(device: CudaDevice) -> None:
    device.host.limit = 8_000
    run = Run(device, 8, np.ones((VOCABULARY, WIDTH), np.float32))
    kept = run.cache.report().direct
    device.host.limit = 500
    assert direct_rows.pin_tables(device, run.cache.cache, dict(run.cache._tables)) is None
    assert device.host.held <= 8_000
    assert kept is (direct_rows.SHARE > 0)


def test_a_table_outlives_its_cache(device: CudaDevice) -> None:
    run = Run(device, 8, np.ones((VOCABULARY, WIDTH), np.float32))
    whole = run.cache.table("table")
    run.cache.close()
    assert whole is not None
    assert (whole == 1).all()


def test_launches_stay_as_they_were_packed(device: CudaDevice, way: str) -> None:
    """A run that is replayed as one graph needs fixed launches around it: counts and slots are read from memory."""
    run = Run(device, 8, np.ones((VOCABULARY, WIDTH), np.float32))
    for ids, step in batches(20, 2):
        run.step(ids, step)
    driver: Any = device.driver
    assert len({launch[:6] for launch in driver.launches}) == (4 if way == "direct" else 2)


def test_S155_the_kernels_move_rows_of_every_width() -> None:
    """rows.cu on the CPU."""
    pytest.importorskip("llvmlite")
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime import Session

    source = Path(lane_rows.__file__).with_name("rows.cu").read_text("utf-8")
    generator = np.random.default_rng(4)
    for unit, kind, dtype, units in (("uint4", 16, "float32", 1), ("unsigned char", 1, "uint8", 7)):
        wide = units * kind // np.dtype(dtype).itemsize
        cache, block = (generator.integers(0, 200, (n, wide)).astype(dtype) for n in (10, 6))
        slots, count = generator.permutation(10)[:6].astype(np.int32), np.array([4], np.int32)
        for entry in ("kg_rows_in", "kg_rows_out", "kg_rows_home", "kg_rows_fetch"):
            target = "cache" if entry in ("kg_rows_in", "kg_rows_home") else "block"
            slots = slots.astype(np.int64 if entry in ("kg_rows_home", "kg_rows_fetch") else np.int32)
            tensors = {
                name: {
                    "role": "parameter" if name == target else "input",
                    "dtype": str(a.dtype),
                    "shape": list(a.shape),
                }
                for name, a in (("cache", cache), ("block", block), ("slots", slots), ("count", count))
            }
            tensors["after"] = {"dtype": dtype, "shape": tensors[target]["shape"]}
            node = {
                "name": "move", "kernel": "k", "inputs": ["cache", "block", "slots", "count"], "outputs": ["after"],
                "inplace": {"after": target}, "args": ["cache", "block", "slots", "count", {"int32": units}],
                "grid": [2], "block": [256],
            }  # fmt: skip
            graph = KernelGraph.model_validate(
                {"kgrun": 1, "kernels": {"k": {"source": source.replace("UNIT unit", f"{unit} unit"), "entry": entry}},
                 "tensors": tensors, "nodes": [node], "outputs": ["after"]}
            )  # fmt: skip
            values = {"cache": cache, "block": block, "slots": slots, "count": count}
            with Session(graph, device="cpu", values=values) as session:
                found = session.run(values).outputs["after"]
            wanted = {"cache": cache, "block": block}[target].copy()
            if target == "cache":
                wanted[slots[:4]] = block[:4]
            else:
                wanted[:4] = cache[slots[:4]]
            assert (found == wanted).all(), (unit, entry)
