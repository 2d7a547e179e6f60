"""Parts of the format that cannot be run are refused, never silently left out."""

from __future__ import annotations

import pytest

from kgrun.graphs.errors import GraphError
from tests.support import bound, node, tensor

X = {"x": tensor("input")}


def test_data_dependent_shapes() -> None:
    with pytest.raises(GraphError, match="data-dependent shapes") as caught:
        bound([node("a", ["x"], ["y"], dynamic=True)], X, ["y"])
    assert caught.value.code == "KG356"


def test_shapes_that_only_the_run_can_tell() -> None:
    with pytest.raises(GraphError, match="NonZero gives shapes that depend on the elements") as caught:
        bound([node("nz", ["x"], ["y"], op="NonZero")], X, ["y"])
    assert caught.value.code == "KG356"
    assert str(caught.value.where) == "nodes[0].op"


def test_shapes_of_constants_are_known() -> None:
    x = {"role": "constant", "dtype": "int64", "shape": [2, 2], "value": [[0, 3], [1, 0]]}
    made = bound([node("nz", ["x"], ["y"], op="NonZero")], {"x": x}, ["y"])
    assert made.tensors["y"].type.shape == (2, 2)
    assert made.tensors["y"].type.value == (0, 1, 1, 0)
