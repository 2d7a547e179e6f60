"""Write a launch list's graph with its CUDA C, weights, inputs and expected outputs beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from kgrun.graphs.data_save import save_bytes, save_npz, save_safetensors
from kgrun.graphs.errors import GraphError
from kgrun.graphs.importers.launch_list import LaunchList, launch_list_graph, read_launch_list
from kgrun.graphs.schema.graph import SCHEMA_ID


def import_launch_folder(folder: Path, output: Path) -> list[Path]:
    """Import `folder`; returns the files written. The same folder gives the same bytes.

    Beside `output` stand STEM.cu, STEM.safetensors (constants) and, where the folder has them, STEM.inputs.npz and
    STEM.expected.npz, ready for `--inputs` and `--expected`.

    Raises:
        GraphError: KG380 for a damaged folder.
        UsageError: KG270 when a file cannot be written.
    """
    found = read_launch_list(folder)
    stem = output.stem
    code = output.with_name(f"{stem}.cu")
    weights = output.with_name(f"{stem}.safetensors")
    document = launch_list_graph(found, folder.name, code.name, weights.name)
    arrays = _constants(folder, found)
    written = [code]
    save_bytes(code, _read(folder / "kernels.cu"))
    if arrays:
        save_safetensors(weights, arrays)
        written.append(weights)
    for name in ("inputs", "expected"):
        if (folder / f"{name}.npz").is_file():
            target = output.with_name(f"{stem}.{name}.npz")
            save_npz(target, _archive(folder / f"{name}.npz"))
            written.append(target)
    text = json.dumps({"$schema": SCHEMA_ID, **document}, indent=1, ensure_ascii=False, allow_nan=False)
    save_bytes(output, (text + "\n").encode())
    return [output, *written]


def _constants(folder: Path, found: LaunchList) -> dict[str, Any]:
    if not found.constants:
        return {}
    stored = _archive(folder / "constants.npz")
    for row in found.constants:
        if row.name not in stored:
            raise GraphError(f"constants.npz lacks {row.name!r}", code="KG380", where=str(folder / "constants.npz"))
    return {row.name: stored[row.name] for row in found.constants}


def _archive(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError) as error:
        raise GraphError(f"cannot be read: {error}", code="KG380", where=str(path)) from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise GraphError(f"cannot be read: {error.strerror}", code="KG380", where=str(path)) from None
