"""`kgrun import`: a graph file, with all that it needs beside it, from what other tools wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from kgrun.cli import options as opt
from kgrun.cli.output import Output

if TYPE_CHECKING:
    from kgrun.cli.render.table import Table
    from kgrun.graphs.importers import Imported

_SOURCE = "ONNX model, or folder: a launch list (graph.json, kernels.cu, constants.npz) or a Triton cache."
Source = Annotated[str, opt.argument("SOURCE", _SOURCE)]
Target = Annotated[str, opt.option("--output", "-o", env=False, metavar="GRAPH", help="Graph file to write (.json).")]
Force = Annotated[bool, opt.option("--force", env=False, help="Replace files that exist.")]


def command(
    source: Source,
    output: Target,
    force: Force = False,
    dim: opt.Dims = None,
    json: opt.Json = False,
    quiet: opt.Quiet = False,
    verbose: opt.Verbose = False,
    no_color: opt.NoColor = False,
) -> None:
    """Turn SOURCE into a graph file; what the graph needs is copied beside it."""
    shown = Output(json, None, quiet, verbose, no_color)
    from kgrun.cli.progress import phase
    from kgrun.cli.values import parse_dims
    from kgrun.graphs.importers import import_source

    dims = parse_dims(dim or ())

    with phase(f"importing {source}", shown):
        made = import_source(Path(source), Path(output), force=force, dims=dims)
    shown.emit(document=lambda: import_document(source, made), report=lambda: import_report(source, made))


def import_document(source: str, made: Imported) -> dict[str, Any]:
    """`import --json`."""
    from kgrun.graphs.version import __version__

    return {
        "kgrun": __version__,
        "source": source,
        "kind": made.kind,
        "graph": {"name": made.name, "file": str(made.files[0])},
        "kernels": made.kernels,
        "nodes": made.nodes,
        "tensors": made.tensors,
        "files": [{"file": str(path), "nbytes": path.stat().st_size} for path in made.files],
    }


def import_report(source: str, made: Imported) -> Iterator[Table | str]:
    """What was imported, and the files that hold it."""
    from kgrun.cli.render.table import Table
    from kgrun.cli.render.text import count_text

    counts = ", ".join(
        count_text(count, noun)
        for count, noun in ((made.kernels, "kernel"), (made.nodes, "node"), (made.tensors, "tensor"))
    )
    yield f"{made.name} from {source} ({made.kind}): {counts}"
    yield Table("Files", ("file", ">bytes"), [(str(path), f"{path.stat().st_size:,}") for path in made.files])
