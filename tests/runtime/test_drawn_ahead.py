"""Arrays come in order whatever thread makes them, and never more at once than there is room for."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.bind import bind
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.drawn_ahead import early_draws, in_order, is_drawn
from kgrun.runtime.host_data import host_array


@pytest.fixture(autouse=True)
def _four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)


@pytest.mark.parametrize("room", [0, 100, 10_000])
def test_in_order_and_within_the_room(room: int) -> None:
    lock, alive, most = threading.Lock(), 0, 0

    def made(i: int) -> Any:
        nonlocal alive, most
        with lock:
            alive += 100
            most = max(most, alive)
        return np.full(1, i)

    arrays = in_order([lambda i=i: made(i) for i in range(12)], [100] * 12, [i % 3 != 0 for i in range(12)], room)
    seen = []
    for array in arrays:
        seen.append(int(array[0]))
        with lock:
            alive -= 100
    assert seen == list(range(12))
    # The one that is handed out is not on its way any more, and one that is not drawn is made beside those that are.
    assert most <= max(room, 100) + 200


def test_threads_work_side_by_side() -> None:
    both = threading.Barrier(2, timeout=10)

    def made() -> Any:
        both.wait()
        return np.zeros(1)

    assert len(list(in_order([made, made], [8, 8], [True, True], 1 << 20))) == 2


def test_an_error_is_raised_where_its_array_is_wanted() -> None:
    def bad() -> Any:
        raise ValueError("no")

    arrays = in_order([lambda: np.zeros(1), bad], [8, 8], [True, True], 1 << 20)
    assert next(arrays)[0] == 0
    with pytest.raises(ValueError, match="no"):
        next(arrays)


def graph(count: int = 4, elements: int = 1 << 18) -> KernelGraph:
    """Sums of random parameters of 1 MiB each."""
    tensors: dict[str, Any] = {
        f"p{i}": {"role": "parameter", "dtype": "float32", "shape": [elements], "init": {"normal": [0, 1]}}
        for i in range(count)
    }
    nodes = [{"name": "sum", "op": "Sum", "inputs": list(tensors), "outputs": ["y"]}]
    return KernelGraph.model_validate({"kgrun": 1, "tensors": tensors, "nodes": nodes, "outputs": ["y"]})


def test_drawn_are_large_random_tensors_that_nothing_replaces() -> None:
    large, small = bind(graph()), bind(graph(elements=16))
    assert is_drawn(large.tensors["p0"], given=False)
    assert not is_drawn(large.tensors["p0"], given=True)
    assert not is_drawn(small.tensors["p0"], given=False)


def test_the_data_are_those_of_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(graph(), device="cpu") as session:
        several = session.run().outputs["y"]
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    with Session(graph(), device="cpu") as session:
        assert session.run().outputs["y"].tobytes() == several.tobytes()


def test_what_is_drawn_while_a_session_opens_is_used_once_and_is_the_same() -> None:
    bound = bind(graph())
    early = early_draws(bound, {}, 7)
    assert sorted(early) == ["p0", "p1", "p2", "p3"]
    assert early["p2"]().tobytes() == host_array(bound, bound.tensors["p2"], {}, 7).tobytes()
    with Session(graph(), device="cpu", seed=7) as session:
        assert session._early == {}
        first = session.run().outputs["y"]
    with Session(graph(), device="cpu", seed=7, host_memory_limit=1 << 30) as session:
        assert session.run().outputs["y"].tobytes() == first.tobytes()


def test_given_data_are_not_drawn_and_much_is_left_for_later() -> None:
    assert sorted(early_draws(bind(graph()), {"p1": np.zeros(1 << 18, np.float32)}, 0)) == ["p0", "p2", "p3"]
    assert sorted(early_draws(bind(graph(3, 1 << 23)), {}, 0)) == ["p0", "p1"]
