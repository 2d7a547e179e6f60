"""Graphs packed and unpacked: whoever reads them sees no difference."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kgrun.graphs.bind import bind
from kgrun.graphs.load import load_graph
from kgrun.graphs.plain import Plain, packed, unpacked
from kgrun.graphs.schema import origin
from kgrun.graphs.schema.graph import GraphBody, KernelGraph
from kgrun.graphs.schema.kinds import is_dim, is_fill, is_integers, is_op, is_range, is_uniform, is_workspace

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*(ROOT / "examples").glob("*.yaml"), *(ROOT / "examples").glob("[!k]*.json")])
EVERYTHING: dict[str, Any] = {
    "kgrun": 1, "$schema": "here", "name": "all", "doc": "of it",
    "dims": {"n": 8, "m": {"default": 4, "max": 9, "buckets": [4, 8]}},
    "tensors": {
        "x": {"role": "input", "dtype": "float32", "shape": ["n"], "init": {"uniform": [-1, 1.5], "seed": 3}},
        "i": {"role": "input", "dtype": "int32", "shape": [3], "init": {"integers": [0, 9]}},
        "f": {"role": "input", "dtype": "float32", "shape": [], "init": {"fill": "nan"}},
        "r": {"role": "input", "dtype": "float32", "shape": ["m"], "init": {"arange": [0, 1]}},
        "c": {"value": [[1, 2.5], [-3, 1e300]], "dtype": "float64", "no_reuse": True},
        "y": {"dtype": "float32", "shape": ["n"], "max_shape": ["2 * n"]},
    },
    "kernels": {"k": {"source": "__global__ void k() {}", "entry": "k", "options": ["-O3"]}},
    "nodes": [
        {"name": "a", "kernel": "k", "inputs": ["x"], "outputs": ["y"], "grid": [1], "block": ["n"],
         "args": ["x", None, {"float32": 2.0}, {"struct": [{"int32": 3}]}],
         "workspace": [64, {"nbytes": "n", "clear": True}]},
        {"name": "b", "op": "Relu", "inputs": ["y"], "outputs": [None], "attributes": {"axes": [1, 2], "to": "float16"},
         "collective": {"root": 1}},
    ],
    "outputs": ["y"],
}  # fmt: skip


def nowhere(path: object) -> None:
    return None


def again(graph: KernelGraph) -> KernelGraph:
    return unpacked(packed(graph), file="f.yaml", folder=Path("d"), allow_external=True, locate=nowhere)


def differences(a: Any, b: Any, at: str = "") -> Iterator[str]:
    """Where a record and what stands for it differ in what a reader sees."""
    if hasattr(a, "model_fields_set"):
        if type(b).__name__ != type(a).__name__:
            yield f"{at}: {type(b)}"
        for name in type(a).model_fields:
            yield from differences(getattr(a, name), getattr(b, name), f"{at}.{name}")
    elif isinstance(a, (list, tuple)):
        if type(a) is not type(b) or len(a) != len(b):
            yield f"{at}: {b!r}"
        for k, (one, other) in enumerate(zip(a, b, strict=False)):
            yield from differences(one, other, f"{at}[{k}]")
    elif isinstance(a, dict):
        if list(a) != list(b):
            yield f"{at}: {list(b)}"
        for key in a:
            yield from differences(a[key], b[key], f"{at}[{key}]")
    elif type(a) is not type(b) or a != b:
        yield f"{at}: {a!r} is {b!r}"


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_every_example_comes_back_as_it_was(file: Path) -> None:
    graph = load_graph(file)
    back = again(graph)
    assert list(differences(graph, back)) == []
    options = {"mode": "json", "by_alias": True, "exclude_unset": True}
    assert back.model_dump(**options) == graph.model_dump(**options)


def test_every_kind_of_record_comes_back_as_it_was() -> None:
    graph = KernelGraph.model_validate(EVERYTHING)
    back = again(graph)
    assert list(differences(graph, back)) == []
    assert back.model_dump(mode="json", by_alias=True, exclude_unset=True) == EVERYTHING | {
        "tensors": {n: t | ({"init": t["init"]} if "init" in t else {}) for n, t in EVERYTHING["tensors"].items()}
    }
    assert (back.file, back.folder, back.allows_external_data, back.body) == ("f.yaml", Path("d"), True, None)
    assert back.place("nodes", 1).path == ("nodes", 1)
    assert back.kernels["k"].inline is graph.kernels["k"].inline is True


def test_what_is_known_without_the_records_is_what_they_have() -> None:
    assert set(origin.ORIGIN) == set(KernelGraph.__private_attributes__)
    assert set(GraphBody.model_fields) == origin._OF_A_BODY


def test_kinds_are_told_alike() -> None:
    for graph in (KernelGraph.model_validate(EVERYTHING), again(KernelGraph.model_validate(EVERYTHING))):
        inits = [graph.tensors[name].init for name in "xifr"]
        assert all(init is not None for init in inits)
        for told, expected in ((is_uniform, 0), (is_integers, 1), (is_fill, 2), (is_range, 3)):
            assert [told(cast("Any", init)) for init in inits] == [k == expected for k in range(4)]
        assert [is_op(node) for node in graph.nodes] == [False, True]
        assert [is_dim(dim) for dim in graph.dims.values()] == [False, True]
        assert [is_workspace(entry) for entry in graph.nodes[0].workspace] == [False, True]


def test_a_graph_that_came_back_is_bound_alike() -> None:
    graph = load_graph(ROOT / "examples" / "saxpy.yaml")
    back = again(graph)
    cast("Any", back).__dict__["_folder"] = graph.folder
    one, other = bind(graph, dims={"n": 64}), bind(back, dims={"n": 64})
    assert one.dims == other.dims
    assert {n: t.type for n, t in one.tensors.items()} == {n: t.type for n, t in other.tensors.items()}
    assert [node.launch for node in one.nodes] == [node.launch for node in other.nodes]


def test_it_is_frozen_compared_by_value_and_copied_with_changes() -> None:
    graph = again(KernelGraph.model_validate(EVERYTHING))
    spec: Any = graph.tensors["x"]
    with pytest.raises(AttributeError, match="TensorSpec is frozen"):
        spec.dtype = "int8"
    assert spec == copy.copy(spec)
    changed = spec.model_copy(update={"data": "x.npy", "init": None})
    assert (changed.data, changed.init, changed.shape) == ("x.npy", None, ["n"])
    assert changed != spec
    assert spec.data is None
    assert isinstance(spec, Plain)
    assert repr(spec).startswith("TensorSpec(role='input', dtype='float32'")
    assert changed.model_dump(mode="json", by_alias=True, exclude_unset=True)["data"] == "x.npy"


@pytest.mark.parametrize("damage", [b"", b"\x00", b"N", b"i\x01\x00\x00\x00"])
def test_other_bytes_are_no_graph(damage: bytes) -> None:
    with pytest.raises(ValueError, match=r"no packed graph|bad marshal data"):
        unpacked(damage, file="f", folder=None, allow_external=False, locate=nowhere)
