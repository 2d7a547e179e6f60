"""Makes an import in a folder of its own, checks it, and puts its files in place together."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kgrun.graphs.errors import KgrunError, Place, UsageError
from kgrun.graphs.importers import Imported, SourceKind
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.graphs.termination import unwound


def publish(source: Path, output: Path, kind: SourceKind, dims: Mapping[str, int], *, force: bool) -> Imported:
    """Write what `kind` makes of `source`: all files or none. Raises as `import_source`."""
    if output.suffix.lower() != ".json":
        raise UsageError(f"{output} is no .json file: import writes JSON", code="KG270", help="name it GRAPH.json")
    with _staging(output.parent) as staging:
        graph_file = staging / "new" / output.name
        graph_file.parent.mkdir()
        read = kind.write(source, graph_file, dims)
        graph = _checked(graph_file, source)
        made = sorted(path.name for path in graph_file.parent.iterdir() if path.name != output.name)
        # The graph comes last: where it stands, all that it names stands too.
        names = [*made, output.name]
        _refuse([output.parent / name for name in names], read, force)
        _put(names, staging, output.parent)
    files = (output, *(output.parent / name for name in made))
    return Imported(kind.name, graph.name, files, len(graph.kernels), len(graph.nodes), len(graph.tensors))


def _checked(path: Path, source: Path) -> KernelGraph:
    """The graph at `path` once it is known to load and bind, so far as that can be known without its dimensions."""
    from kgrun.graphs.bind import bind
    from kgrun.graphs.load import load_graph

    try:
        graph = load_graph(path)
        if all(isinstance(dim, int) or dim.default is not None for dim in graph.dims.values()):
            bind(graph)
    except KgrunError as error:
        # The file that the error speaks of is about to vanish: keep the place inside it only.
        where = Place(None, error.where.path) if error.where else None
        raise type(error)(
            f"{source} makes no valid graph: {error.message}", code=error.code, where=where, help=error.help
        ) from None
    return graph


def _refuse(targets: Iterable[Path], read: Iterable[Path], force: bool) -> None:
    sources = [path for path in read if path.exists()]
    existing = [path for path in targets if os.path.lexists(path)]
    for target in existing:
        if any(target.exists() and target.samefile(path) for path in sources):
            raise UsageError(
                f"{target} is part of the source", code="KG270", help="give -o another folder, or another name"
            )
        if target.is_dir():
            raise UsageError(f"{target} is a folder", code="KG270")
    if existing and not force:
        listed = ", ".join(map(str, existing))
        raise UsageError(f"exists already: {listed}", code="KG270", help="--force replaces what is there")


def _put(names: Iterable[str], staging: Path, folder: Path) -> None:
    """Move the files of `staging`/new to `folder`; on failure what was there before is there again."""
    old = staging / "old"
    old.mkdir()
    done: list[str] = []
    try:
        for name in names:
            if os.path.lexists(folder / name):
                os.replace(folder / name, old / name)
            done.append(name)
            os.replace(staging / "new" / name, folder / name)
    except BaseException:
        for name in done:
            (folder / name).unlink(missing_ok=True)
            if os.path.lexists(old / name):
                os.replace(old / name, folder / name)
        raise


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """A folder inside `folder`, on the same file system, that is gone afterwards."""
    with unwound():
        try:
            staging = Path(tempfile.mkdtemp(prefix=".kgrun-import-", dir=folder))
        except OSError as error:
            raise UsageError(f"cannot write to {folder}: {error.strerror or error}", code="KG270") from None
        try:
            yield staging
        except KgrunError:
            raise
        except OSError as error:
            raise UsageError(f"cannot write to {folder}: {error.strerror or error}", code="KG270") from None
        finally:
            shutil.rmtree(staging, ignore_errors=True)
