"""Host arrays of the tensors that come from outside: given, read from files, written inline, or made from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs import data
from kgrun.graphs.bound import BoundGraph, BoundTensor
from kgrun.graphs.errors import GraphError, KgrunError, UsageError, did_you_mean
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.host_memory import check_room

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.graphs.schema.tensors import TensorSpec


Array = np.ndarray[Any, Any]


def check_names(graph: KernelGraph, given: Mapping[str, Array]) -> None:
    """UsageError KG271 for an array that is for no input or parameter of the graph, KG200 for what is no array."""
    for name, array in given.items():
        if name not in graph.tensors or name in {o for node in graph.nodes for o in node.outputs}:
            names = [n for n, s in graph.tensors.items() if s.role in ("input", "parameter")]
            raise UsageError(
                f"the graph has no input {name!r}",
                code="KG271",
                help=did_you_mean(name, names) or f"inputs: {', '.join(names) or 'none'}",
            )
        if not (hasattr(array, "dtype") and hasattr(array, "shape")):  # a list has no element type to be checked
            raise UsageError(
                f"{name!r} is given a {type(array).__name__}, which is no array",
                code="KG200",
                help="for example numpy.asarray(elements, dtype)",
            )


def closed_session() -> UsageError:
    """KG200 for what is asked of a session after its end."""
    return UsageError("the session is closed", code="KG200", help="open a new one")


def known_array(kind: TensorType) -> Array:
    """The elements of a type that knows them, made in their dtype at once: numpy makes floats of large integers."""
    return np.array(kind.value, data.numpy_dtype(kind.dtype)).reshape(kind.shape)


def host_array(bound: BoundGraph, tensor: BoundTensor, given: Mapping[str, Array], seed: int) -> Array:
    """The C-contiguous array of an external or folded tensor.

    Raises:
        UsageError: KG210 for an input without any data.
        GraphError: data that cannot be read or do not fit dtype and shape.
    """
    graph, name, kind, spec = bound.source, tensor.name, tensor.type, tensor.spec
    place = graph.place("tensors", name)
    if name in given:
        return _fitting(bound, name, kind, given[name])
    if tensor.producer is not None or spec is None:
        assert kind.value is not None, f"{name} is neither external nor known"
        return known_array(kind)
    try:
        made = _source_array(bound, tensor, spec, seed)
    except KgrunError as error:
        raise error.at(place) from None
    if made is not None:
        return made
    help = f"pass --input {name}=FILE.npy, or give it `data` or `init`"
    if spec.from_graph is not None:
        help = f"run graph {spec.from_graph.graph!r} before it in one session, or pass --input {name}=FILE.npy"
    raise UsageError(f"{tensor.role} {name!r} has no data", code="KG210", where=place, help=help)


def _source_array(bound: BoundGraph, tensor: BoundTensor, spec: TensorSpec, seed: int) -> Array | None:
    """What the file says the tensor holds, or None."""
    graph, kind = bound.source, tensor.type
    if spec.data is not None:
        return data.load_array(
            spec.data,
            folder=graph.folder,
            dtype=kind.dtype,
            shape=kind.shape,
            allow_external=graph.allows_external_data,
            where=graph.place("tensors", tensor.name, "data"),
        )
    if spec.string is not None:
        return data.string_array(spec.string)
    if spec.value is not None or spec.init is not None:
        check_room(kind.nbytes, f"the data of {tensor.name!r}")
    if spec.value is not None:
        return data.value_array(spec.value, kind.dtype, kind.shape, bound.dims)
    if spec.init is not None:
        return data.initial_array(spec.init, kind.dtype, kind.shape, tensor.name, seed)
    return None


def checked_inputs(bound: BoundGraph, inputs: Mapping[str, Array], given: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays for a run as the graph takes them; `given` are those that the session has.

    Raises:
        UsageError: KG271 for an array that is for no input; KG213 for one that cannot change in a session.
        GraphError: KG375, KG376 for another dtype or shape.
    """
    check_names(bound.source, inputs)
    taken: dict[str, Array] = {}
    for name, array in inputs.items():
        if name not in bound.tensors:
            continue  # used by no node: it has no memory
        if name in bound.cached:
            if array is not given.get(name):
                raise UsageError(f"table {name!r} is given when the session is opened", code="KG213")
            continue
        checked = _fitting(bound, name, bound.tensors[name].type, array)
        if name in bound.values and not np.array_equal(checked, bound.values[name]):
            raise UsageError(f"input {name!r} decides shapes and changed; open a new Session for it", code="KG213")
        taken[name] = checked
    return taken


def _fitting(bound: BoundGraph, name: str, kind: TensorType, array: Array) -> Array:
    try:
        return check_array(array, kind.dtype, kind.shape, name)
    except GraphError as error:
        raise error.at(bound.source.place("tensors", name)) from None


def check_array(array: Array, dtype: str, shape: tuple[int, ...], name: str) -> Array:
    """`array` C-contiguous; GraphError KG375 for another dtype, KG376 for another shape."""
    wanted = data.numpy_dtype(dtype)
    if array.dtype != wanted:
        raise GraphError(f"{name!r} is {dtype}, the given array is {array.dtype}", code="KG375")
    if array.shape != shape:
        raise GraphError(f"{name!r} has shape {list(shape)}, the given array {list(array.shape)}", code="KG376")
    return np.ascontiguousarray(array).reshape(shape)
