"""Batches from files, arrays and Python, against slicing by hand."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgrun.graphs.errors import GraphError, KgrunError, UsageError
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.queues.settings import QueueSettings
from kgrun.runtime.queues.sources import open_batches

Array = np.ndarray[Any, Any]


def types(size: int) -> dict[str, TensorType]:
    return {"x": TensorType("float32", (size, 2)), "i": TensorType("int64", (size,))}


def settings(source: Any, **more: Any) -> QueueSettings:
    plain = {"shuffle": None, "epochs": 1, "last": "drop", "timeout": 1.0, "capacity": 2}
    return QueueSettings(source=source, where="the data", **(plain | more))


def samples(start: int, stop: int) -> dict[str, Array]:
    """Sample n is x = [n, -n], i = n."""
    i = np.arange(start, stop, dtype=np.int64)
    return {"x": np.stack([i, -i], axis=1).astype(np.float32), "i": i}


def numbers(batches: Any) -> list[list[int]]:
    """The samples of each batch, once it is seen that their items belong together."""
    found = []
    for batch in batches:
        x, i = map(np.asarray, batch)
        assert (x == np.stack([i, -i], axis=1)).all()
        assert x.dtype == np.float32
        found.append(i.tolist())
    return found


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    batch=st.integers(1, 7),
    epochs=st.integers(1, 3),
    shuffle=st.none() | st.integers(0, 5),
    last=st.sampled_from(["drop", "pad"]),
)
def test_every_epoch_has_every_sample_once_whatever_the_shards(
    tmp_path_factory: Any, sizes: list[int], batch: int, epochs: int, shuffle: int | None, last: str
) -> None:
    folder, start = tmp_path_factory.mktemp("shards"), 0
    for number, size in enumerate(sizes):
        np.savez(folder / f"{number}.npz", **samples(start, start + size))
        start += size
    total = start
    full, rest = divmod(total, batch)
    each = full + (last == "pad" and rest > 0)
    made = settings(folder, epochs=epochs, shuffle=shuffle, last=last)
    if each == 0:
        with pytest.raises(GraphError, match="not one batch"):
            open_batches("q", types(batch), made)
        return
    opened = open_batches("q", types(batch), made)
    found = numbers(opened.start())
    assert opened.count == len(found) == each * epochs
    assert {len(row) for row in found} == {batch}
    orders = []
    for epoch in range(epochs):
        flat = list(itertools.chain(*found[epoch * each : (epoch + 1) * each]))
        orders.append(flat)
        if shuffle is None:
            assert flat == [n % total for n in range(each * batch)]
        if last == "pad":
            assert sorted(flat[:total]) == list(range(total))
            assert flat[total:] == [flat[:batch][n % min(batch, total)] for n in range(each * batch - total)]
        else:
            assert len(set(flat)) == each * batch
    assert numbers(opened.start()) == found  # the same again


def test_a_shuffle_is_another_order_each_epoch_and_each_seed() -> None:
    def order(seed: int) -> list[list[int]]:
        return numbers(open_batches("q", types(20), settings(samples(0, 20), shuffle=seed, epochs=2)).start())

    first, second = order(1)
    assert first != second != list(range(20))
    assert order(2)[0] != first


def test_a_folder_of_one_npy_file_an_item_is_mapped(tmp_path: Path) -> None:
    for name, array in samples(0, 7).items():
        np.save(tmp_path / f"{name}.npy", array)
    opened = open_batches("q", types(3), settings(str(tmp_path)))
    assert numbers(opened.start()) == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("epochs", "shuffle", "held"), [(0, None, True), (16, None, True), (15, None, False), (0, 1, False)]
)
def test_arrays_that_are_gone_through_often_in_order_are_held(epochs: int, shuffle: int | None, held: bool) -> None:
    given = samples(0, 4)
    found = open_batches("q", types(2), settings(given, epochs=epochs, shuffle=shuffle)).held
    assert [array is whole for array, whole in zip(found, given.values(), strict=held)] == [True, True] * held


def test_no_end_is_no_count() -> None:
    opened = open_batches("q", types(2), settings(samples(0, 4), epochs=0))
    assert opened.endless
    assert opened.count is None
    assert numbers(itertools.islice(opened.start(), 5)) == [[0, 1], [2, 3], [0, 1], [2, 3], [0, 1]]


def test_python_gives_whole_batches() -> None:
    batches = [tuple(samples(n, n + 2).values()) for n in (0, 2)]
    as_list = open_batches("q", types(2), settings(batches, epochs=2))
    assert (as_list.count, numbers(as_list.start())) == (4, [[0, 1], [2, 3]] * 2)
    as_function = open_batches("q", types(2), settings(lambda: iter(batches), epochs=2))
    assert (as_function.count, numbers(as_function.start())) == (None, [[0, 1], [2, 3]] * 2)
    with pytest.raises(GraphError, match="gave no batch"):
        list(open_batches("q", types(2), settings(list, epochs=0)).start())


@pytest.mark.parametrize(
    ("source", "more", "code", "says"),
    [
        (samples(0, 7), {"last": "error"}, "KG396", "7 samples are 3 batches of 2 and 1 more"),
        (samples(0, 1), {}, "KG394", "1 samples are not one batch of 2"),
        ({"x": samples(0, 4)["x"]}, {}, "KG394", "the data have no 'i'"),
        ({**samples(0, 4), "i": np.arange(3)}, {}, "KG394", "different numbers of samples: x 4, i 3"),
        ({**samples(0, 4), "x": np.zeros((4, 3))}, {}, "KG394", r"'x' has shape \[4, 3\], the queue takes \[N, 2\]"),
        ({**samples(0, 4), "i": np.zeros(4)}, {}, "KG394", "the data: 'i' is float64, the queue takes int64"),
        ({**samples(0, 4), "i": np.int64(3)}, {}, "KG394", r"'i' has shape \[\]"),
        (iter([1]), {"epochs": 2}, "KG274", "an iterator can be gone through once"),
        ([1], {"shuffle": 1}, "KG274", "in their own order"),
        (7, {}, "KG274", "cannot be fed by a int"),
        ("digits.csv", {}, "KG274", "neither an .npz file nor a folder"),
        ("none.npz", {}, "KG372", "no such file"),
        (Path(__file__).parent, {}, "KG394", "neither .npz files nor x.npy, i.npy"),
    ],
)
def test_data_that_are_no_batches_are_refused(source: Any, more: dict[str, Any], code: str, says: str) -> None:
    with pytest.raises(KgrunError, match=says) as caught:
        open_batches("q", types(2), settings(source, **more))
    assert caught.value.code == code
    assert caught.value.exit == (2 if isinstance(caught.value, UsageError) else 3)
