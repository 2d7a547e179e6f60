"""Parameters from a file into a run, and, as the run left them, into a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kgrun.graphs.errors import UsageError

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.graphs.schema.tensors import TensorSpec
    from kgrun.runtime.eager import EagerSession
    from kgrun.runtime.host_data import Array
    from kgrun.runtime.session import Session

_FORMS = {".safetensors": "safetensors", ".npz": "npz"}


def load_parameters(graph: KernelGraph, file: str | Path) -> dict[str, Array]:
    """The parameters of `graph` that a .safetensors or .npz file holds under their names, memory-mapped if it can be.

    Other names in the file, for example the momentum of a training graph, are passed over; parameters that it has not
    keep their own data or init.

    Raises:
        UsageError: KG273 for another kind of file, or one that holds none of the graph's parameters.
        GraphError: KG372 to KG376 for a file that cannot be read or holds another dtype or shape.
    """
    from kgrun.graphs.data_files import read_checked
    from kgrun.graphs.data_paths import Reference
    from kgrun.graphs.data_stored import stored_keys

    path, form = Path(file), form_of(file, "--load-parameters")
    wanted = parameters_of(graph)
    arrays = {
        key: read_checked(
            path, Reference(str(file), form, key), wanted[key].dtype, _stated_shape(wanted[key]), f"{file}#{key}"
        )
        for key in stored_keys(path, form, str(file))
        if key in wanted
    }
    if not arrays:
        names = ", ".join(list(wanted)[:10]) or "none"
        raise UsageError(
            f"{file} holds no parameter of the graph", code="KG273", help=f"parameters of the graph: {names}"
        )
    return arrays


def save_parameters(session: Session | EagerSession, file: str | Path) -> tuple[str, ...]:
    """Write every parameter of the session's graph, updated ones as the device holds them; returns their names.

    The file, .safetensors or .npz, is complete or absent.

    Raises:
        UsageError: KG270 where it cannot be written, KG273 for another kind of file.
    """
    from kgrun.graphs.data import save_npz, save_safetensors
    from kgrun.runtime.eager import EagerSession

    save = save_npz if form_of(file, "--save-parameters") == "npz" else save_safetensors
    if isinstance(session, EagerSession):
        names = list(parameters_of(session.graph))
    else:
        names = [name for name in parameters_of(session.bound.source) if name in session.bound.tensors]
    arrays = {name: session.output(name) for name in names}
    save(Path(file), arrays)
    return tuple(arrays)


def form_of(file: str | Path, option: str) -> str:
    """The file's form by its ending, "safetensors" or "npz"; UsageError KG273 for any other."""
    form = _FORMS.get(Path(file).suffix.lower())
    if form is None:
        raise UsageError(f"{option}: {str(file)!r} is neither .safetensors nor .npz", code="KG273")
    return form


def parameters_of(graph: KernelGraph) -> dict[str, TensorSpec]:
    """The graph's parameters by name, in the order of the file."""
    made = {name for node in graph.nodes for name in node.outputs}
    return {name: spec for name, spec in graph.tensors.items() if name not in made and _is_parameter(spec)}


def _is_parameter(spec: TensorSpec) -> bool:
    if spec.role is None:
        return spec.value is None and spec.string is None and (spec.data is not None or spec.init is not None)
    return spec.role == "parameter"


def _stated_shape(spec: TensorSpec) -> tuple[int, ...] | None:
    """The shape, where the file states it in numbers; dimensions are bound later."""
    numbers = [extent for extent in spec.shape or () if isinstance(extent, int)]
    return tuple(numbers) if spec.shape is not None and len(numbers) == len(spec.shape) else None
