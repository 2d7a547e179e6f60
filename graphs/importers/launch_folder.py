"""Write a launch list's graph with its CUDA C, weights, inputs and expected outputs beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from kgrun.graphs.data_arrays import Array
from kgrun.graphs.data_files import load_array
from kgrun.graphs.data_save import file_name, save_bytes, save_npz, save_safetensors
from kgrun.graphs.data_stored import stored_keys
from kgrun.graphs.errors import GraphError, did_you_mean
from kgrun.graphs.importers.launch_list import LaunchList, TensorRow, launch_list_graph, read_launch_list
from kgrun.graphs.importers.reading import source_bytes
from kgrun.graphs.importers.text import name_text
from kgrun.graphs.schema.graph import SCHEMA_ID

SOURCE = "kernels.cu"


def write_launch_folder(folder: Path, graph: Path) -> list[Path]:
    """Write the graph of `folder` to `graph`; returns the files read. The same folder gives the same bytes.

    Beside `graph` stand STEM.cu, STEM.safetensors (constants) and, where the folder has them, STEM.inputs.npz (what a
    run takes unless inputs are given) and STEM.expected.npz, ready for `--expected`.

    Raises:
        GraphError: KG380 for a damaged folder, KG30x for its list, KG37x for its data.
        UsageError: KG270 when a file cannot be written.
    """
    found = read_launch_list(folder / "graph.json")
    code = source_bytes(folder / SOURCE)
    _check_kernels(found, code.decode("utf-8", "replace"), folder / SOURCE)
    stem = file_name(graph.stem)  # names of files become part of paths and references: nothing may be special there
    beside = {kind: graph.with_name(f"{stem}.{kind}") for kind in ("cu", "safetensors", "inputs.npz", "expected.npz")}
    types = {row.name: row for row in (*found.inputs, *found.buffers)}
    read = [folder / "graph.json", folder / SOURCE]
    save_bytes(beside["cu"], code)
    if found.constants:
        rows = {row.name: row for row in found.constants}
        save_safetensors(beside["safetensors"], _arrays(folder, "constants.npz", rows, list(rows)))
        read.append(folder / "constants.npz")
    given: list[str] = []
    for kind, known in (("inputs", [row.name for row in found.inputs]), ("expected", found.outputs)):
        path = folder / f"{kind}.npz"
        if path.is_file():
            names = _known_keys(path, known)
            save_npz(beside[path.name], _arrays(folder, path.name, types, names))
            read.append(path)
            given += names if kind == "inputs" else []
    document = launch_list_graph(
        found,
        name=name_text(folder.resolve().name) or "graph",
        source=beside["cu"].name,
        constants=beside["safetensors"].name,
        inputs=dict.fromkeys(given, beside["inputs.npz"].name),
    )
    text = json.dumps({"$schema": SCHEMA_ID, **document}, indent=1, ensure_ascii=True, allow_nan=False)
    save_bytes(graph, (text + "\n").encode())
    return read


def _arrays(folder: Path, file: str, rows: dict[str, TensorRow], names: list[str]) -> dict[str, Array]:
    """The arrays of `file` by name, each of the type and shape that the list gives it."""
    return {
        name: load_array(f"{file}#{name}", folder=folder, dtype=rows[name].dtype, shape=tuple(rows[name].shape))
        for name in names
    }


def _known_keys(path: Path, known: list[str]) -> list[str]:
    """The keys of an .npz file, in order of `known`; GraphError KG380 for one that is none of them."""
    keys = stored_keys(path, "npz", path.name)
    for key in keys:
        if key not in known:
            message = f"array {key!r} belongs to nothing in the launch list"
            raise GraphError(message, code="KG380", where=str(path), help=did_you_mean(key, known))
    return [name for name in known if name in keys]


def _check_kernels(found: LaunchList, code: str, path: Path) -> None:
    words = frozenset(re.findall(r"[A-Za-z_]\w*", code))
    for launch in found.launches:
        # A template is launched as name<arguments>.
        if re.split(r"[<(]", launch.kernel)[0].rsplit("::", 1)[-1].strip() not in words:
            known = re.findall(r"__global__[^;{}]*?(\w+)\s*\([^)]*\)\s*[;{]", code)
            message = f"no kernel {launch.kernel!r} in {path.name}"
            raise GraphError(message, code="KG380", where=str(path), help=did_you_mean(launch.kernel, set(known)))
