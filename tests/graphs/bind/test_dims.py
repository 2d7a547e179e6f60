"""Dimensions: defaults, given values, ranges, and what input shapes tell."""

from __future__ import annotations

import pytest

from kgrun.graphs.bind import bind
from kgrun.graphs.bind.dims import bind_dims, dims_from_shapes
from kgrun.graphs.errors import UsageError
from kgrun.graphs.schema.graph import KernelGraph
from tests.support import graph, node, tensor


def shaped(*shape: int | str, **dims: object) -> KernelGraph:
    return graph([node("a", ["x"], ["y"])], {"x": tensor("input", shape)}, ["y"], dims=dims)


def test_a_given_value_wins_over_the_default() -> None:
    made = shaped("n", 2, n=8)
    assert bind(made).tensors["x"].type.shape == (8, 2)
    assert bind(made, dims={"n": 3}).tensors["x"].type.shape == (3, 2)


@pytest.mark.parametrize("dims", [{}, {"n": {}}])
def test_an_unbound_dimension_is_a_usage_error(dims: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="dimension n is unbound") as caught:
        bind(shaped("n", **dims))
    assert caught.value.help == "pass --dim n=… or set dims.n.default"


def test_an_unknown_dimension_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="no dimension 'bacth'") as caught:
        bind(shaped("batch", batch=1), dims={"bacth": 4})
    assert caught.value.help == "did you mean 'batch'?"


@pytest.mark.parametrize(
    ("spec", "value", "message"),
    [
        ({}, -1, "is negative"),
        ({"min": 2}, 1, "less than its minimum 2"),
        ({"max": 4}, 5, "greater than its maximum 4"),
        ({"multiple_of": 8}, 12, "no multiple|not a multiple of 8"),
    ],
)
def test_values_out_of_range_are_usage_errors(spec: dict[str, int], value: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        bind(shaped("n", n=spec), dims={"n": value})


def test_zero_is_an_empty_tensor() -> None:
    assert bind(shaped("n//3", n=2)).tensors["x"].nbytes == 0


def test_a_negative_extent_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="evaluates to -1"):
        bind(shaped("n - 3", n=2))


def test_sizes_beyond_32_bits_are_exact() -> None:
    made = graph(
        [node("a", ["x"], ["y"])], {"x": tensor("input", (65536, 65536), "float32"), "y": tensor(None, (2**31,))}, ["y"]
    )
    assert [t.nbytes for t in bind(made).tensors.values()] == [17_179_869_184, 2**31]


def test_input_shapes_tell_dimensions() -> None:
    assert dims_from_shapes(shaped("n", "n + 1", 3), {"x": (5, 6, 3)}) == {"n": 5}


def test_input_shapes_that_disagree_are_a_usage_error() -> None:
    made = graph([node("a", ["x", "w"], ["y"])], {"x": tensor("input", ("n",)), "w": tensor("input", ("n",))}, ["y"])
    with pytest.raises(UsageError, match="dimension n is 5 by input x and 6 by input w"):
        dims_from_shapes(made, {"x": (5,), "w": (6,)})


def test_values_may_be_any_integers_and_nothing_else() -> None:
    import numpy as np

    graph = KernelGraph.model_validate({"kgrun": 1, "dims": {"n": {}}})
    value = bind_dims(graph, {"n": np.int32(7)})["n"]  # type: ignore[dict-item]
    assert (value, type(value)) == (7, int)
    with pytest.raises(UsageError, match="is no integer"):
        bind_dims(graph, {"n": 7.0})  # type: ignore[dict-item]
