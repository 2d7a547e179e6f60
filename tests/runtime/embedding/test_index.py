"""The index of cached rows against a model that keeps rows in a dictionary and knows when each was used last."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgrun.graphs.errors import DoesNotFit
from kgrun.runtime.embedding.index import Block, Lookup, RowIndex


class Model:
    """What the index must do, a row at a time."""

    def __init__(self, vocabulary: int, rows: int) -> None:
        self.vocabulary, self.rows, self.step = vocabulary, rows, 0
        self.used: dict[int, int] = {}  # row: its last step
        self.slot: dict[int, int] = {}

    def check(self, ids: np.ndarray[Any, Any], found: Lookup) -> None:
        self.step += 1
        wanted = {int(i) for i in ids.ravel() if 0 <= i < self.vocabulary}
        missing = wanted - self.slot.keys()
        assert sorted(found.missing) == sorted(missing)
        assert found.hits == sum(1 for i in ids.ravel() if int(i) in self.slot)
        assert found.outside == sum(1 for i in ids.ravel() if not 0 <= i < self.vocabulary)
        evicted = [int(i) for i in found.evicted]
        assert len(set(evicted)) == len(evicted) == max(0, len(self.slot) + len(missing) - self.rows)
        assert wanted.isdisjoint(evicted)  # what the batch uses stays
        kept = [row for row in self.slot if row not in wanted and row not in evicted]
        assert all(self.used[out] <= self.used[row] for out in evicted for row in kept)  # the longest unused go
        assert [self.slot[row] for row in evicted] == found.freed.tolist()
        for row in evicted:
            del self.slot[row], self.used[row]
        for row, place in zip(found.missing, found.places, strict=True):
            assert int(place) not in self.slot.values()
            self.slot[int(row)] = int(place)
        self.used.update(dict.fromkeys(wanted, self.step))
        assert found.slots.dtype == ids.dtype
        assert found.slots.shape == ids.shape
        assert found.slots.ravel().tolist() == [self.slot.get(int(i), -1) for i in ids.ravel()]
        assert sorted(found.used) == sorted(self.slot[row] for row in wanted)


@given(
    rows=st.integers(1, 12),
    batches=st.lists(st.lists(st.integers(-3, 33), min_size=1, max_size=14), min_size=1, max_size=30),
    dtype=st.sampled_from(["int32", "int64"]),
    compiled=st.booleans(),
)
def test_S154_hits_misses_and_evictions(rows: int, batches: list[list[int]], dtype: str, compiled: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KGRUN_NATIVE", str(int(compiled)))
        follow(rows, batches, dtype)


def follow(rows: int, batches: list[list[int]], dtype: str) -> None:
    """The index and the model over the same batches."""
    index, model = RowIndex(30, rows), Model(30, rows)
    for batch in batches:
        ids = np.array(batch, dtype)
        distinct = {i for i in batch if 0 <= i < 30}
        if len(distinct) > rows:
            with pytest.raises(DoesNotFit, match="of which") as caught:
                index.lookup(ids)
            assert (caught.value.code, caught.value.exit) == ("KG408", 4)
            assert caught.value.details == {"used": len(distinct), "rows": rows}
            continue  # and nothing has changed: the model does not hear of it
        model.check(ids, index.lookup(ids))
    assert {row: slot for slot, row in enumerate(index.rows_of_slots().tolist()) if row >= 0} == model.slot


@given(
    rows=st.integers(1, 12),
    batches=st.lists(st.lists(st.integers(-3, 33), min_size=1, max_size=14), min_size=1, max_size=60),
    dtype=st.sampled_from(["int32", "int64"]),
)
def test_S154_compiled_or_not_the_same_rows_get_the_same_slots_in_the_same_order(
    rows: int, batches: list[list[int]], dtype: str
) -> None:
    found = []
    for compiled in "01":
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KGRUN_NATIVE", compiled)
            index, block = RowIndex(30, rows), Block.new(14, np.dtype(dtype))
            found.append([told(index, np.array(batch, dtype), block) for batch in batches])
    assert found[0] == found[1]


def told(index: RowIndex, ids: np.ndarray[Any, Any], block: Block) -> list[Any]:
    """All that a lookup and the index say afterwards; the block is as large as any batch's."""
    block = Block(block.counts, block.missing, block.used, block.evicted, block.found[: len(ids)])
    try:
        look = index.lookup(ids, block)
    except DoesNotFit as error:
        return [error.details, index.rows_of_slots().tolist()]
    arrays = (look.slots, look.missing, look.places, look.evicted, look.freed, look.used, index.rows_of_slots())
    return [look.missed, look.hit, look.fresh, look.hits, look.outside, *(array.tolist() for array in arrays)]


