"""A Triton cache folder: which kernels it holds, and what their metadata says.

Triton keeps each compiled kernel in a folder named by a hash: NAME.json with its launch metadata, NAME.cubin, NAME.ptx,
NAME.ttir and more. One such folder can be given, or a folder of them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from kgrun.graphs.cubin import read_cubin
from kgrun.graphs.errors import GraphError, Place
from kgrun.graphs.importers.ptx_entries import Entry, Param, ptx_entries, ptx_target
from kgrun.graphs.importers.reading import source_bytes
from kgrun.graphs.importers.triton_ir import IrArgument, ir_arguments
from kgrun.graphs.load.document import Document
from kgrun.graphs.load.json_text import read_json
from kgrun.graphs.load.source import decode
from kgrun.graphs.records import dataclass

_DEPTH = 3  # folders of hashes lie in the cache's folder, or in one of it
_SCRATCH = ("global_scratch_size", "profile_scratch_size")  # each, where it stands, is one more pointer


@dataclass(frozen=True, slots=True)
class TritonKernel:
    """One compiled kernel.

    Attributes:
        path: its metadata.
        name: the kernel function.
        arch: `sm_80`; empty where nothing says it.
        threads: of a block.
        shared: bytes of dynamic shared memory.
        cluster: blocks of a cluster.
        scratch: bytes a block of each scratch pointer behind the arguments.
        params: parameters without these pointers, in order; `typed` says more of them where there is IR.
    """

    path: Path
    name: str
    arch: str
    threads: int
    shared: int
    cluster: int
    cooperative: bool
    scratch: tuple[int, ...]
    params: tuple[Param, ...]
    typed: tuple[IrArgument, ...] | None
    cubin: Path | None
    ptx: Path | None
    files: tuple[Path, ...]


def is_triton_cache(folder: Path) -> bool:
    """Whether a folder, or one inside it, has metadata with a cubin or PTX beside it."""
    return next(iter(metadata_files(folder)), None) is not None


def metadata_files(folder: Path) -> list[Path]:
    """NAME.json for which NAME.cubin or NAME.ptx exists, in the order of their paths."""
    if not folder.is_dir():
        return []
    paths = (path for depth in range(_DEPTH) for path in folder.glob("*/" * depth + "*.json"))
    return sorted(path for path in paths if any(path.with_suffix(end).is_file() for end in (".cubin", ".ptx")))


def read_kernel(path: Path) -> TritonKernel:
    """The kernel that a metadata file is of.

    Raises:
        GraphError: KG30x for what is no strict JSON; KG380 for metadata of another kind, another vendor's kernel, or
            code that does not hold the kernel; with the place.
    """
    document = read_json(decode(source_bytes(path), str(path)), str(path))
    meta = _Metadata(document, path)
    name = meta.text("name")
    warp = meta.target.get("warp_size", 32)
    threads = meta.count("num_warps") * (warp if isinstance(warp, int) else 32)
    cubin, ptx = (path.with_suffix(ending) for ending in (".cubin", ".ptx"))
    ir = path.with_suffix(".ttir")
    text = decode(source_bytes(ptx), str(ptx)) if ptx.is_file() else ""
    entry = _entry(name, text, ptx, cubin)
    typed = ir_arguments(decode(source_bytes(ir), str(ir)), name) if ir.is_file() else None
    sizes = tuple(meta.count(key) for key in _SCRATCH if key in meta.value)
    behind = len(entry.params) - len(typed) if typed is not None else len(sizes)
    if not 0 <= behind <= len(_SCRATCH) or behind > len(entry.params):
        message = f"{name} has {len(entry.params)} parameters, its IR {len(typed or ())}"
        raise GraphError(message, code="KG380", where=str(path))
    clusters = meta.value.get("cluster_dims")
    cluster = clusters[0] if isinstance(clusters, list) and clusters else meta.value.get("num_ctas", 1)
    return TritonKernel(
        path,
        name,
        meta.arch or re.sub(r"[a-z]$", "", ptx_target(text)),
        threads,
        meta.count("shared"),
        cluster if isinstance(cluster, int) else 1,
        bool(meta.value.get("launch_cooperative_grid", False)),
        (*sizes, 0, 0)[:behind],
        entry.params[: len(entry.params) - behind],
        typed,
        cubin if cubin.is_file() else None,
        ptx if ptx.is_file() else None,
        tuple(file for file in (path, cubin, ptx, ir) if file.is_file()),
    )


class _Metadata:
    """Members of a metadata file, each with its place."""

    def __init__(self, document: Document, path: Path) -> None:
        self.document = document
        if not isinstance(document.value, dict) or "num_warps" not in document.value:
            raise GraphError("not the metadata of a Triton kernel", code="KG380", where=str(path))
        self.value: dict[str, Any] = document.value
        given = self.value.get("target")
        if isinstance(given, list):  # older versions: ["cuda", 80]
            given = dict(zip(("backend", "arch"), given, strict=False))
        self.target: dict[str, Any] = given if isinstance(given, dict) else {}
        backend = self.target.get("backend", "cuda")
        if backend != "cuda":
            raise GraphError(f"a kernel for {backend}, not for CUDA", code="KG380", where=self._place("target"))
        arch = self.target.get("arch", self.value.get("arch", self.value.get("cc")))
        self.arch = (
            f"sm_{arch}" if isinstance(arch, int) else re.sub(r"[a-z]$", "", arch) if isinstance(arch, str) else ""
        )

    def text(self, key: str) -> str:
        value = self.value.get(key)
        if not isinstance(value, str) or not value:
            raise GraphError(f"{key!r} is no name", code="KG380", where=self._place(key))
        return value

    def count(self, key: str) -> int:
        value = self.value.get(key, 0)
        if value is None:
            return 0
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise GraphError(f"{key!r} is no count", code="KG380", where=self._place(key))
        return value

    def _place(self, key: str) -> Place:
        return self.document.place((key,))


def _entry(name: str, text: str, ptx: Path, cubin: Path) -> Entry:
    """The kernel as its PTX has it, or as far as its cubin tells."""
    if text:
        entries = ptx_entries(text)
        if name not in entries:
            raise GraphError(f"no kernel {name!r} in {ptx.name}", code="KG380", where=str(ptx))
        return entries[name]
    facts = read_cubin(source_bytes(cubin)).get(name)
    if facts is None or facts.parameters is None:
        raise GraphError(f"{cubin.name} says nothing of a kernel {name!r}", code="KG380", where=str(cubin))
    params = (
        Param(f"b{8 * row.size}", row.size, pointer=row.size == 8, reads=row.size == 8, writes=row.size == 8, element=0)
        for row in facts.parameters
    )
    return Entry(name, tuple(params))
