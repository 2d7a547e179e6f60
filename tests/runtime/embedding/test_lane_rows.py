"""Rows of a GPU's cache over the fake driver, whose copies happen as late as they may."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from threading import Event, Thread, Timer
from typing import Any, cast

import numpy as np
import pytest

from kgrun.graphs.bind import bind
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.devices import cuda_lane
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.embedding import direct_rows
from kgrun.runtime.embedding.cache import EmbeddingCache
from kgrun.runtime.embedding.index import Block, Lookup, RowIndex
from kgrun.runtime.lower import lower
from kgrun.runtime.queues import QueueFeed
from kgrun.runtime.queues.feed import GraphFeed
from tests.runtime.devices.fake_cuda_driver import DeviceFacts, FakeDriver
from tests.runtime.devices.fake_lane_api import FakeLaneApi, _bytes
from tests.runtime.embedding.embedding_graphs import BATCH, VOCABULARY, WIDTH, Direct, batches, lookup_graph

Array = np.ndarray[Any, Any]
ROW = WIDTH * 4
IDS = TensorType("int64", (BATCH,))


@pytest.fixture(params=["direct", "gathered"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The two ways of rows: the device reaches the tables, or the host gathers for it."""
    if request.param == "gathered":
        monkeypatch.setattr(direct_rows, "SHARE", 0)
    return str(request.param)


@pytest.fixture
def device(way: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDevice]:
    driver = FakeDriver(DeviceFacts("Fake H200", "sm_90", 1 << 24, 232_448, (13, 0)))
    api = FakeLaneApi(driver)

    def launch(symbol: str, grid: Any, block: Any, packed: bytes, shared: int) -> None:
        if symbol == "kg_rows_exchange":
            _exchange(driver, packed)
        else:
            _launch(driver, symbol, packed)

    driver.on_launch = launch
    api.install(monkeypatch)
    made = CudaDevice(driver=driver)
    yield made
    made.close()
    assert api.alive == set()
    assert api.registered == {}


def begin(driver: FakeDriver) -> None:
    """The steps of a run begin: what was issued before them is done."""
    api: Any = cuda_lane._api()
    api._cuStreamSynchronize(driver.stream)


def _launch(driver: FakeDriver, symbol: str, packed: bytes) -> None:
    """What rows.cu does between the cache and a block, on the fake's memory."""
    cache, block, slots, count, units = struct.unpack("<QQQQi", packed[:36])
    assert units * 4 == ROW
    number = int(driver.view(count, 4).view(np.int32)[0])
    rows = driver.view(block, number * ROW).reshape(number, ROW)
    for i, slot in enumerate(driver.view(slots, 4 * number).view(np.int32)):
        place = driver.view(cache + int(slot) * ROW, ROW)
        if symbol == "kg_rows_in":
            place[:] = rows[i]
        else:
            rows[i] = place


def _exchange(driver: FakeDriver, packed: bytes) -> None:
    """What rows.cu does between the cache and the table."""
    cache, table, *parts, ids, units, rows, updated, words, most = struct.unpack("<8Q5i", packed[:84])
    assert most == BATCH
    assert units * 4 == ROW
    missed, hit, fresh, _, outside = _bytes(parts[0], 40).view(np.int64).tolist()
    missing, used, evicted = (_bytes(part, 8 * BATCH).view(np.int64) for part in parts[1:4])
    for i in range(missed):
        assert 0 <= missing[i] < VOCABULARY
        slot = driver.view(cache + int(used[hit + i]) * ROW, ROW)
        if updated and i >= fresh:
            _bytes(table + int(evicted[i - fresh]) * ROW, ROW)[:] = slot
        slot[:] = _bytes(table + int(missing[i]) * ROW, ROW)
    if updated and outside:
        driver.view(cache + rows * ROW, ROW)[:] = 0
    driver.view(ids, 4 * words)[:] = _bytes(parts[4], 4 * words)


