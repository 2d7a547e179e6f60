"""Values of the named dimensions: defaults, what the user gave, ranges."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kgrun.graphs.errors import KgrunError, UsageError, did_you_mean
from kgrun.graphs.expressions import Expression, evaluate, names
from kgrun.graphs.operators.names import COLLECTIVES
from kgrun.graphs.records import dataclass
from kgrun.graphs.schema.kinds import is_dim

if TYPE_CHECKING:
    from kgrun.graphs.errors import PathPart
    from kgrun.graphs.schema.graph import DimSpec, KernelGraph


# What the launcher tells every rank; the values of a run that is alone.
OF_THE_JOB = {"rank": 0, "world_size": 1}


@dataclass(frozen=True, slots=True)
class _Valued:
    """A dimension of which no more than its value is said; as `DimSpec`."""

    default: int | None
    min: int = 0
    max: int | None = None
    multiple_of: int | None = None


def bind_dims(graph: KernelGraph, given: Mapping[str, int]) -> dict[str, int]:
    """Every dimension's value.

    Raises:
        UsageError: KG221 for a name the graph does not have, KG220 for one that stays unbound, KG222 for a value
            outside its range.
    """
    specs = {name: d if is_dim(d) else _Valued(d) for name, d in graph.dims.items()}
    used = _names_in_shapes(graph)
    known = {**dict.fromkeys(specs), **dict.fromkeys(used), **dict.fromkeys(_of_the_job(graph, used, given))}
    for name in given:
        if name not in known:
            help = did_you_mean(name, known) or (f"dimensions: {', '.join(known)}" if known else "it has none")
            raise UsageError(f"the graph has no dimension {name!r}", code="KG221", help=help)
    values: dict[str, int] = {}
    for name in known:
        spec = specs.get(name) or _Valued(OF_THE_JOB.get(name))
        value = given.get(name, spec.default)
        if value is not None:
            value = _integer(name, value)
        if value is None:
            raise UsageError(
                f"dimension {name} is unbound",
                code="KG220",
                where=graph.place("dims", name) if name in specs else graph.place(*used[name]),
                help=f"pass --dim {name}=… or set dims.{name}.default",
            )
        values[name] = _in_range(graph, name, spec, value)
    return values


def _of_the_job(graph: KernelGraph, used: Iterable[str], given: Iterable[str]) -> list[str]:
    """Which of the dimensions of the job the graph has: both where its nodes communicate, else those that are named."""
    if graph.groups or any(node.collective or getattr(node, "op", None) in COLLECTIVES for node in graph.nodes):
        return list(OF_THE_JOB)
    return [name for name in OF_THE_JOB if name in used or name in given]


def dim_names(graph: KernelGraph) -> set[str]:
    """Names of the graph's dimensions, declared or used in a shape."""
    return {*graph.dims, *_names_in_shapes(graph)}


def _integer(name: str, value: object) -> int:
    """A plain int: numpy's integers wrap when they are multiplied."""
    try:
        return operator.index(value)  # type: ignore[arg-type]  # what it refuses is the point
    except TypeError:
        raise UsageError(f"dimension {name}={value!r} is no integer", code="KG222") from None


def _names_in_shapes(graph: KernelGraph) -> dict[str, tuple[PathPart, ...]]:
    found: dict[str, tuple[PathPart, ...]] = {}
    for name, tensor in graph.tensors.items():
        for key, shape in (("shape", tensor.shape), ("max_shape", tensor.max_shape)):
            for i, extent in enumerate(shape or ()):
                if not isinstance(extent, int):
                    for dim in sorted(names(extent)):
                        found.setdefault(dim, ("tensors", name, key, i))
    return found


def _in_range(graph: KernelGraph, name: str, spec: DimSpec | _Valued, value: int) -> int:
    problem = None
    if value < 0:
        problem = "is negative"
    elif value < spec.min:
        problem = f"is less than its minimum {spec.min}"
    elif spec.max is not None and value > spec.max:
        problem = f"is greater than its maximum {spec.max}"
    elif spec.multiple_of is not None and value % spec.multiple_of:
        problem = f"is not a multiple of {spec.multiple_of}"
    if problem:
        raise UsageError(f"dimension {name}={value} {problem}", code="KG222", where=graph.place("dims", name))
    return value


def dims_from_shapes(graph: KernelGraph, shapes: Mapping[str, Iterable[int]]) -> dict[str, int]:
    """Dimensions told by the shapes of given inputs: only where a shape entry is a plain dimension name.

    Raises:
        UsageError: KG223 when two inputs tell different values.
    """
    told: dict[str, tuple[int, str]] = {}
    for tensor, shape in shapes.items():
        spec = graph.tensors.get(tensor)
        extents = tuple(shape)
        if spec is None or spec.shape is None or len(spec.shape) != len(extents):
            continue
        for entry, extent in zip(spec.shape, extents, strict=True):
            if not isinstance(entry, str) or not entry.isidentifier():
                continue
            before = told.setdefault(entry, (extent, tensor))
            if before[0] != extent:
                raise UsageError(
                    f"dimension {entry} is {before[0]} by input {before[1]} and {extent} by input {tensor}",
                    code="KG223",
                )
    return {name: extent for name, (extent, _) in told.items()}


def bind_shape(
    graph: KernelGraph, shape: Iterable[Expression], dims: Mapping[str, int], *path: PathPart
) -> tuple[int, ...]:
    """A shape's values; UsageError KG222 when one is negative, places under `path`."""
    extents = []
    for i, entry in enumerate(shape):
        if isinstance(entry, int):
            extent = entry
        else:
            try:
                extent = evaluate(entry, dims)
            except KgrunError as error:
                raise error.at(graph.place(*path, i)) from None
        if extent < 0:
            raise UsageError(
                f"dimension {entry} evaluates to {extent}",
                code="KG222",
                where=graph.place(*path, i),
                help="a dimension is 0 or more",
            )
        extents.append(extent)
    return tuple(extents)
