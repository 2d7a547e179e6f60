"""Embedding caches in a graph: what the graph sees of a table, and the uses that cannot work (S148 to S152)."""

from __future__ import annotations

from typing import Any

import pytest

from kgrun.graphs.bind import bind
from kgrun.graphs.bound import BoundGraph
from kgrun.graphs.errors import GraphError
from tests.support import graph, node, tensor

TABLE = tensor("parameter", (20, 4), "float32", init={"fill": 1}, cache={"rows": 5})
TWIN = tensor("parameter", (20, 2), "float32", init={"fill": 1}, cache={"rows": 5})
PLAIN = tensor("parameter", (20, 2), "float32", init={"fill": 1})
NEXT = node("next", [], ["ids", "more"], op="GetNext", queue="q")
LOOK = node("look", ["table", "ids"], ["found"], op="Gather")


def made(
    *nodes: dict[str, Any], outputs: tuple[str, ...] = ("found",), ids: str = "int64", **tensors: Any
) -> BoundGraph:
    declared = {
        "ids": tensor(None, (3,), ids),
        "more": tensor(None, (3,), "int64"),
        "given": tensor("input", (3,), "int64"),
        "one": {"role": "constant", "dtype": "int64", "value": [1]},
        "table": TABLE,
        **tensors,
    }
    return bind(graph([NEXT, *nodes], declared, outputs, queues={"q": {"items": ["ids", "more"]}}))


def test_S148_the_graph_sees_the_cached_rows_and_a_row_of_zeros() -> None:
    bound = made(LOOK)
    assert (bound.tensors["table"].type.shape, bound.tensors["found"].type.shape) == ((6, 4), (3, 4))
    (cache,) = bound.caches
    assert (cache.ids, cache.rows) == ("ids", 5)
    (table,) = cache.tables
    assert (table.name, table.shape, table.dtype, table.updated) == ("table", (20, 4), "float32", False)
    assert bound.cached == {"table"}


def test_S148_a_cache_is_never_larger_than_its_table() -> None:
    bound = made(LOOK, table=TABLE | {"cache": {"rows": 1_000}})
    assert bound.caches[0].rows == 20


@pytest.mark.parametrize("shape", [(20,), (0, 4), (20, 0)])
def test_S148_what_has_no_rows_is_no_table(shape: tuple[int, ...]) -> None:
    with pytest.raises(GraphError, match="is no table") as caught:
        made(LOOK, table=TABLE | {"shape": list(shape)})
    assert (caught.value.code, caught.value.exit) == ("KG358", 3)


