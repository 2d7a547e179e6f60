"""Cached tables in sessions, against direct indexing of the whole table."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.errors import DoesNotFit, GraphError, UsageError
from kgrun.runtime import Session, save_parameters
from kgrun.runtime.queues import QueueFeed
from tests.runtime.embedding.embedding_graphs import BATCH, VOCABULARY, WIDTH, Direct, batches, lookup_graph

Array = np.ndarray[Any, Any]


def whole(seed: int = 5) -> Array:
    return np.random.default_rng(seed).normal(size=(VOCABULARY, WIDTH)).astype(np.float32)


def fed(pairs: list[tuple[Array, Array]], dtype: str = "int64") -> QueueFeed:
    return QueueFeed([(ids.astype(dtype), step) for ids, step in pairs])


@pytest.mark.parametrize("rows", [BATCH, 11, VOCABULARY, 10 * VOCABULARY])
@pytest.mark.parametrize("update", [True, False])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_S155_every_lookup_is_that_of_the_whole_table(rows: int, update: bool, dtype: str) -> None:
    pairs, table = batches(60, rows), whole()
    direct = Direct(table, update)
    with Session(
        lookup_graph(rows, update=update, dtype=dtype),
        device="cpu", values={"table": table}, queues={"q": fed(pairs, dtype)},
    ) as session:  # fmt: skip
        for ids, step in pairs:
            report = session.run(iterations=1, warmup=1)
            assert (report.outputs["found"] == direct.run(ids, step)).all()
            (cache,) = report.embeddings
            assert (cache.batches, cache.lookups, cache.written <= cache.evicted) == (1, BATCH, True)
        assert (report.outputs["total2"] == direct.total).all()
        assert (session.output("table") == direct.table).all()
    assert (table == whole()).all()  # the caller's array is never changed


def test_S149_the_device_holds_the_cache_alone() -> None:
    with Session(lookup_graph(8), device="cpu", values={"table": whole()}, queues={"q": fed(batches(1, 1))}) as session:
        (buffer,) = (b for b in session.program.buffers if b.name == "table")
        assert buffer.nbytes == (8 + 1) * WIDTH * 4
        assert session.bound.tensors["table2"].type.shape == (9, WIDTH)


def test_S155_ids_outside_the_table_find_zeros_and_update_nothing() -> None:
    pairs, table = batches(80, 3, outside=True), whole()
    direct = Direct(table)
    with Session(lookup_graph(9), device="cpu", values={"table": table}, queues={"q": fed(pairs)}) as session:
        outside = 0
        for ids, step in pairs:
            report = session.run(iterations=1)
            assert (report.outputs["found"] == direct.run(ids, step)).all()
            outside += report.embeddings[0].outside
        assert outside == sum(int(((ids < 0) | (ids >= VOCABULARY)).sum()) for ids, _ in pairs) > 50
        assert (session.output("table") == direct.table).all()


def test_statistics_add_up() -> None:
    pairs = batches(40, 9)
    with Session(lookup_graph(10), device="cpu", values={"table": whole()}, queues={"q": fed(pairs)}) as session:
        (cache,) = session.run().embeddings
    assert (cache.ids, cache.tables, cache.rows, cache.vocabulary) == ("ids", ("table",), 10, VOCABULARY)
    assert (cache.batches, cache.lookups, cache.outside) == (40, 40 * BATCH, 0)
    assert cache.hits + cache.loaded == cache.lookups  # ids are distinct in a batch
    assert cache.evicted == cache.loaded - 10 == cache.written
    assert (cache.loaded_bytes, cache.written_bytes) == (cache.loaded * WIDTH * 4, cache.written * WIDTH * 4)
    assert cache.prepare_ns > 0


def test_S154_a_batch_larger_than_the_cache_is_told_to_enlarge_it() -> None:
    with Session(lookup_graph(5), device="cpu", values={"table": whole()}, queues={"q": fed(batches(2, 1))}) as session:
        with pytest.raises(DoesNotFit, match="a batch uses 6 rows of a table of which 5 are cached") as caught:
            session.run()
        assert (caught.value.code, caught.value.exit) == ("KG408", 4)
        assert caught.value.help == "enlarge the cache, or make the batch smaller"
        assert str(caught.value.where).endswith("tensors.table.cache")


def test_S154_a_batch_that_is_too_large_ends_the_run_that_takes_it_and_no_other() -> None:
    """Batches are looked up ahead; what is wrong with one of them waits for its turn, and is said again."""
    pairs, table = batches(5, 1), whole()
    small = [(np.array([1, 2, 3, 1, 2, 3]) + n, step) for n, (_, step) in enumerate(pairs[:4])]
    direct = Direct(table, update=False)
    with Session(
        lookup_graph(5, update=False), device="cpu", values={"table": table}, queues={"q": fed([*small, pairs[4]])}
    ) as session:
        for ids, step in small:
            assert (session.run(iterations=1).outputs["found"] == direct.run(ids, step)).all()
        for _ in range(2):
            with pytest.raises(DoesNotFit, match="a batch uses 6 rows"):
                session.run(iterations=1)


def test_S153_no_thread_is_left_when_a_cache_ends_the_run() -> None:
    def threads() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name.startswith("kgrun") and t not in before]

    before = threading.enumerate()  # threads that the CPU device keeps for custom kernels are everybody's
    pairs = batches(9, 1)
    with (
        pytest.raises(DoesNotFit),
        Session(lookup_graph(5), device="cpu", values={"table": whole()}, queues={"q": fed(pairs)}) as session,
    ):
        session.run()
    assert threads() == []
    with pytest.raises(UsageError):  # no table
        Session(lookup_graph(8), device="cpu", queues={"q": fed(pairs)})
    assert threads() == []


def test_a_mapped_file_keeps_its_bytes_unless_it_is_to_persist(tmp_path: Path) -> None:
    table, pairs = whole(), batches(30, 4)
    direct = Direct(table)
    for pair in pairs:
        direct.run(*pair)
    for persist, wanted in ((False, table), (True, direct.table)):
        np.save(tmp_path / "table.npy", table)
        made = lookup_graph(8, data="table.npy")
        made = made.model_copy(
            update={"tensors": made.tensors | {"table": made.tensors["table"].model_copy(
                update={"cache": made.tensors["table"].cache.model_copy(update={"persist": persist})}  # type: ignore
            )}}
        )  # fmt: skip
        made._folder = tmp_path
        with Session(made, device="cpu", queues={"q": fed(pairs)}) as session:
            assert (session.run().outputs["total2"] == direct.total).all()
        assert (np.load(tmp_path / "table.npy") == wanted).all()


def test_a_file_that_cannot_be_written_is_told_before_a_table_persists_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "table.npy", whole())
    made = lookup_graph(8, data="table.npy")
    spec = made.tensors["table"]
    cache = spec.cache.model_copy(update={"persist": True})  # type: ignore[union-attr]
    made = made.model_copy(update={"tensors": made.tensors | {"table": spec.model_copy(update={"cache": cache})}})
    made._folder = tmp_path
    monkeypatch.setattr("os.access", lambda path, mode: mode != os.W_OK)  # whoever runs the tests may write
    with pytest.raises(GraphError, match="'table' is to persist in it") as caught:
        Session(made, device="cpu", queues={"q": fed(batches(3, 4))})
    assert caught.value.code == "KG372"
    assert str(caught.value.where).endswith("tensors.table.data")


def test_S106_the_whole_table_is_saved_as_the_run_left_it(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    pairs, table = batches(20, 8), whole()
    direct = Direct(table)
    for pair in pairs:
        direct.run(*pair)
    with Session(lookup_graph(8), device="cpu", values={"table": table}, queues={"q": fed(pairs)}) as session:
        session.run(iterations=15)
        save_parameters(session, tmp_path / "early.safetensors")  # writes home, and goes on
        session.run(iterations=5)
        save_parameters(session, tmp_path / "late.safetensors")
    assert (load_file(tmp_path / "late.safetensors")["table"] == direct.table).all()
    assert (load_file(tmp_path / "early.safetensors")["table"] != direct.table).any()


def test_trials_of_streams_leave_neither_batches_nor_rows_behind() -> None:
    pairs, table = batches(10, 2), whole()
    direct = Direct(table)
    for pair in pairs:
        direct.run(*pair)
    session = Session(lookup_graph(8), device="cpu", values={"table": table}, queues={"q": fed(pairs)}, streams="auto")
    with session:
        report = session.run(warmup=2)
        assert (report.iterations, (report.outputs["total2"] == direct.total).all()) == (10, True)
        assert (session.output("table") == direct.table).all()


@pytest.mark.parametrize(
    ("change", "error", "code", "says"),
    [
        ({}, UsageError, "KG210", "table 'table' has no data"),
        ({"cache": {"rows": 4, "persist": True}, "init": {"fill": 0}}, GraphError, "KG358", "'table' is to persist"),
        ({"data": "none.npy"}, GraphError, "KG372", "no such file"),
    ],
)
def test_tables_without_fitting_data_are_refused(
    change: dict[str, Any], error: type[Exception], code: str, says: str, tmp_path: Path
) -> None:
    made = lookup_graph(8, **{k: v for k, v in change.items() if k != "cache"})
    if "cache" in change:
        spec = type(made.tensors["table"]).model_validate(
            {"role": "parameter", "dtype": "float32", "shape": [VOCABULARY, WIDTH], **change}
        )
        made = made.model_copy(update={"tensors": made.tensors | {"table": spec}})
    made._folder = tmp_path
    with pytest.raises(error, match=says) as caught:
        Session(made, device="cpu", queues={"q": fed(batches(1, 1))})
    assert caught.value.code == code  # type: ignore[attr-defined]
