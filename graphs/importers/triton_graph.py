"""A graph file out of a Triton cache: a kernel and a node for each, and a dimension for all that the cache leaves open.

What a cache does not say, the grid and the sizes of tensors, becomes a dimension without a default: a run that does not
give it is refused at its place. Types that it does not say are unsigned integers of the accesses' width.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from kgrun.graphs.data_save import file_name, save_bytes
from kgrun.graphs.errors import GraphError
from kgrun.graphs.importers.reading import source_bytes
from kgrun.graphs.importers.text import name_text
from kgrun.graphs.importers.triton_cache import TritonKernel, metadata_files, read_kernel
from kgrun.graphs.importers.triton_ir import IrArgument
from kgrun.graphs.schema.graph import SCHEMA_ID


def write_triton_cache(folder: Path, graph: Path) -> list[Path]:
    """Write the graph of all kernels in `folder` to `graph`, their code beside it; returns the files read.

    Raises:
        GraphError: KG380 as `read_kernel`.
        UsageError: KG270 when a file cannot be written.
    """
    kernels = [read_kernel(path) for path in metadata_files(folder)]
    stem = file_name(graph.stem)
    document: dict[str, Any] = {
        "kgrun": 1,
        "name": name_text(folder.resolve().name) or "graph",
        "doc": "Made from a Triton cache. Give every dimension without a default, or edit shapes and grid.",
        **{key: {} for key in ("dims", "kernels", "tensors")},
        "nodes": [],
        "outputs": [],
    }
    taken: set[str] = set()
    for kernel in kernels:
        name = _free_name(kernel.name, taken)
        for source, ending in ((kernel.cubin, "cubin"), (kernel.ptx, "ptx")):
            if source is not None:
                save_bytes(graph.with_name(f"{stem}.{file_name(name)}.{ending}"), source_bytes(source))
        _add(document, kernel, name, f"{stem}.{file_name(name)}")
    text = json.dumps({"$schema": SCHEMA_ID, **document}, indent=1, ensure_ascii=True, allow_nan=False)
    save_bytes(graph, (text + "\n").encode())
    return [file for kernel in kernels for file in kernel.files]


def _free_name(name: str, taken: set[str]) -> str:
    """`name` as an identifier that no kernel before has: the same function in several versions is numbered."""
    plain = re.sub(r"\W", "_", name)
    found, number = plain, 2
    while found in taken:
        found, number = f"{plain}_{number}", number + 1
    taken.add(found)
    return found


def _add(document: dict[str, Any], kernel: TritonKernel, name: str, files: str) -> None:
    arch = kernel.arch or "the GPU that it was made for"
    code = {"source": f"{files}.cubin" if kernel.cubin else f"{files}.ptx"}
    if kernel.cubin and kernel.ptx:
        code["ptx"] = f"{files}.ptx"
    document["kernels"][name] = {**code, "entry": kernel.name, "doc": f"for {arch}, from {kernel.path.name}"}
    dims = document["dims"]
    for axis, default in (("x", None), ("y", 1), ("z", 1)):
        known = {} if default is None else {"default": default}
        dims[f"{name}_grid_{axis}"] = {**known, "min": 1, "doc": f"blocks of {name} along {axis}"}
    node: dict[str, Any] = {"name": name, "kernel": name, "inputs": [], "outputs": []}
    args: list[Any] = []
    inplace: dict[str, str] = {}
    for place, param in enumerate(kernel.params):
        typed = kernel.typed[place] if kernel.typed is not None else None
        own = f"{name}_{typed.name if typed and typed.name else f'arg{place}'}"
        if typed.pointer if typed is not None else param.pointer:
            args.append(_add_tensor(document, node, inplace, kernel, place, own))
        elif param.nbytes > 8:
            message = f"argument {place} of {kernel.name} is a structure of {param.nbytes} bytes, such as a descriptor"
            raise GraphError(message, code="KG380", where=str(kernel.path))
        else:
            kind = typed.dtype if typed is not None and typed.dtype is not None else _scalar(param.type)
            dims[own] = {"doc": f"argument {place} of {name}, {kind}"}
            args.append({"int8" if kind == "bool" else kind: own})
    grid = [f"{name}_grid_{axis}" for axis in "xyz"]
    workspace: list[str] = []
    for size in kernel.scratch:
        args.append({"workspace": len(workspace)} if size else None)
        workspace += [f"{size * kernel.cluster} * {' * '.join(grid)}"] if size else []
    if not node["outputs"]:
        message = f"{kernel.name} writes through none of its arguments, as far as its PTX shows"
        raise GraphError(message, code="KG380", where=str(kernel.path))
    node |= {"args": args, "grid": grid, "block": [kernel.threads]}
    node |= {"inplace": inplace} if inplace else {}
    node |= {"workspace": workspace} if workspace else {}
    node |= {"shared": kernel.shared} if kernel.shared else {}
    node |= {"cluster": [kernel.cluster]} if kernel.cluster > 1 else {}
    node |= {"cooperative": True} if kernel.cooperative else {}
    document["nodes"].append(node)


def _add_tensor(
    document: dict[str, Any], node: dict[str, Any], inplace: dict[str, str], kernel: TritonKernel, place: int, own: str
) -> str:
    """The tensors behind a pointer; returns the one that the launch names."""
    param = kernel.params[place]
    typed = kernel.typed[place] if kernel.typed is not None else None
    dtype, note = _dtype(typed, param.element)
    document["dims"][f"{own}_size"] = {"min": 1, "doc": f"elements of {own}"}
    row = {"dtype": dtype, "shape": [f"{own}_size"], **({"doc": note} if note else {})}
    if not param.writes:
        document["tensors"][own] = {"role": "input", **row}
        node["inputs"].append(own)
        return own
    node["outputs"].append(own)
    document["outputs"].append(own)
    document["tensors"][own] = row
    if param.reads:  # what it held before matters: zeros unless the user says otherwise
        before = f"{own}_before"
        document["tensors"][before] = {"role": "parameter", **row, "init": {"fill": 0}}
        node["inputs"].append(before)
        inplace[own] = before
    return own


def _dtype(typed: IrArgument | None, element: int) -> tuple[str, str]:
    """(dtype, what to say of it)."""
    if typed is not None and typed.dtype is not None:
        return typed.dtype, ""
    width = element if element in (1, 2, 4, 8) else 1
    return f"uint{8 * width}", "the cache does not say the type: set it, and the shape in elements of it"


def _scalar(kind: str) -> str:
    """`int32` of `u32`: Triton's integers have no sign of their own."""
    return f"{'float' if kind.startswith('f') else 'int'}{kind[1:]}"
