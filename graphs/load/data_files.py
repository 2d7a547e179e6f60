"""Where a graph's data files may lie: each time the graph is loaded, for folders and links change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kgrun.graphs.data_paths import inside, parse_reference
from kgrun.graphs.errors import GraphError, PathPart, Place
from kgrun.graphs.load.limits import MAX_FAULTS

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.graphs.schema.tensors import TensorSpec

Path = tuple[PathPart, ...]


def check_data_files(graph: KernelGraph, place: Callable[[Path], Place]) -> None:
    """See that no path of `data` leaves the graph's folder; the files are not opened.

    Raises:
        GraphError: KG370 and KG371; `others` has the further faults.
    """
    faults: list[GraphError] = []
    checked: set[str] = set()
    for path, spec in _data_tensors(graph):
        if len(faults) == MAX_FAULTS:
            break
        try:
            file = parse_reference(str(spec.data)).file
            if file not in checked:
                inside(file, folder=graph.folder)
                checked.add(file)
        except GraphError as error:
            faults.append(error.at(place(path)))
    if faults:
        from kgrun.graphs.load.schema_errors import collected

        raise collected(faults)


def _data_tensors(graph: KernelGraph) -> Iterator[tuple[Path, TensorSpec]]:
    bodies: list[tuple[Path, dict[str, TensorSpec]]] = [((), graph.tensors)]
    bodies += [(("graphs", name), body.tensors) for name, body in graph.graphs.items()]
    for start, tensors in bodies:
        for name, spec in tensors.items():
            if spec.data is not None:
                yield (*start, "tensors", name, "data"), spec
