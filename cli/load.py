"""From the command line to a bound graph: the steps that every command on a graph begins with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgrun.cli.values import parse_dims
from kgrun.graphs.load.kinds import is_onnx
from kgrun.graphs.records import dataclass

if TYPE_CHECKING:
    import numpy as np

    from kgrun.graphs.bound import BoundGraph
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime.program import Program

    Array = np.ndarray[Any, Any]


# Inputs of so many elements may decide branches and loops.
_SHORT = 16


@dataclass(frozen=True, slots=True)
class GraphOptions:
    """What the user says about the graph, still as words. `arch` is the architecture whose launch limits hold."""

    file: str
    dims: list[str] | None = None
    strict: bool = False
    allow_external_data: bool = False
    allow_empty: bool = False
    arch: str | None = None


def read_graph(
    options: GraphOptions, told: Mapping[str, int] | None = None, values: Mapping[str, Array] | None = None
) -> KernelGraph:
    """Load the file; an ONNX model is imported on the way, with its dimensions bound.

    Args:
        told: dimensions of an ONNX model that are known otherwise; those of the options win.
        values: inputs of an ONNX model that may decide branches and loops.
    """
    if not _is_onnx(options):
        from kgrun.runtime.remembered import load_remembered

        return load_remembered(options.file, allow_external_data=options.allow_external_data)
    from kgrun.graphs.importers.onnx import onnx_graph

    dims = {**(told or {}), **parse_dims(options.dims or ())}
    return onnx_graph(Path(options.file), dims=dims, values=values, allow_external_data=options.allow_external_data)


def read_graph_for(options: GraphOptions, graph: KernelGraph, given: Mapping[str, Array]) -> KernelGraph:
    """`graph` again, once given arrays tell more: an ONNX model has more folded then.

    Their shapes bind dimensions. Where branches or loops are still open, short whole-number inputs decide them too: the
    graph then holds for this run.
    """
    if not _is_onnx(options) or not given:
        return graph
    from kgrun.graphs.bind.dims import dims_from_shapes

    told = dims_from_shapes(graph, {name: array.shape for name, array in given.items()})
    graph = read_graph(options, told) if told else graph
    deciding = {name: a for name, a in given.items() if a.size <= _SHORT and a.dtype.kind in "iub"}
    return read_graph(options, told, deciding) if graph.graphs and deciding else graph


def dims_to_bind(options: GraphOptions) -> dict[str, int]:
    """The dimensions that the options give; none where importing an ONNX model has bound them already."""
    dims = parse_dims(options.dims or ())
    return {} if _is_onnx(options) else dims


def own_names(options: GraphOptions, graph: KernelGraph, dims: Mapping[str, int]) -> dict[str, int]:
    """`dims` by the graph's names; those of an ONNX model may also be called what the model calls them."""
    if not _is_onnx(options):
        return dict(dims)
    called = {getattr(spec, "doc", None): name for name, spec in graph.dims.items()}
    return {name if name in graph.dims else called.get(name, name): size for name, size in dims.items()}


def model_file(options: GraphOptions) -> Path | None:
    """The ONNX model that the options name, None for a graph file."""
    return Path(options.file) if _is_onnx(options) else None


def _is_onnx(options: GraphOptions) -> bool:
    return is_onnx(Path(options.file))


def bind_graph(options: GraphOptions) -> BoundGraph:
    """Load the file and bind it; all checks included."""
    from kgrun.graphs.bind import bind
    from kgrun.graphs.bind.unsupported import RunTimeOnly

    dims = dims_to_bind(options)  # the command line's faults come before the file's
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

        graph, dims = read_graph(options), dims_to_bind(options)
        bound = bind_known(graph, dims=dims, strict=options.strict, target=options.arch)
        Body(graph, [], bound.dims, "cuda", options.arch)  # the bodies of branches and loops
        return bound


def lower_graph(options: GraphOptions, target: str, memory: str = "planned", *, fuse: bool = False) -> Program:
    """Load, bind and lower for a kind of device, which need not be there."""
    from kgrun.runtime.lower import lower

    return lower(bind_graph(options), target=target, reuse=memory != "none", fuse=fuse)
