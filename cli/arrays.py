"""Arrays named on the command line: inputs and expected values read, outputs written whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kgrun.graphs.errors import UsageError, did_you_mean
from kgrun.graphs.termination import unwound

if TYPE_CHECKING:
    import numpy as np

    from kgrun.graphs.bound import BoundGraph
    from kgrun.graphs.schema.graph import KernelGraph

    Array = np.ndarray[Any, Any]
    Arrays = dict[str, Array]


def read_inputs(graph: KernelGraph, pairs: Iterable[str], bundle: str | None) -> Arrays:
    """Arrays by tensor name: those of the file `bundle`, then each NAME=FILE word, which wins."""
    if bundle is None and not pairs:
        return {}
    from kgrun.graphs.data import load_inputs

    return load_inputs(pairs, [bundle] if bundle is not None else [], known_inputs(graph))


def known_inputs(graph: KernelGraph) -> dict[str, tuple[str | None, tuple[int, ...] | None]]:
    """Dtype and shape, as far as the file says them, of each tensor that may be given."""
    made = {name for node in graph.nodes for name in node.outputs}
    return {name: (spec.dtype, _known_shape(spec.shape)) for name, spec in graph.tensors.items() if name not in made}


def _known_shape(shape: list[Any] | None) -> tuple[int, ...] | None:
    """A shape of plain integers; None for one with expressions: the array's own shape then tells their values."""
    if shape is None or not all(isinstance(extent, int) for extent in shape):
        return None
    return tuple(shape)


def check_bundle(option: str, file: str) -> str:
    """The kind of file that `option` names, "npz" or "safetensors"; UsageError KG257 for another one."""
    kind = Path(file).suffix.lower()
    if kind not in (".npz", ".safetensors"):
        raise UsageError(f"{option}: {file!r} is neither .npz nor .safetensors", code="KG257")
    return kind[1:]


def check_expected(graph: KernelGraph, file: str) -> None:
    """UsageError unless every array of `file` is named like an output of the graph; looks at names alone."""
    from kgrun.graphs.data_stored import stored_keys

    kind = check_bundle("--expected", file)
    known = graph.outputs or [name for node in graph.nodes for name in node.outputs if name is not None]
    for name in stored_keys(Path(file), kind, file):
        if name not in known:
            raise UsageError(
                f"--expected: {name!r} in {file} is no output of the graph",
                code="KG212",
                help=did_you_mean(name, known) or f"outputs: {', '.join(known[:10])}",
            )


def read_expected(bound: BoundGraph, option: str, file: str) -> Arrays:
    """The arrays of the file that `option` names, by tensor, in their own dtype and shape.

    Names that the graph has not are left out.

    Raises:
        GraphError: KG37x for a file or an array that cannot be read.
    """
    from kgrun.graphs.data_files import read_checked
    from kgrun.graphs.data_paths import Reference
    from kgrun.graphs.data_stored import open_stored, stored_keys
    from kgrun.graphs.errors import Place, placed

    kind = check_bundle(option, file)
    arrays: Arrays = {}
    for name in stored_keys(Path(file), kind, file):
        if name not in bound.tensors:
            continue
        with placed(Place(f"{option} {file}#{name}")):
            # numpy files hold bfloat16 and fp8 as raw bytes: what they are is then known from the tensor.
            raw = open_stored(Path(file), kind, name, file).dtype is None
            dtype = bound.tensors[name].type.dtype if raw else None
            arrays[name] = read_checked(Path(file), Reference(file, kind, name), dtype, None, file)
    return arrays


@unwound()
def write_folder(folder: Path, outputs: Mapping[str, Array]) -> None:
    """One .npy file an output; all are complete before the first takes its name."""
    from kgrun.graphs.data import file_name, save_npy
    from kgrun.graphs.data_save import instead_of

    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".kgrun.", dir=folder))
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror or error}", code="KG258") from None
    try:
        files = {f"{file_name(name)}.npy": array for name, array in outputs.items()}
        for file, array in files.items():
            with instead_of(staging, folder):
                save_npy(staging / file, array)
        for file in files:
            os.replace(staging / file, folder / file)
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror or error}", code="KG258") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_bundle(path: Path, outputs: Mapping[str, Array]) -> None:
    """All outputs in one .npz file under their own names."""
    from kgrun.graphs.data import save_npz

    save_npz(path, outputs)
