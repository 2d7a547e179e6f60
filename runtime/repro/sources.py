"""Kernel sources and the headers they include, copied so that every relative `#include` still finds its file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kgrun.graphs.bound import BoundGraph
from kgrun.graphs.data_paths import inside
from kgrun.graphs.errors import KgrunError
from kgrun.graphs.records import dataclass
from kgrun.runtime.compile.headers import included_files

if TYPE_CHECKING:
    from kgrun.graphs.schema.kernels import KernelSpec


FOLDER = "sources"


@dataclass(frozen=True, slots=True)
class _Kernel:
    file: Path | None  # None for inline code
    include_dirs: tuple[Path, ...]
    files: tuple[Path, ...]  # the source and its headers
    ptx: Path | None = None  # beside a cubin


def copy_sources(bound: BoundGraph, names: list[str], folder: Path) -> Mapping[str, dict[str, object]]:
    """Copy what the kernels `names` are made of into `folder`; returns the new members of each kernel.

    The folders below the deepest one that all files have in common are kept as they are.
    """
    kernels = {name: _read(bound, bound.source.kernels[name]) for name in names}
    files = sorted({file for kernel in kernels.values() for file in kernel.files})
    if not files:
        return {name: {"include_dirs": []} for name in names}
    root = Path(os.path.commonpath([file.parent for file in files]))
    for file in files:
        target = folder / FOLDER / file.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    changes: dict[str, dict[str, object]] = {}
    for name, kernel in kernels.items():
        places = [f"{FOLDER}/{d.relative_to(root).as_posix()}" for d in kernel.include_dirs if d.is_relative_to(root)]
        changes[name] = {"include_dirs": [place for place in places if (folder / place).is_dir()]}
        if kernel.file is not None:
            changes[name]["source"] = f"{FOLDER}/{kernel.file.relative_to(root).as_posix()}"
        if kernel.ptx is not None:
            changes[name]["ptx"] = f"{FOLDER}/{kernel.ptx.relative_to(root).as_posix()}"
    return changes


def _read(bound: BoundGraph, spec: KernelSpec) -> _Kernel:
    graph = bound.source
    folder = graph.folder.resolve()
    include_dirs = (folder, *((folder / d).resolve() for d in spec.include_dirs))
    if spec.inline:
        return _Kernel(None, include_dirs, tuple(included_files(spec.source.encode(), None, include_dirs)))
    try:
        file = inside(spec.source, folder=graph.folder, allow_external=graph.allows_external_data).resolve()
        data = file.read_bytes()
    except (KgrunError, OSError):  # the run has failed for this very reason
        return _Kernel(None, include_dirs, ())
    if spec.ptx is not None:
        ptx = inside(spec.ptx, folder=graph.folder, allow_external=graph.allows_external_data).resolve()
        return _Kernel(file, include_dirs, (file, ptx), ptx)
    headers = [] if file.suffix in (".ptx", ".cubin") else included_files(data, file.parent, include_dirs)
    return _Kernel(file, include_dirs, (file, *headers))
