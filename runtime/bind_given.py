"""Bind a graph with given arrays: their shapes tell dimensions, integer values what operators must know."""

from __future__ import annotations

from collections.abc import Mapping

from kgrun.graphs.bind import bind
from kgrun.graphs.bind.dims import dims_from_shapes
from kgrun.graphs.bound import BoundGraph
from kgrun.graphs.operators.base import ValueUnknown
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime.host_data import Array


def bind_given(
    graph: KernelGraph,
    dims: Mapping[str, int],
    given: Mapping[str, Array],
    *,
    strict: bool = False,
    allow_empty: bool = False,
) -> BoundGraph:
    """Bind with given arrays: their shapes tell dimensions, which `dims` beats.

    Where an operator must know an input's value, bind again with the values of integer inputs.
    """
    dims = {**dims_from_shapes(graph, {name: array.shape for name, array in given.items()}), **dims}
    try:
        return bind(graph, dims=dims, strict=strict, allow_empty=allow_empty)
    except ValueUnknown:
        values = {n: a for n, a in given.items() if a.dtype.kind in "iub"}
        if not values:
            raise
        return bind(graph, dims=dims, values=values, strict=strict, allow_empty=allow_empty)
