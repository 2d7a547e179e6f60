"""The ring between producers and the consumer: order, waits, faults, shutdown."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import GraphError, TimeoutExpired, UsageError
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.devices.cpu import CpuDevice
from kgrun.runtime.queues.feeder import start_feeder
from kgrun.runtime.queues.registry import QueueSet
from kgrun.runtime.queues.ring import QueueClosed, Ring
from kgrun.runtime.queues.slots import HostSlots

TYPES = {"x": TensorType("float32", (2,)), "i": TensorType("int64", (2,))}


def ring(capacity: int = 2, name: str = "q") -> Ring:
    return Ring(name, TYPES, HostSlots(CpuDevice(), list(TYPES.values()), capacity))


def batch(number: int) -> tuple[np.ndarray[Any, Any], ...]:
    return np.full(2, number, np.float32), np.full(2, number, np.int64)


def taken(queue: Ring, timeout: float = 5) -> int | None:
    slot = queue.front(timeout)
    if slot is None:
        return None
    x, i = queue.slots.arrays(slot)
    assert x[0] == i[0] == x[1]
    number = int(i[0])
    queue.pop()
    return number


def in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def noisily(queue: Ring, until: threading.Event) -> threading.Thread:
    """Wakes everybody who waits, for nothing, as often as it can."""

    def wake() -> None:
        while not until.is_set():
            for told in (queue._filled, queue._room, queue._released):
                with told:
                    told.notify_all()
            time.sleep(0)

    return in_thread(wake)


def test_S143_batches_come_out_in_order_and_may_be_reused_once_pushed() -> None:
    queue, mine = ring(3), batch(0)
    for number in range(3):
        for array in mine:
            array[:] = number
        queue.push(mine)
    assert [taken(queue) for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (None, "has no 'x'"),
        ((batch(1)[0], None), "has no 'i'"),
        ({"x": batch(1)[0]}, "has no 'i'"),
        (batch(1)[:1], "has 1 items"),
        ((*batch(1), batch(1)[0]), "has 'item 2'"),
        ({"x": batch(1)[0], "i": batch(1)[1], "z": 1}, "has 'z'"),
        ((np.zeros(3, np.float32), batch(1)[1]), r"'x' is float32 \[2\], a batch has float32 \[3\]"),
        ((np.zeros(2), batch(1)[1]), "a batch has float64"),
    ],
)
def test_S143_what_is_no_batch_is_refused_and_takes_no_slot(wrong: Any, says: str) -> None:
    queue = ring()
    if wrong is None:
        wrong = (None, None)
    with pytest.raises(GraphError, match=says) as caught:
        queue.push(wrong)
    assert (caught.value.code, caught.value.exit, queue.pushed) == ("KG394", 3, 0)


def test_S143_a_full_ring_lets_the_producer_wait_for_its_time_alone() -> None:
    queue = ring(1)
    queue.push(batch(0))
    with pytest.raises(TimeoutExpired, match=r"stayed full for 0\.02 s") as caught:
        queue.push(batch(1), timeout=0.02)
    assert (caught.value.code, caught.value.exit) == ("KG902", 9)
    assert taken(queue) == 0
    queue.push(batch(2), timeout=0.02)
    assert taken(queue) == 2


def test_S144_the_front_is_waited_for_in_vain_for_its_time_alone() -> None:
    with pytest.raises(TimeoutExpired, match=r"had no batch for 0\.02 s") as caught:
        ring().front(0.02)
    assert (caught.value.code, caught.value.exit) == ("KG902", 9)


def test_S144_a_pop_wakes_a_producer() -> None:
    queue = ring(1)
    queue.push(batch(0))
    thread = in_thread(lambda: queue.push(batch(1)))
    assert taken(queue) == 0
    thread.join(5)
    assert not thread.is_alive()
    assert taken(queue) == 1


def test_S144_names_are_known_until_they_are_closed() -> None:
    queues = QueueSet()
    first = queues.add(ring(name="first"))
    assert queues["first"] is first
    with pytest.raises(UsageError, match="there is no queue 'fist'") as caught:
        queues["fist"]
    assert (caught.value.code, caught.value.help) == ("KG275", "did you mean 'first'?")
    queues.close()
    with pytest.raises(UsageError, match="there is no queue 'first'"):
        queues["first"]


def test_B18_a_name_used_twice_is_said_to_exist() -> None:
    queues = QueueSet()
    queues.add(ring())
    with pytest.raises(UsageError, match="queue 'q' exists already") as caught:
        queues.add(ring())
    assert caught.value.code == "KG276"


def test_B27_wakeups_for_nothing_overwrite_no_slot_and_end_no_wait() -> None:
    queue, quiet = ring(2), threading.Event()
    thread = noisily(queue, quiet)
    feeder = start_feeder(queue, lambda: (batch(n) for n in range(300)))
    found = []
    while (number := taken(queue)) is not None:
        found.append(number)
        if number % 50 == 0:
            time.sleep(0.001)  # a full ring, with a producer that waits and is woken
    empty = ring()
    noise = noisily(empty, quiet)
    with pytest.raises(TimeoutExpired):  # a wake-up is no batch
        empty.front(0.05)
    quiet.set()
    for each in (thread, noise, feeder):
        each.join(5)
    assert found == list(range(300))


def test_S145_closing_wakes_a_producer_that_waits_and_waits_for_it() -> None:
    queue = ring(1)
    feeder = start_feeder(queue, lambda: (batch(n) for n in range(100)))
    assert taken(queue) == 0
    queue.close(5)
    feeder.join(5)
    assert not feeder.is_alive()
    with pytest.raises(QueueClosed):
        queue.front(1)
    queue.close(5)  # again: nothing


def test_S145_a_feeder_that_does_not_let_go_is_reported_and_the_others_are_closed() -> None:
    stuck, queues = threading.Event(), QueueSet()

    def hangs() -> Iterator[Any]:
        stuck.wait(30)
        yield batch(0)

    first, second = queues.add(ring(name="a")), queues.add(ring(name="b"))
    start_feeder(first, hangs)
    other = start_feeder(second, lambda: (batch(n) for n in range(9)))
    with pytest.raises(TimeoutExpired, match=r"queue 'a' could not be closed: its feeder goes on for 0\.05") as caught:
        queues.close(timeout=0.05)
    assert (caught.value.code, caught.value.exit) == ("KG903", 9)
    other.join(5)
    assert not other.is_alive()
    stuck.set()


@pytest.mark.parametrize("error", [ValueError("bad line 7"), SystemExit(3), KeyboardInterrupt(), MemoryError()])
def test_S144_a_feeder_that_dies_is_reported_after_its_last_batch(error: BaseException) -> None:
    queue = ring(4)

    def dies() -> Iterator[Any]:
        yield batch(0)
        yield batch(1)
        raise error

    start_feeder(queue, dies).join(5)
    assert [taken(queue), taken(queue)] == [0, 1]
    with pytest.raises(GraphError, match=f"the feeder of queue 'q' died: {type(error).__name__}") as caught:
        queue.front(5)
    assert (caught.value.code, caught.value.exit) == ("KG397", 3)
    assert caught.value.__cause__ is error
    queue.close(5)


def test_S143_many_producers_share_a_ring() -> None:
    queue = ring(3)
    threads = [in_thread(lambda k=k: [queue.push(batch(100 * k + n)) for n in range(50)]) for k in range(4)]
    found = [taken(queue) for _ in range(200)]
    for thread in threads:
        thread.join(5)
    assert sorted(found) == sorted(100 * k + n for k in range(4) for n in range(50))
    for k in range(4):
        own = [number for number in found if number is not None and number // 100 == k]
        assert own == sorted(own)


def test_S143_a_batch_is_waited_for_by_its_number_until_the_queue_is_over() -> None:
    queue, seen = ring(2), []
    looker = in_thread(lambda: seen.extend(n for n in range(9) if queue.wait_for(n)))
    for n in range(3):
        queue.push(batch(n))
        assert (queue.slot_of(n), queue.slot_of(n + 1)) == (n % 2, None)
        queue.front(5)
        queue.pop(quiet=True)
        assert queue.slot_of(n) is None
    queue.end()
    looker.join(5)
    assert seen == [0, 1, 2]
    queue.close(1)
    assert not queue.wait_for(0)


@pytest.mark.parametrize("tell", ["wake", "front", "pop"])
def test_S143_slots_that_were_given_back_quietly_are_filled_when_producers_are_told(tell: str) -> None:
    queue = ring(2)
    for n in range(2):
        queue.push(batch(n))
    producer = in_thread(lambda: queue.push(batch(2)))
    queue.pop(quiet=True)
    if tell == "pop":
        queue.pop()
    elif tell == "wake":
        queue.wake()
    else:
        queue.pop(quiet=True)
        assert queue.front(5) == 0  # waits for the producer, who has to know
    producer.join(5)
    assert not producer.is_alive()
    assert queue.pushed == 3