class Run:
    """A cache on the fake device, and the graph's part of a run done by hand. `batches` are the ids of all runs."""

    def __init__(
        self, device: CudaDevice, rows: int, table: Array, batches: list[Array], update: bool = True, depth: int = 3
    ) -> None:
        bound = bind(lookup_graph(rows, update=update))
        self.driver: Any = device.driver
        self.update, self.rows, self.batches, self.taken, self.depth = update, bound.caches[0].rows, batches, 0, depth
        self.cache = EmbeddingCache(bound, bound.caches[0], device, {"table": table}, 0, depth)
        self.place, self.ids = device.allocate((self.rows + 1) * ROW), device.allocate(8 * BATCH)
        self.attach()

    def attach(self) -> None:
        self.cache.attach({"table": self.place}, self.ids, self.taken)

    def there(self, count: int) -> Callable[[int], Array | None]:
        """The queue with so many batches in it."""
        until = min(self.taken + count, len(self.batches))
        return lambda number: self.batches[number] if self.taken <= number < until else None

    def step(self, step: Array) -> Array:
        self.cache.place(self.there(1))
        self.taken += 1
        begin(self.driver)
        return self.compute(step)

    def compute(self, step: Array) -> Array:
        """What the steps of a run do."""
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
    direct, pairs = Direct(table, update), batches(70, rows, outside=True)
    run = Run(device, rows, table, [ids for ids, _ in pairs], update)
    for number, (ids, step) in enumerate(pairs[:-1]):
        assert (run.step(step) == direct.run(ids, step)).all()
        if ahead:
            if number % 3:
                run.cache.look_ahead(run.there(1 + number % run.depth))
            run.cache.move_ahead(run.there(1))
    report = run.cache.report()
    assert report.ahead == (len(pairs) - 1 if ahead else 0)
    assert report.direct is (way == "direct")
    assert 0 < report.lookup_ns < report.prepare_ns
    whole = run.cache.table("table")
    assert whole is not None
    assert (whole == direct.table).all()
    # What was prepared is still right after the table was read.
    assert (run.step(pairs[-1][1]) == direct.run(*pairs[-1])).all()
    run.cache.close()
    for address in (run.place, run.ids):
        device.free(address)
    assert device.memory_in_use() == 0


@pytest.mark.parametrize("rows", [BATCH, 2 * BATCH - 1, 2 * BATCH, 40])
@pytest.mark.parametrize("update", [True, False])
@pytest.mark.parametrize("outside", [True, False])
def test_S155_rows_move_beside_a_run_that_uses_none_of_them(
    device: CudaDevice, way: str, rows: int, update: bool, outside: bool
) -> None:
    """Everything happens as early as it may: the lanes' work before the run that was issued before it."""
    if way == "gathered":
        pytest.skip("the host gathers; its kernels are steps")
    table = np.random.default_rng(1).normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
    direct, pairs = Direct(table, update), batches(70, rows, outside=outside)
    run, api = Run(device, rows, table, [ids for ids, _ in pairs], update), cast(FakeLaneApi, cuda_lane._api())
    steps, found, moved = device.driver.stream, [], []

    for ids, step in pairs:
        run.cache.place(run.there(1))
        run.taken += 1
        api._pending[steps].append(lambda step=step: found.append(run.compute(step)))
        if run.taken < len(pairs):
            run.cache.move_ahead(run.there(1))
        for stream in set(api._pending) - {steps}:
            api._cuStreamSynchronize(stream)
        moved.append(not found)  # the rows of the next batch are there, and this one's run is still to come
        begin(run.driver)
        assert (found.pop() == direct.run(ids, step)).all()
    inside = [int(((ids >= 0) & (ids < VOCABULARY)).sum()) for ids, _ in pairs]
    expected = sum(b == BATCH and a + b <= rows for a, b in pairwise(inside))
    assert sum(moved[:-1]) == expected
    assert expected or rows < 2 * BATCH
    whole = run.cache.table("table")
    assert whole is not None
    assert (whole == direct.table).all()
    run.cache.close()


@pytest.mark.parametrize("seed", range(8))
def test_S155_tables_are_read_and_caches_emptied_at_any_time(device: CudaDevice, seed: int) -> None:
    """Lookups may be any number of batches ahead, and moves one, whatever is asked meanwhile."""
    table, generator = np.random.default_rng(1).normal(size=(VOCABULARY, WIDTH)).astype(np.float32), random.Random(seed)
    direct, pairs = Direct(table), batches(120, seed, outside=True)
    run = Run(device, generator.choice([BATCH, 10, 30]), table, [ids for ids, _ in pairs], depth=4)
    while run.taken < len(pairs):
        what = generator.randrange(8)
        if what < 3:
            step = pairs[run.taken][1]
            assert (run.step(step) == direct.run(pairs[run.taken - 1][0], step)).all()
        elif what < 5:
            run.cache.look_ahead(run.there(generator.randrange(5)))
        elif what == 5:
            run.cache.move_ahead(run.there(generator.randrange(2)))
        else:
            whole = run.cache.table("table")
            assert whole is not None
            assert (whole == direct.table).all()
            if what == 7:
                run.attach()
    assert run.cache.report().batches == len(pairs)
    run.cache.close()