def test_a_block_lies_in_any_memory() -> None:
    memory, at = np.zeros(Block.offsets(100)["end"], np.uint8), Block.offsets(100)
    block = Block.over(memory, 100, np.dtype("int32"), 3)
    look = RowIndex(1_000, 200).lookup(np.arange(100, dtype=np.int32)[::-1], block)
    assert block.turn == 3
    assert memory[at["missing"] :].view(np.int64)[:100].tolist() == look.missing.tolist() == list(range(99, -1, -1))
    assert memory[at["found"] :].view(np.int32)[:100].tolist() == look.slots.tolist() == list(range(100))
    assert memory[:40].view(np.int64).tolist() == [100, 0, 100, 0, 0]


@pytest.mark.parametrize("compiled", ["0", "1"])
def test_S154_a_long_run_of_hits_leaves_the_order_of_use(compiled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is cleaned many times, and still knows which row was used longest ago."""
    monkeypatch.setenv("KGRUN_NATIVE", compiled)
    index = RowIndex(100, 10)
    index.lookup(np.arange(10))
    for step in range(500):
        index.lookup(np.arange(step % 3, step % 3 + 8))
        assert index._state[1] - index._state[0] <= len(index._log) == 64
    index.lookup(np.arange(10))
    index.lookup(np.array([3, 5, 0, 1]))
    index.lookup(np.array([9]))
    assert sorted(index.lookup(np.array([50, 51, 52, 53, 54])).evicted) == [2, 4, 6, 7, 8]
    assert sorted(index.lookup(np.arange(60, 64)).evicted) == [0, 1, 3, 5]
    assert index.lookup(np.array([70])).evicted.tolist() == [9]


@pytest.mark.parametrize("compiled", ["0", "1"])
@pytest.mark.parametrize("before", range(4))
def test_S154_steps_beyond_what_is_counted_leave_the_order_of_use(
    compiled: str, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGRUN_NATIVE", compiled)
    index, model = RowIndex(40, 12), Model(40, 12)
    index._state[3] = 2**31 - 1 - before
    generator = np.random.default_rng(before)
    for _ in range(12):
        ids = generator.integers(0, 40, 7)
        model.check(ids, index.lookup(ids))
    assert index._state[3] == 12 - before


@pytest.mark.parametrize("compiled", ["0", "1"])
def test_rows_that_left_and_came_back_are_found_where_they_are(compiled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that left is not found in its old slot, whoever is there."""
    monkeypatch.setenv("KGRUN_NATIVE", compiled)
    index, model = RowIndex(6, 2), Model(6, 2)
    for ids in ([0, 1], [2], [0], [1, 1], [2, 0], [0], [3], [0, 3], [1], [3, 1], [5], [1], [5, 1]):
        model.check(np.array(ids), index.lookup(np.array(ids)))


def test_S154_shapes_are_kept() -> None:
    found = RowIndex(100, 10).lookup(np.array([[5, 7], [5, 200]], np.int32))
    assert found.slots.tolist() in ([[0, 1], [0, -1]], [[1, 0], [1, -1]])
