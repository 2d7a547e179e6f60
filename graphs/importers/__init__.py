"""From other formats to graph files: `import_source` writes a graph and what it needs, all of it or nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from kgrun.graphs.errors import GraphError, UsageError
from kgrun.graphs.load.kinds import is_onnx
from kgrun.graphs.records import dataclass


@dataclass(frozen=True, slots=True)
class SourceKind:
    """One kind of source that can be imported.

    Attributes:
        name: in a few words.
        shape: what a source of this kind looks like, for messages.
        recognises: whether a path is one; looks at names, not at contents.
        write: `write(source, graph, dims)` writes the graph file and all that it needs into the folder of `graph`, the
            names beginning with the graph's stem; returns the files of the source that it read.
        dimensions: whether a source has dimensions that `dims` can bind.
    """

    name: str
    shape: str
    recognises: Callable[[Path], bool]
    write: Callable[[Path, Path, Mapping[str, int]], list[Path]]
    dimensions: bool = False


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import wrote: the graph first, then the files it needs."""

    kind: str
    name: str
    files: tuple[Path, ...]
    kernels: int
    nodes: int
    tensors: int


def _is_launch_folder(source: Path) -> bool:
    return (source / "graph.json").is_file() and (source / "kernels.cu").is_file()


def _write_launch_folder(source: Path, graph: Path, _: Mapping[str, int]) -> list[Path]:
    from kgrun.graphs.importers.launch_folder import write_launch_folder

    return write_launch_folder(source, graph)


def _write_onnx(source: Path, graph: Path, dims: Mapping[str, int]) -> list[Path]:
    from kgrun.graphs.importers.onnx import write_onnx

    return write_onnx(source, graph, dims)


def _is_triton_cache(source: Path) -> bool:
    from kgrun.graphs.importers.triton_cache import is_triton_cache

    return is_triton_cache(source)


def _write_triton_cache(source: Path, graph: Path, _: Mapping[str, int]) -> list[Path]:
    from kgrun.graphs.importers.triton_graph import write_triton_cache

    return write_triton_cache(source, graph)


# A further kind is one more row.
KINDS = (
    SourceKind(
        "launch list",
        "a folder with graph.json (a launch list), kernels.cu and constants.npz",
        _is_launch_folder,
        _write_launch_folder,
    ),
    SourceKind("ONNX model", "an ONNX model (.onnx)", is_onnx, _write_onnx, dimensions=True),
    SourceKind(
        "Triton cache",
        "a folder of a Triton cache (NAME.json with NAME.cubin or NAME.ptx beside it), or a folder of such folders",
        _is_triton_cache,
        _write_triton_cache,
    ),
)


def import_source(
    source: Path, output: Path, *, force: bool = False, dims: Mapping[str, int] | None = None
) -> Imported:
    """Import `source` and write `output` (.json) with its kernel sources and weights beside it.

    The same source gives the same bytes. Nothing is written unless the graph loads and passes all checks.

    Args:
        force: replace files that exist.
        dims: values of the source's dimensions, where it has any; what follows from them is worked out now.

    Raises:
        GraphError: KG380 when the source is none that kgrun can import, or is damaged; KG381 for what in it cannot be
            imported; KG3xx when it makes no valid graph.
        UsageError: KG270 when a file exists or cannot be written; KG221 for a dimension that the source has not.
    """
    from kgrun.graphs.importers.publish import publish

    kind = kind_of(source)
    if dims and not kind.dimensions:
        raise UsageError(f"a {kind.name} has no dimensions to bind", code="KG221", help="leave out --dim")
    return publish(source, output, kind, dims or {}, force=force)


def kind_of(source: Path) -> SourceKind:
    """The kind of `source`; GraphError KG380 where none fits."""
    for kind in KINDS:
        if kind.recognises(source):
            return kind
    known = "; ".join(kind.shape for kind in KINDS)
    what = "is nothing that kgrun can import" if source.exists() else "does not exist"
    raise GraphError(f"{source} {what}", code="KG380", help=f"what can be imported: {known}")
