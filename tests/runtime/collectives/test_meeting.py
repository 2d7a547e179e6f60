"""The store and the meetings of several ranks in one process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kgrun.graphs.errors import DeviceFault, GraphError, TimeoutExpired
from kgrun.runtime.collectives.meeting import Meeting, ended
from kgrun.runtime.collectives.ranks import RankInfo
from kgrun.runtime.collectives.store import BYE, FAILED, GONE, Store
from kgrun.runtime.collectives.world import odd_one


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store("127.0.0.1", 0, "secret", 3)
    yield made
    made.close()


def meet(store: Store, rank: int, seconds: float = 5.0, token: str = "secret") -> Meeting:
    return Meeting(RankInfo(rank, 3, rank), store.address, token, lambda: seconds)


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Results, or the errors raised, of calls that run side by side."""
    found: list[Any] = [None] * len(calls)

    def run(i: int) -> None:
        try:
            found[i] = calls[i]()
        except Exception as error:
            found[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_all_learn_what_all_say_in_order_of_rank(store: Store) -> None:
    ranks = [meet(store, rank) for rank in range(3)]
    found = together(*(lambda r=r: ranks[r].gather("k", r * 10, (0, 1, 2), "testing") for r in range(3)))  # type: ignore
    assert found == [[0, 10, 20]] * 3
    pair = together(*(lambda r=r: ranks[r].gather("p", r, (2, 0), "testing") for r in (0, 2)))  # type: ignore
    assert pair == [[2, 0]] * 2


def test_who_comes_late_is_told_what_was_said_and_what_is_for_one_reaches_one(store: Store) -> None:
    first = meet(store, 0)
    first.post("k", "early")
    first.post("mine", 1, to=1)
    second, third = meet(store, 1), meet(store, 2)
    assert second.collect("k", (0,), "testing") == third.collect("k", (0,), "testing") == ["early"]
    assert second.collect("mine", (0,), "testing") == [1]
    with pytest.raises(TimeoutExpired):
        third.collect("mine", (0,), "testing", 0.1)


def test_a_rank_that_ends_without_a_word_is_named(store: Store) -> None:
    first, second = meet(store, 0), meet(store, 1)
    heard = threading.Event()
    first.when_one_ends(heard.set)
    second._socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises(DeviceFault, match="rank 1 ended without a word, while testing") as caught:
        first.collect("k", (0, 1), "testing")
    assert caught.value.details["rank"] == 1
    assert heard.wait(2.0)
    assert GONE in store.snapshot()[1]


def test_a_rank_that_fails_says_why_and_who_only_heard_of_it_passes_the_name_on(store: Store) -> None:
    first, second, third = (meet(store, rank) for rank in range(3))
    third.fail(GraphError("no such file", code="KG301"))
    with pytest.raises(DeviceFault, match=r"rank 2 failed: no such file \[KG301\]") as caught:
        second.collect("k", (0, 1, 2), "testing")
    second.fail(caught.value)
    with pytest.raises(DeviceFault) as other:
        first.collect("k", (0, 1), "testing")
    assert other.value.details["rank"] == 2
    assert FAILED in store.snapshot()[2]


def test_who_is_late_is_named(store: Store) -> None:
    first = meet(store, 0, 0.2)
    with pytest.raises(TimeoutExpired, match=r"ranks 1, 2 did not come within 0\.2 s") as caught:
        first.gather("k", 0, (0, 1, 2), "testing")
    assert caught.value.details["ranks"] == [1, 2]


def test_who_else_waited_in_vain_says_the_same() -> None:
    """Of two ranks that wait for a third, chance tells whose time is up first: it must not tell the exit code."""
    late = TimeoutExpired(
        "rank 2 did not come", code="KG904", help="raise --timeout", details={"rank": 2, "ranks": [2]}
    )
    found = ended(1, {FAILED: late.to_json()}, "meeting the other ranks")
    assert (found.exit, found.code, found.message, found.help) == (9, "KG904", "rank 2 did not come", "raise --timeout")
    assert found.details["rank"] == 2
    other = ended(1, {FAILED: GraphError("no such node", code="KG300").to_json()}, "meeting the other ranks")
    assert (other.exit, other.code, other.details["rank"]) == (6, "KG620", 1)


def test_who_waits_for_something_else_is_known(store: Store) -> None:
    first, second = meet(store, 0), meet(store, 1)
    meet(store, 2).waits(["b", 1])
    second.waits(["a", 1])
    second.post("k", 0)
    first.collect("k", (1,), "testing")
    assert first.elsewhere((0, 1, 2), ["a", 1]) == [2]


def test_a_good_bye_is_no_trouble_unless_that_rank_is_waited_for(store: Store) -> None:
    first, second = meet(store, 0), meet(store, 1)
    second.post("k", 0)
    second.leave()
    assert first.collect("k", (1,), "testing") == [0]
    assert store.wait(2.0, lambda: BYE in store.heard[1])
    first.check((0, 2), "testing")
    with pytest.raises(DeviceFault, match="rank 1 was done and left"):
        first.collect("more", (1,), "testing")


def test_a_stranger_is_not_let_in(store: Store) -> None:
    stranger = meet(store, 1, token="guess")
    stranger.post("k", 0)
    first = meet(store, 0)
    with pytest.raises(TimeoutExpired):
        first.collect("k", (1,), "testing", 0.2)
    assert store.snapshot()[1] == {}


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(TimeoutExpired) as caught:
        Meeting(RankInfo(1, 2, 1), ("127.0.0.1", port), "", lambda: 0.2)
    assert caught.value.code == "KG904"
    assert time.monotonic() - started < 60


def test_when_the_store_ends_the_ranks_learn_of_it() -> None:
    store = Store("127.0.0.1", 0, "secret", 3)
    first = meet(store, 0)
    store.close()
    with pytest.raises(DeviceFault, match="lost the other ranks"):
        first.collect("k", (1,), "testing")


@pytest.mark.parametrize(
    ("values", "odd"), [([1, 1], None), ([1, 2], 1), ([1, 2, 2], 0), ([2, 2, 1], 2), ([1, 2, 1, 2], 1)]
)
def test_the_odd_one_is_who_differs_from_most(values: list[int], odd: int | None) -> None:
    assert odd_one(values) == odd
