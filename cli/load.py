"""From the command line to a bound graph: the steps that every command on a graph begins with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kgrun.cli.values import parse_dims

if TYPE_CHECKING:
    from kgrun.graphs.bound import BoundGraph
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime.program import Program


@dataclass(frozen=True, slots=True)
class GraphOptions:
    """What the user says about the graph, still as words. `arch` is the architecture whose launch limits hold."""

    file: str
    dims: list[str] | None = None
    strict: bool = False
    allow_external_data: bool = False
    allow_empty: bool = False
    arch: str | None = None


def read_graph(options: GraphOptions) -> KernelGraph:
    """Load the file."""
    from kgrun.graphs.load import load_graph

    return load_graph(options.file, allow_external_data=options.allow_external_data)


def bind_graph(options: GraphOptions) -> BoundGraph:
    """Load the file and bind it; all checks included."""
    from kgrun.graphs.bind import bind
    from kgrun.graphs.bind.unsupported import RunTimeOnly

    dims = parse_dims(options.dims or ())  # the command line's faults come before the file's
    graph = read_graph(options)
    settings: dict[str, Any] = {
        "dims": dims,
        "strict": options.strict,
        "allow_empty": options.allow_empty,
        "target": options.arch,
    }
    try:
        return bind(graph, **settings)
    except RunTimeOnly:
        return bind(graph, **settings, upper_bounds=True)


def check_graph(options: GraphOptions) -> BoundGraph:
    """Load the file and check it: what can be bound before the run is."""
    from kgrun.graphs.bind.unsupported import RunTimeOnly

    try:
        return bind_graph(options)
    except RunTimeOnly:
        from kgrun.graphs.bind.partial import bind_known
        from kgrun.runtime.eager.body import Body

        graph, dims = read_graph(options), parse_dims(options.dims or ())
        bound = bind_known(graph, dims=dims, strict=options.strict, target=options.arch)
        Body(graph, [], bound.dims, "cuda", options.arch)  # the bodies of branches and loops
        return bound


def lower_graph(options: GraphOptions, target: str, memory: str = "planned") -> Program:
    """Load, bind and lower for a kind of device, which need not be there."""
    from kgrun.runtime.lower import lower

    return lower(bind_graph(options), target=target, reuse=memory != "none")