def test_S155_whoever_needs_the_next_batch_waits_for_no_other(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread is at it, and goes on with further batches."""
    lookup, begun, gates = RowIndex.lookup, [Event() for _ in range(3)], [Event() for _ in range(3)]
    numbers = iter(range(3))

    def gated(self: RowIndex, ids: Array, block: Block | None = None) -> Lookup:
        number = next(numbers)
        begun[number].set()
        assert gates[number].wait(20)
        return lookup(self, ids, block)

    monkeypatch.setattr(RowIndex, "lookup", gated)
    table = np.random.default_rng(1).normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
    direct, pairs = Direct(table), batches(3, 1)
    run = Run(device, 10, table, [ids for ids, _ in pairs])
    other = Thread(target=run.cache.look_ahead, args=(run.there(3),))
    other.start()
    assert begun[0].wait(20)
    Timer(0.05, gates[0].set).start()
    run.cache.move_ahead(run.there(1))  # waits for the first, not for the second: its gate opens below
    assert run.cache.report().ahead == 1
    for gate in gates[1:]:
        gate.set()
    for ids, step in pairs:
        assert (run.step(step) == direct.run(ids, step)).all()
    other.join(20)
    run.cache.close()


def test_S155_a_block_is_written_again_only_when_the_device_is_through_with_it(device: CudaDevice, way: str) -> None:
    """Mostly nobody need ask the driver; where the device is far behind, the lookup waits for it."""
    table = np.random.default_rng(1).normal(size=(VOCABULARY, WIDTH)).astype(np.float32)
    pairs, api = batches(24, 4), cast(FakeLaneApi, cuda_lane._api())
    run = Run(device, 10, table, [ids for ids, _ in pairs], update=False, depth=8)
    for _ in pairs:  # the device does nothing until it is waited for: no run begins
        run.cache.place(run.there(1))
        run.taken += 1
    assert way == "gathered" or 1 < api.calls.count("cuEventSynchronize") < 6
    begin(run.driver)
    held = run.driver.view(run.place, (run.rows + 1) * ROW).view(np.float32).reshape(-1, WIDTH)
    assert (held[run.driver.view(run.ids, 8 * BATCH).view(np.int64)] == table[pairs[-1][0]]).all()
    run.cache.close()


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

    feed.attach(program, lambda pointer: places[pointer.buffer] + pointer.offset, lambda buffer: lambda array: None)
    assert not feed.in_line  # what is written to the host's memory waits for the run before
    feed.attach(program, lambda pointer: places[pointer.buffer] + pointer.offset)
    assert feed.in_line
    feed.reload()
    feed.prime()
    feed.prime()  # runs that do not count
    for ids, step in pairs:
        left = len(pairs) - feed._fed[0].taken - feed._primed
        while feed._fed[0].caches[0].looked_up < min(left, count):
            time.sleep(0.001)  # what a slow run leaves the other threads time for
        feed.next()
        begin(driver)
        cached, slots = held("table", "f4").reshape(-1, WIDTH), held("ids", "i8")
        found = cached[slots].copy()
        assert (found == direct.run(ids, step)).all()
        assert (held("step", "f4").reshape(step.shape) == step).all()
        cached[slots] = found + step
        feed.ahead()
    (report,) = feed.cache_reports()
    assert report.batches == len(pairs)
    assert count == 1 or report.ahead == len(pairs) - 1  # else the lookup was, or was not, in time by chance
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
    direct, pairs = Direct(table), batches(20, 2)
    run = Run(device, 8, table, [ids for ids, _ in pairs])
    for ids, step in pairs:
        assert (run.step(step) == direct.run(ids, step)).all()


def test_U1_tables_that_cannot_be_pinned_are_gathered_from(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    api: Any = cuda_lane._api()
    api.fail("cuMemHostRegister", 2)
    table = np.ones((VOCABULARY, WIDTH), np.float32)
    direct, pairs = Direct(table), batches(20, 2)
    run = Run(device, 8, table, [ids for ids, _ in pairs])
    for ids, step in pairs:
        assert (run.step(step) == direct.run(ids, step)).all()
    assert run.cache.report().direct is False


def test_tables_beyond_the_limit_on_host_memory_stay_where_they_are(device: CudaDevice) -> None:
    device.host.limit = 40_000
    run = Run(device, 8, np.ones((VOCABULARY, WIDTH), np.float32), [])
    kept = run.cache.report().direct
    device.host.limit = 500
    assert direct_rows.pin_tables(device, run.cache.cache, dict(run.cache._tables), IDS, 4) is None
    assert device.host.held <= 40_000
    assert kept is (direct_rows.SHARE > 0)


def test_a_table_outlives_its_cache(device: CudaDevice) -> None:
    run = Run(device, 8, np.ones((VOCABULARY, WIDTH), np.float32), [])
    whole = run.cache.table("table")
    run.cache.close()
    assert whole is not None
    assert (whole == 1).all()


def test_launches_stay_as_they_were_packed(device: CudaDevice, way: str) -> None:
    """A run that is replayed as one graph needs fixed launches around it: counts and slots are read from memory."""
    pairs = batches(20, 2)
    run = Run(device, 8, np.ones((VOCABULARY, WIDTH), np.float32), [ids for ids, _ in pairs])
    for _, step in pairs:
        run.step(step)
    driver: Any = device.driver
    # Rows in and out; or one for each of the blocks that lookups take in turn.
    assert len({launch[:6] for launch in driver.launches}) == (run.depth + 1 if way == "direct" else 2)
    assert way == "gathered" or len(driver.launches) == len(pairs)
