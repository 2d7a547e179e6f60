"""A launch list as compilers print them beside their CUDA C, and the graph it makes.

The list names `inputs`, `constants` and `buffers` (name, dtype, shape), `outputs`, and `launches` in a valid order:
kernel, args in the device function's order, reads, writes, grid, block, dynamic_smem. A kernel that writes a buffer and
reads it back names it among its writes alone, so nothing here is taken for in-place: outputs never share memory with
inputs of the same launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kgrun.graphs.dtypes import DTypeName
from kgrun.graphs.errors import GraphError, did_you_mean
from kgrun.graphs.importers.reading import source_bytes
from kgrun.graphs.load.document import Document
from kgrun.graphs.load.json_text import read_json
from kgrun.graphs.load.source import decode
from kgrun.graphs.schema.common import Name

Size = Annotated[int, Field(ge=0)]
Dim3 = Annotated[list[Annotated[int, Field(ge=1)]], Field(min_length=1, max_length=3)]


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class TensorRow(_Record):
    """One tensor of the list."""

    name: Name
    dtype: DTypeName
    shape: list[Size]


class LaunchRow(_Record):
    """One launch of the list."""

    kernel: Name
    args: list[Name]
    reads: list[Name]
    writes: list[Name]
    grid: Dim3
    block: Dim3
    dynamic_smem: Size = 0
    prim_func: Name | None = None


class LaunchList(_Record):
    """What `graph.json` of such a folder holds."""

    inputs: list[TensorRow]
    constants: list[TensorRow] = []
    buffers: list[TensorRow] = []
    outputs: list[Name]
    launches: list[LaunchRow]


def read_launch_list(path: Path) -> LaunchList:
    """The launch list in a file.

    Raises:
        GraphError: KG30x for what is no strict JSON; KG380 for another kind of JSON, a tensor that is named twice or
            not at all; with the place of what is wrong.
    """
    document = read_json(decode(source_bytes(path), str(path)), str(path))
    try:
        found = LaunchList.model_validate(document.value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = document.place(tuple(first["loc"]))
        raise GraphError(f"not a launch list: {first['msg']}", code="KG380", where=place) from None
    _check_names(found, document)
    return found


def _check_names(found: LaunchList, document: Document) -> None:
    known: set[str] = set()
    for part in ("inputs", "constants", "buffers"):
        for index, row in enumerate(getattr(found, part)):
            if row.name in known:
                place = document.place((part, index, "name"))
                raise GraphError(f"tensor {row.name!r} is listed twice", code="KG380", where=place)
            known.add(row.name)
    for index, launch in enumerate(found.launches):
        for part in ("args", "reads", "writes"):
            for at, name in enumerate(getattr(launch, part)):
                if name not in known:
                    raise GraphError(
                        f"launch of {launch.kernel!r} names unknown tensor {name!r}",
                        code="KG380",
                        where=document.place(("launches", index, part, at)),
                        help=did_you_mean(name, known),
                    )


def launch_list_graph(
    found: LaunchList, *, name: str, source: str, constants: str, inputs: Mapping[str, str]
) -> dict[str, Any]:
    """The graph document (format 1) of a launch list.

    Args:
        name: the graph's name.
        source: the CUDA C file, relative to the graph.
        constants: the .safetensors file that holds the constants, relative to the graph.
        inputs: the .npz file that holds an input's default, by input, where there is one.
    """
    tensors: dict[str, dict[str, Any]] = {}
    for row in found.inputs:
        data = {"data": f"{inputs[row.name]}#{row.name}"} if row.name in inputs else {}
        tensors[row.name] = {"role": "input", **_type(row), **data}
    for row in found.constants:
        tensors[row.name] = {"role": "constant", **_type(row), "data": f"{constants}#{row.name}"}
    for row in found.buffers:
        tensors[row.name] = _type(row)
    kernels = {launch.kernel: {"source": source, "entry": launch.kernel} for launch in found.launches}
    digits = len(str(len(found.launches) - 1))
    return {
        "kgrun": 1,
        "name": name,
        "kernels": kernels,
        "tensors": tensors,
        "nodes": [_node(f"{index:0{digits}d}", launch) for index, launch in enumerate(found.launches)],
        "outputs": found.outputs,
    }


def _type(row: TensorRow) -> dict[str, Any]:
    return {"dtype": row.dtype, "shape": row.shape}


def _node(number: str, launch: LaunchRow) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": f"{number}_{launch.prim_func or launch.kernel}",
        "kernel": launch.kernel,
        "inputs": launch.reads,
        "outputs": launch.writes,
        "args": launch.args,
        "grid": launch.grid,
        "block": launch.block,
    }
    return row | ({"shared": launch.dynamic_smem} if launch.dynamic_smem else {})
