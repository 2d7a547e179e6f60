"""From the command line to a bound graph: the steps that every command on a graph begins with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    """Load the file; an ONNX model is imported on the way."""
    from pathlib import Path

    from kgrun.graphs.importers import is_onnx
    from kgrun.graphs.load import load_graph

    if is_onnx(Path(options.file)):
        from kgrun.graphs.importers.onnx import onnx_graph

        return onnx_graph(
            Path(options.file),
            dims=parse_dims(options.dims or ()),
            allow_external_data=options.allow_external_data,
        )

    return load_graph(options.file, allow_external_data=options.allow_external_data)


def bind_graph(options: GraphOptions) -> BoundGraph:
    """Load the file and bind it; all checks included."""
    from kgrun.graphs.bind import bind

    dims = parse_dims(options.dims or ())  # the command line's faults come before the file's
    return bind(
        read_graph(options),
        dims=dims,
        strict=options.strict,
        allow_empty=options.allow_empty,
        target=options.arch,
    )


def lower_graph(options: GraphOptions, target: str, memory: str = "planned") -> Program:
    """Load, bind and lower for a kind of device, which need not be there."""
    from kgrun.runtime.lower import lower

    return lower(bind_graph(options), target=target, reuse=memory != "none")
