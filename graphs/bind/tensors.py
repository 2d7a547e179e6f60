"""Roles and types of the tensors that come from outside the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kgrun.graphs.bind.dims import bind_shape
from kgrun.graphs.bind.links import Links
from kgrun.graphs.errors import GraphError, KgrunError, PathPart, did_you_mean
from kgrun.graphs.operators.base import TensorType

if TYPE_CHECKING:
    import numpy as np

    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.graphs.schema.tensors import Role, TensorSpec

# Values of larger host arrays are not looked at: nothing that decides a shape is so long.
MAX_KNOWN_ELEMENTS = 4_096


def role_of(graph: KernelGraph, links: Links, name: str, spec: TensorSpec) -> Role:
    """The role as written, or as its data and producer tell.

    Raises:
        GraphError: KG341 for an input, parameter or constant that a node writes; KG350 for a tensor that is read but
            that nothing writes.
    """
    position = links.producer.get(name)
    if position is not None:
        if spec.role in ("input", "parameter", "constant"):
            raise GraphError(
                f"{spec.role} {name!r} is written by node {graph.nodes[position].name!r}",
                code="KG341",
                where=graph.place("tensors", name, "role"),
                help="write to a tensor of another name and say `inplace: {output: input}` to update it",
            )
        return spec.role or "intermediate"
    if spec.role in ("input", "parameter", "constant"):
        return spec.role
    if spec.role is None and (spec.value is not None or spec.string is not None):
        return "constant"
    if spec.role is None and (spec.data is not None or spec.init is not None or spec.from_graph is not None):
        return "parameter"
    if name not in links.readers and spec.role is None and name not in graph.outputs:
        return "intermediate"
    reader = links.readers.get(name)
    by = f"is read by {graph.nodes[reader[0]].name!r}" if reader else "is a graph output"
    raise GraphError(
        f"tensor {name!r} {by} but nothing writes it",
        code="KG350",
        where=graph.place("tensors", name),
        help="add data, init or value, or give it `role: input`",
    )


def external_type(
    graph: KernelGraph, name: str, spec: TensorSpec, dims: Mapping[str, int], given: np.ndarray[Any, Any] | None
) -> TensorType:
    """The type of an input, parameter or constant; its value too where it is written in the file or given as an array.

    Raises:
        GraphError: KG351 when dtype or shape are missing.
    """
    if spec.string is not None or spec.value is not None:
        from kgrun.graphs.data import constant_value

        try:
            dtype, shape, elements = constant_value(spec, dims)
        except KgrunError as error:
            raise error.at(graph.place("tensors", name, "value")) from None
        if spec.role in ("input", "parameter"):  # what the file says is only what they start with
            elements = None if given is None else tuple(given.ravel().tolist())
        return TensorType(dtype, shape, elements if elements and len(elements) <= MAX_KNOWN_ELEMENTS else None)
    for key, missing in (("dtype", spec.dtype is None), ("shape", spec.shape is None)):
        if missing:
            raise GraphError(
                f"tensor {name!r} needs a {key}",
                code="KG351",
                where=graph.place("tensors", name),
                help=None
                if spec.from_graph is None
                else f"run it after graph {spec.from_graph.graph!r} in one session",
            )
    assert spec.dtype is not None
    assert spec.shape is not None
    shape = bind_shape(graph, spec.shape, dims, "tensors", name, "shape")
    value = tuple(given.ravel().tolist()) if given is not None and given.size <= MAX_KNOWN_ELEMENTS else None
    return TensorType(spec.dtype, shape, value)


def host_value(graph: KernelGraph, name: str, kind: TensorType, dims: Mapping[str, int]) -> TensorType:
    """`kind` with the value that the file gives it: for a shape, axis or pad list that is kept there."""
    spec = graph.tensors.get(name)
    if spec is not None and spec.value is not None and kind.size <= MAX_KNOWN_ELEMENTS:
        from kgrun.graphs.data import value_array

        stated = value_array(spec.value, kind.dtype, kind.shape, dims)
        return TensorType(kind.dtype, kind.shape, tuple(stated.ravel().tolist()))
    if spec is None or spec.data is None or kind.size > MAX_KNOWN_ELEMENTS or spec.role == "input":
        return kind
    from kgrun.graphs.data import load_array

    array = load_array(
        spec.data,
        folder=graph.folder,
        dtype=kind.dtype,
        shape=kind.shape,
        allow_external=graph.allows_external_data,
        where=graph.place("tensors", name, "data"),
    )
    return TensorType(kind.dtype, kind.shape, tuple(array.ravel().tolist()))


def check_declared(graph: KernelGraph, name: str, inferred: TensorType, dims: Mapping[str, int], writer: str) -> None:
    """Compare what the file says of a node's output with what the node makes.

    Raises:
        GraphError: KG352 where they differ.
    """
    spec = graph.tensors.get(name)
    if spec is None:
        return
    if spec.dtype is not None and spec.dtype != inferred.dtype:
        raise GraphError(
            f"{name!r} is declared {spec.dtype}, but {writer!r} makes {inferred.dtype}",
            code="KG352",
            where=graph.place("tensors", name, "dtype"),
        )
    if spec.shape is not None:
        shape = bind_shape(graph, spec.shape, dims, "tensors", name, "shape")
        if shape != inferred.shape:
            raise GraphError(
                f"{name!r} is declared {list(shape)}, but {writer!r} makes {list(inferred.shape)}",
                code="KG352",
                where=graph.place("tensors", name, "shape"),
            )


def undefined(graph: KernelGraph, name: str, *path: PathPart) -> GraphError:
    """The error for a name that is neither declared nor written by a node."""
    known = {*graph.tensors, *(o for node in graph.nodes for o in node.outputs if o is not None)}
    return GraphError(
        f"tensor {name!r} is not defined",
        code="KG343",
        where=graph.place(*path),
        help=did_you_mean(name, known) or "declare it under `tensors`, or let a node write it",
    )
