"""Bind with arrays that are given already: their shapes tell dimensions, their elements what operators must know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kgrun.graphs.bind.dims import bind_dims, dims_from_shapes
from kgrun.graphs.bind.graph import bind
from kgrun.graphs.bound import BoundGraph
from kgrun.graphs.data_values import constant_value
from kgrun.graphs.operators.base import ValueUnknown

if TYPE_CHECKING:
    import numpy as np

    from kgrun.graphs.schema.graph import KernelGraph

    Array = np.ndarray[Any, Any]


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
    graph = _without_replaced(graph, given, bind_dims(graph, dims))
    try:
        return bind(graph, dims=dims, strict=strict, allow_empty=allow_empty)
    except ValueUnknown:
        values = {n: a for n, a in given.items() if a.dtype.kind in "iub"}
        if not values:
            raise
        return bind(graph, dims=dims, values=values, strict=strict, allow_empty=allow_empty)


def _without_replaced(graph: KernelGraph, given: Mapping[str, Array], dims: Mapping[str, int]) -> KernelGraph:
    """The graph without the elements that given arrays replace, so that nothing is computed from those in the file."""
    tensors = dict(graph.tensors)
    for name in given:
        spec = tensors.get(name)
        if spec is None or (spec.value is None and spec.data is None):
            continue
        changes: dict[str, Any] = {"value": None, "data": None, "role": spec.role or "parameter"}
        if spec.value is not None:
            dtype, shape, _ = constant_value(spec, dims, graph.place("tensors", name, "value"))
            changes |= {"dtype": dtype, "shape": tuple(shape)}
        tensors[name] = spec.model_copy(update=changes)
    return graph if tensors == graph.tensors else graph.model_copy(update={"tensors": tensors})
