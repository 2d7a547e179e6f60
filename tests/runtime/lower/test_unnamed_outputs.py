"""Operators with outputs that nobody names, absent inputs at the end, and views with further outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.program import MemoryClass
from tests.support import program

X = {"role": "input", "dtype": "float32", "shape": [1, 1, 4, 4], "init": {"arange": [0, 1]}}


def run(node: Any, outputs: Any, memory: Any = "planned", more: Any = ()) -> dict[str, Any]:
    nodes = [{"name": "n", "inputs": ["x"], **node}, *more]
    graph = KernelGraph.model_validate({"kgrun": 1, "tensors": {"x": X}, "nodes": nodes, "outputs": list(outputs)})
    with Session(graph, device="cpu", memory=memory) as session:
        return dict(session.run(iterations=2, poison=True).outputs)


@pytest.mark.parametrize("memory", ["planned", "none"])
@pytest.mark.parametrize(
    ("node", "named"),
    [
        ({"op": "MaxPool", "attributes": {"kernel_shape": [2, 2], "strides": [2, 2]}}, ["y", "i"]),
        ({"op": "Split", "attributes": {"axis": 3, "num_outputs": 4}}, ["a", "b", "c", "d"]),
        ({"op": "Dropout"}, ["y", "m"]),
    ],
    ids=lambda value: value["op"] if isinstance(value, dict) else "",
)
def test_an_output_without_a_name_changes_no_other(node: Any, named: Any, memory: Any) -> None:
    whole = run(node | {"outputs": named}, named)
    for wanted in range(len(named)):
        names = [name if i == wanted else None for i, name in enumerate(named)]
        part = run(node | {"outputs": names}, [named[wanted]], memory)
        assert np.array_equal(part[named[wanted]].view(np.uint8), whole[named[wanted]].view(np.uint8))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_an_output_without_a_name_is_scratch_of_its_node(target: str) -> None:
    node = {
        "name": "n",
        "op": "Split",
        "inputs": ["x"],
        "outputs": [None, "b"],
        "attributes": {"axis": 3, "num_outputs": 2},
    }
    made = program([node], {"x": X}, ["b"], target=target)
    assert [(b.name, b.nbytes) for b in made.buffers if b.memory_class is MemoryClass.WORKSPACE] == [
        ("n.workspace[0]", 32)
    ]


@pytest.mark.parametrize("extra", [{}, {"skip_nop_op_addr": False}, {"nop": False}])
@pytest.mark.parametrize("outputs", [["y", "m"], ["m"]])
def test_a_view_with_a_further_output_makes_it(extra: Any, outputs: Any) -> None:
    found = run({"op": "Dropout", "outputs": ["y", "m"], **extra}, outputs)
    assert found["m"].view(np.uint8).tolist() == np.ones((1, 1, 4, 4), np.uint8).tolist()
    if "y" in outputs:
        assert found["y"].ravel().tolist() == list(range(16))


def test_a_view_with_a_further_output_still_shares_its_bytes_and_writes_no_input() -> None:
    node = {"name": "n", "op": "Dropout", "inputs": ["x"], "outputs": ["y", "m"]}
    made = program([node], {"x": X}, ["m"], target="cpu")
    assert made.slots["y"] == made.slots["x"]
    (step,) = made.steps
    assert made.slots["x"].buffer not in step.writes


@pytest.mark.parametrize("op", ["Neg", "Acos", "Softmax", "Transpose"])
def test_absent_inputs_at_the_end_are_no_inputs(op: str) -> None:
    plain = run({"op": op, "outputs": ["y"]}, ["y"])["y"]
    padded = run({"op": op, "outputs": ["y"], "inputs": ["x", None, None]}, ["y"])["y"]
    assert np.array_equal(plain, padded, equal_nan=True)
