"""Import a folder of CUDA C and a launch list, as compilers print them: `graph.json`, `kernels.cu`, `constants.npz`.

The list names `inputs`, `constants` and `buffers` (name, dtype, shape), `outputs`, and `launches` in a valid order:
kernel, args in the device function's order, reads, writes, grid, block, dynamic_smem. A kernel that writes a buffer and
reads it back names it among its writes alone, so nothing here is taken for in-place: outputs never share memory with
inputs of the same launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from kgrun.graphs.dtypes import DTypeName
from kgrun.graphs.errors import GraphError, Place


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Tensor(_Record):
    name: str
    dtype: DTypeName
    shape: list[int]


class _Launch(_Record):
    kernel: str
    args: list[str]
    reads: list[str]
    writes: list[str]
    grid: list[int]
    block: list[int]
    dynamic_smem: int = 0
    prim_func: str | None = None


class LaunchList(_Record):
    """What `graph.json` of such a folder holds."""

    inputs: list[_Tensor]
    constants: list[_Tensor] = []
    buffers: list[_Tensor] = []
    outputs: list[str]
    launches: list[_Launch]


def is_launch_list(folder: Path) -> bool:
    """Whether `folder` looks like one."""
    return (folder / "graph.json").is_file() and (folder / "kernels.cu").is_file()


def read_launch_list(folder: Path) -> LaunchList:
    """The folder's launch list; GraphError KG380 with the place of what is wrong."""
    import json

    path = folder / "graph.json"
    try:
        return LaunchList.model_validate(json.loads(path.read_bytes()))
    except OSError as error:
        raise GraphError(f"{path}: {error.strerror}", code="KG380") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise GraphError(
            f"not a launch list: {first['msg']}", code="KG380", where=Place(str(path), tuple(first["loc"]))
        ) from None
    except (ValueError, RecursionError) as error:
        raise GraphError(f"not a launch list: {error}", code="KG380", where=Place(str(path))) from None


def launch_list_graph(found: LaunchList, name: str, source: str, constants: str | None) -> dict[str, Any]:
    """The graph document (format 1) of a launch list.

    Args:
        name: the graph's name.
        source: the CUDA C file, relative to the graph.
        constants: the .safetensors file that holds the constants, relative to the graph.

    Raises:
        GraphError: KG380 for a launch that names an unknown tensor.
    """
    tensors: dict[str, dict[str, Any]] = {}
    for row in found.inputs:
        tensors[row.name] = {"role": "input", "dtype": row.dtype, "shape": row.shape}
    for row in found.constants:
        tensors[row.name] = {
            "role": "constant", "dtype": row.dtype, "shape": row.shape, "data": f"{constants}#{row.name}",
        }  # fmt: skip
    for row in found.buffers:
        tensors[row.name] = {"dtype": row.dtype, "shape": row.shape}
    nodes = [_node(i, launch, tensors) for i, launch in enumerate(found.launches)]
    kernels = {launch.kernel: {"source": source, "entry": launch.kernel} for launch in found.launches}
    return {
        "kgrun": 1,
        "name": name,
        "kernels": kernels,
        "tensors": tensors,
        "nodes": nodes,
        "outputs": found.outputs,
    }


def _node(index: int, launch: _Launch, tensors: Mapping[str, Any]) -> dict[str, Any]:
    for argument in (*launch.args, *launch.reads, *launch.writes):
        if argument not in tensors:
            raise GraphError(f"launch {index} ({launch.kernel}) names unknown tensor {argument!r}", code="KG380")
    row: dict[str, Any] = {
        "name": f"{index:03d}_{launch.prim_func or launch.kernel}",
        "kernel": launch.kernel,
        "inputs": launch.reads,
        "outputs": launch.writes,
        "args": launch.args,
        "grid": launch.grid,
        "block": launch.block,
    }
    return row | ({"shared": launch.dynamic_smem} if launch.dynamic_smem else {})
