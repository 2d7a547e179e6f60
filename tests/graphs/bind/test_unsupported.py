"""Parts of the format that cannot be run are refused, never silently left out."""

from __future__ import annotations

from typing import Any

import pytest

from kgrun.graphs.errors import GraphError
from tests.support import bound, node, tensor

X = {"x": tensor("input")}


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        ({"cache": {"rows": 4}, "init": {"fill": 0}}, "tensors.w.cache"),
        ({"from_graph": {"graph": "g", "output": "o"}}, "tensors.w.from_graph"),
    ],
)
def test_tensor_features(spec: dict[str, Any], where: str) -> None:
    with pytest.raises(GraphError, match="cannot be run by this version") as caught:
        bound([node("a", ["x", "w"], ["y"])], {**X, "w": tensor("parameter", **spec)}, ["y"])
    assert str(caught.value.where) == where


def test_data_dependent_shapes() -> None:
    with pytest.raises(GraphError, match="data-dependent shapes") as caught:
        bound([node("a", ["x"], ["y"], dynamic=True)], X, ["y"])
    assert caught.value.code == "KG356"
