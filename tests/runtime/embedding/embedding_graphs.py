"""Graphs with cached tables, and what they compute by direct indexing."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgrun.graphs.schema.graph import KernelGraph
from tests.support import graph, node, tensor

Array = np.ndarray[Any, Any]
VOCABULARY, WIDTH, BATCH = 50, 3, 6


def lookup_graph(rows: int, *, update: bool = True, dtype: str = "int64", **table: Any) -> KernelGraph:
    """`found = table[ids]`; with `update`, `table[ids] += step` for distinct ids, and `total += found`."""
    tensors = {
        "ids": tensor(None, (BATCH,), dtype),
        "step": tensor(None, (BATCH, WIDTH), "float32"),
        "table": tensor("parameter", (VOCABULARY, WIDTH), "float32", cache={"rows": rows}, **table),
        "total": tensor("parameter", (BATCH, WIDTH), "float32", init={"fill": 0}),
    }
    nodes = [
        node("next", [], ["ids", "step"], op="GetNext", queue="q"),
        node("wide", ["ids"], ["ids64"], op="Cast", attributes={"to": "int64"}),
        node("look", ["table", "ids64"], ["found"], op="Gather"),
        node("add", ["total", "found"], ["total2"], op="Add", inplace={"total2": "total"}),
    ]
    if update:
        nodes += [
            node("moved", ["found", "step"], ["new"], op="Add"),
            node("column", ["ids64", "axes"], ["ids2"], op="Unsqueeze"),
            node("put", ["table", "ids2", "new"], ["table2"], op="ScatterND", inplace={"table2": "table"}),
        ]
        tensors["axes"] = {"role": "constant", "dtype": "int64", "value": [1]}
    return graph(nodes, tensors, ["found", "total2"], queues={"q": {"items": ["ids", "step"]}})


class Direct:
    """The same by indexing the whole table."""

    def __init__(self, table: Array, update: bool = True) -> None:
        self.table, self.update = table.copy(), update
        self.total = np.zeros((BATCH, WIDTH), np.float32)

    def run(self, ids: Array, step: Array) -> Array:
        inside = (ids >= 0) & (ids < VOCABULARY)
        found = np.where(inside[:, None], self.table[np.where(inside, ids, 0)], np.float32(0))
        self.total += found
        if self.update:
            self.table[ids[inside]] = (found + step)[inside]
        return found


def batches(count: int, seed: int, outside: bool = False) -> list[tuple[Array, Array]]:
    """Distinct ids a batch, small ones more often; `outside` puts some beyond the table."""
    generator = np.random.default_rng(seed)
    weights = 1 / np.arange(1, VOCABULARY + 1)
    made = []
    for _ in range(count):
        ids = generator.choice(VOCABULARY, BATCH, replace=False, p=weights / weights.sum())
        if outside:
            ids = np.where(generator.random(BATCH) < 0.2, generator.choice([-1, -7, VOCABULARY, 10**6], BATCH), ids)
        made.append((ids, generator.normal(size=(BATCH, WIDTH)).astype(np.float32)))
    return made