@pytest.mark.parametrize("path", [["Cast"], ["Unsqueeze", "Cast"], ["Unique"], ["Cast", "Unique", "Cast"]])
def test_S150_ids_are_traced_to_their_queue(path: list[str]) -> None:
    nodes, last = [], "ids"
    for i, op in enumerate(path):
        attributes = {"to": "int64"} if op == "Cast" else {"axis": 0, "sorted": 1} if op == "Unique" else {}
        inputs = [last, "one"] if op == "Unsqueeze" else [last]
        if op == "Unique":
            op, attributes = "Identity", {}  # a shape that only the run can tell binds in no plan
        nodes.append(node(f"n{i}", inputs, [f"t{i}"], op=op, attributes=attributes))
        last = f"t{i}"
    bound = made(*nodes, node("look", ["table", last], ["found"], op="Gather"))
    assert bound.caches[0].ids == "ids"


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([node("look", ["table", "given"], ["found"], op="Gather")], "come from input 'given', not from a queue"),
        ([node("look", ["table", "one"], ["found"], op="Gather")], "come from constant 'one', not from a queue"),
        (
            [
                node("sum", ["ids", "more"], ["both"], op="Add"),
                node("look", ["table", "both"], ["found"], op="Gather"),
            ],
            r"come from 'sum' \(Add\), not from a queue",
        ),
    ],
)
def test_S150_ids_from_elsewhere_are_refused(nodes: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(GraphError, match=says) as caught:
        made(*nodes)
    assert caught.value.code == "KG358"
    assert str(caught.value.where).endswith("inputs[1]")


def test_S152_tables_of_one_source_share_a_cache_and_those_of_another_have_their_own() -> None:
    bound = made(
        LOOK,
        node("look2", ["twin", "ids"], ["found2"], op="Gather"),
        node("look3", ["other", "more"], ["found3"], op="Gather"),
        twin=TWIN,
        other=TWIN | {"cache": {"rows": 7}},
        outputs=("found", "found2", "found3"),
    )
    assert [(c.ids, c.rows, [t.name for t in c.tables]) for c in bound.caches] == [
        ("ids", 5, ["table", "twin"]),
        ("more", 7, ["other"]),
    ]


def test_S152_all_lookups_of_a_source_are_cached_or_none() -> None:
    look2 = node("look2", ["twin", "ids"], ["found2"], op="Gather")
    with pytest.raises(GraphError, match="'twin' is looked up by 'ids' as cached 'table' is, but is not cached"):
        made(LOOK, look2, twin=PLAIN)
    free = node("look2", ["twin", "more"], ["found2"], op="Gather")
    assert made(LOOK, free, twin=PLAIN).tensors["twin"].type.shape == (20, 2)


@pytest.mark.parametrize("change", [{"cache": {"rows": 6}}, {"shape": [21, 2]}])
def test_S152_all_caches_of_a_source_have_one_size(change: dict[str, Any]) -> None:
    with pytest.raises(GraphError, match="looked up by the same ids, but cached differently"):
        made(LOOK, node("look2", ["twin", "ids"], ["found2"], op="Gather"), twin=TWIN | change)


@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([LOOK, node("again", ["table", "more"], ["f2"], op="Gather")], "looked up by 'ids' and by 'more'"),
        ([LOOK, node("all", ["table"], ["f2"], op="Relu")], r"'all' \(Relu\) reads all of 'table'"),
        ([LOOK, node("all", ["table", "ids"], ["f2"], op="Gather", attributes={"axis": 1})], "reads all of 'table'"),
        ([LOOK, node("scale", ["table", "table"], ["f2"], op="Mul", inplace={"f2": "table"})], "reads all of 'table'"),
        ([node("sum", ["ids", "more"], ["found"], op="Add")], "no Gather tells which rows of 'table'"),
        ([LOOK, node("sum", ["ids", "more"], ["f2"], op="Add")], r"'sum' \(Add\) reads 'ids', which holds indices"),
        (
            [node("wide", ["ids"], ["w"], op="Cast", attributes={"to": "int64"}),
             node("look", ["table", "w"], ["found"], op="Gather"),
             node("sum", ["w", "more"], ["f2"], op="Add")],
            "reads 'w', which holds indices of cached rows",
        ),
    ],
)  # fmt: skip
def test_S151_uses_that_cannot_work_are_refused(nodes: list[dict[str, Any]], says: str) -> None:
    outputs = ("found", "f2") if any("f2" in n["outputs"] for n in nodes) else ("found",)
    tensors = {} if any(n["name"] == "look" for n in nodes) else {"extra": PLAIN}
    if any("table" in n["inputs"] for n in nodes):
        with pytest.raises(GraphError, match=says) as caught:
            made(*nodes, outputs=outputs, **tensors)
    else:
        keep = node("keep", ["table"], ["kept"], inplace={"kept": "table"}, args=["table"])
        with pytest.raises(GraphError, match=says) as caught:
            made(*nodes, keep, outputs=outputs, kept=tensor(None, (20, 4), "float32"))
    assert caught.value.code == "KG358"


def test_neither_table_nor_indices_can_be_outputs() -> None:
    with pytest.raises(GraphError, match="'table' is a cached table, of which the device holds a part"):
        made(LOOK, outputs=("found", "table"))
    with pytest.raises(GraphError, match="'ids' holds indices of cached rows, not ids"):
        made(LOOK, outputs=("found", "ids"))


def test_ids_are_integers() -> None:
    with pytest.raises(GraphError, match="are int32 or int64, not int16"):
        made(node("wide", ["ids"], ["w"], op="Cast", attributes={"to": "int64"}),
             node("look", ["table", "w"], ["found"], op="Gather"), ids="int16")  # fmt: skip


def test_S149_what_updates_a_table_has_its_cached_shape_whatever_is_declared() -> None:
    keep = node("keep", ["table", "ids"], ["kept"], inplace={"kept": "table"}, args=["table", "ids"])
    again = node("look", ["kept", "ids"], ["found"], op="Gather")
    bound = made(keep, again, kept=tensor(None, (20, 4), "float32"))
    assert bound.tensors["kept"].type.shape == (6, 4)
    assert bound.caches[0].tables[0].updated
