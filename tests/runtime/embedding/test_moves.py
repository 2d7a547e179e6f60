"""The kernels that move rows (rows.cu), run by the CPU device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.embedding import moves

pytest.importorskip("llvmlite")


def kernel(entry: str, unit: str) -> dict[str, str]:
    """One of the kernels, moving rows in pieces of `unit`."""
    source = Path(moves.__file__).with_name("rows.cu").read_text("utf-8")
    return {"source": source.replace("UNIT unit", f"{unit} unit"), "entry": entry}


def test_S155_the_kernels_move_rows_of_every_width() -> None:
    generator = np.random.default_rng(4)
    for unit, kind, dtype, units in (("uint4", 16, "float32", 1), ("unsigned char", 1, "uint8", 7)):
        wide = units * kind // np.dtype(dtype).itemsize
        cache, block = (generator.integers(0, 200, (n, wide)).astype(dtype) for n in (10, 6))
        slots, count = generator.permutation(10)[:6].astype(np.int32), np.array([4], np.int32)
        for entry in ("kg_rows_in", "kg_rows_out"):
            target = "cache" if entry == "kg_rows_in" else "block"
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
                {"kgrun": 1, "kernels": {"k": kernel(entry, unit)},
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


@pytest.mark.parametrize(("unit", "dtype", "units"), [("uint4", "float32", 40), ("unsigned char", "uint8", 7)])
@pytest.mark.parametrize("updated", [0, 1])
@pytest.mark.parametrize(("missed", "blocks"), [(33, 1), (33, 3), (3_100, 2)])
def test_S155_a_kernel_exchanges_rows_of_every_width(
    unit: str, dtype: str, units: int, updated: int, missed: int, blocks: int
) -> None:
    """kg_rows_exchange: 3 of the missing rows into fresh slots, hits of 5 slots before them."""
    generator = np.random.default_rng(4)
    wide = units * (4 if dtype == "float32" else 1)
    rows, vocabulary = missed + 7, 2 * missed + 20
    rest = vocabulary // 2
    values = {
        "cache": generator.integers(1, 200, (rows + 1, wide)).astype(dtype),
        "table": generator.integers(1, 200, (vocabulary, wide)).astype(dtype),
        "counts": np.array([missed, 5, 3, 6, 1, 0, 0, 0]),
        "missing": generator.permutation(rest)[:missed],
        "used": generator.permutation(rows)[: missed + 5],
        "evicted": rest + generator.permutation(vocabulary - rest)[: missed - 3],
        "found": generator.integers(-1, rows, 2_077),
        "ids": np.zeros(2_077, np.int64),
    }
    tensors: dict[str, Any] = {
        name: {"role": "parameter" if name in ("cache", "table", "ids") else "input", "dtype": str(a.dtype)}
        | {"shape": list(a.shape)}
        for name, a in values.items()
    }
    changed = {"cache2": "cache", "table2": "table", "ids2": "ids"}
    numbers = [{"int32": number} for number in (units, rows, updated, 2 * 2_077, missed)]
    node = {
        "name": "move", "kernel": "k", "inputs": list(values), "outputs": list(changed), "inplace": changed,
        "args": [*values, *numbers], "grid": [blocks], "block": [1024],
    }  # fmt: skip
    graph = KernelGraph.model_validate(
        {"kgrun": 1, "kernels": {"k": kernel("kg_rows_exchange", unit)}, "nodes": [node],
         "tensors": tensors | {new: tensors[old] | {"role": None} for new, old in changed.items()},
         "outputs": list(changed)}
    )  # fmt: skip
    given = {name: array.copy() for name, array in values.items()}
    with Session(graph, device="cpu", values=given) as session:
        found = session.run(given, iterations=1, warmup=0).outputs
    cache, table = values["cache"].copy(), values["table"].copy()
    places = values["used"][5:]
    if updated:
        table[values["evicted"]] = cache[places[3:]]
        cache[rows] = 0
    cache[places] = values["table"][values["missing"]]
    assert (found["cache2"] == cache).all()
    assert (found["table2"] == table).all()
    assert (found["ids2"] == values["found"]).all()
