"""Launches of custom kernels with every expression evaluated and every scalar packed."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kgrun.graphs.bound import (
    Argument,
    BoundLaunch,
    Dim3,
    NullArgument,
    ScalarArgument,
    TensorArgument,
    WorkspaceArgument,
)
from kgrun.graphs.dtypes import DTYPES, VECTORS, itemsize
from kgrun.graphs.errors import GraphError, KgrunError, PathPart, did_you_mean
from kgrun.graphs.expressions import Expression, evaluate
from kgrun.graphs.schema.kinds import is_workspace

if TYPE_CHECKING:
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.graphs.schema.nodes import KernelNode, OpNode


_FORMATS = {
    "float64": "<d", "float32": "<f", "float16": "<e", "int64": "<q", "int32": "<i", "int16": "<h", "int8": "<b",
    "uint64": "<Q", "uint32": "<I", "uint16": "<H", "uint8": "<B", "bool": "<?",
}  # fmt: skip


class NodeScope:
    """Evaluates the expressions of one node and gives their faults a place."""

    def __init__(self, graph: KernelGraph, position: int, dims: Mapping[str, int]) -> None:
        self.graph = graph
        self.position = position
        self.dims = dims

    def evaluate(self, expression: Expression, *path: PathPart) -> int:
        """The expression's value; its error is placed at `path` of the node."""
        if isinstance(expression, int):
            return expression
        try:
            return evaluate(expression, self.dims)
        except KgrunError as error:
            raise error.at(self.graph.place("nodes", self.position, *path)) from None

    def error(self, code: str, message: str, *path: PathPart, help: str | None = None) -> GraphError:
        """A GraphError at `path` of the node."""
        return GraphError(message, code=code, where=self.graph.place("nodes", self.position, *path), help=help)


def bind_workspace(scope: NodeScope, node: KernelNode | OpNode) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Bytes of each scratch block, and the indices of those to clear."""
    sizes, cleared = [], []
    for i, entry in enumerate(node.workspace):
        nbytes = scope.evaluate(entry.nbytes if is_workspace(entry) else entry, "workspace", i)
        if nbytes < 0:
            raise scope.error("KG347", f"workspace of {nbytes:,} bytes", "workspace", i)
        sizes.append(nbytes)
        if is_workspace(entry) and entry.clear:
            cleared.append(i)
    return tuple(sizes), tuple(cleared)


def bind_launch(scope: NodeScope, node: KernelNode, inputs: Sequence[str | None]) -> BoundLaunch:
    """The launch of `node`.

    Raises:
        GraphError: KG344 for an unknown kernel, KG348 for an argument that is none, KG349 for a value out of range.
    """
    kernels = scope.graph.kernels
    if node.kernel not in kernels:
        help = did_you_mean(node.kernel, kernels) or "define it under `kernels`"
        raise scope.error(
            "KG344", f"node {node.name!r} launches kernel {node.kernel!r}, which does not exist", "kernel", help=help
        )
    return BoundLaunch(
        kernel=node.kernel,
        args=bind_arguments(scope, node, inputs),
        grid=_dim3(scope, node.grid, "grid"),
        block=_dim3(scope, node.block, "block"),
        shared=scope.evaluate(node.shared, "shared"),
        cluster=_dim3(scope, node.cluster, "cluster") if node.cluster else None,
        cooperative=node.cooperative,
    )


def _dim3(scope: NodeScope, entries: Sequence[Expression], what: str) -> Dim3:
    values = [scope.evaluate(entry, what, i) for i, entry in enumerate(entries)]
    x, y, z = (*values, 1, 1)[:3]
    return x, y, z


def bind_arguments(scope: NodeScope, node: KernelNode, inputs: Sequence[str | None]) -> tuple[Argument, ...]:
    """Arguments in order; without `args`: inputs, outputs, workspaces."""
    if node.args is None:
        names = [*inputs, *node.outputs]
        default: list[Argument] = [NullArgument() if name is None else TensorArgument(name) for name in names]
        return (*default, *(WorkspaceArgument(i) for i in range(len(node.workspace))))
    known = {name for name in (*inputs, *node.outputs) if name is not None}
    return tuple(_argument(scope, node, known, i, entry) for i, entry in enumerate(node.args))


def _argument(
    scope: NodeScope, node: KernelNode, known: set[str], i: int, entry: str | dict[str, Any] | None
) -> Argument:
    if entry is None:
        return NullArgument()
    if isinstance(entry, str):
        if entry not in known:
            help = did_you_mean(entry, known) or "list it among the node's inputs or outputs"
            if entry in scope.dims:
                help = f"a scalar names its type: {{int32: {entry}}}"
            raise scope.error(
                "KG348",
                f"argument {i} of {node.name!r} is {entry!r}, which is neither an input nor an output of it",
                "args",
                i,
                help=help,
            )
        return TensorArgument(entry)
    ((kind, content),) = entry.items()
    if kind == "workspace":
        if content >= len(node.workspace):
            raise scope.error("KG348", f"node {node.name!r} has no workspace {content}", "args", i)
        return WorkspaceArgument(content)
    data, align = _pack(scope, kind, content, ("args", i, kind))
    return ScalarArgument(kind, data, align)


def _pack(scope: NodeScope, kind: str, content: Any, path: tuple[PathPart, ...]) -> tuple[bytes, int]:
    if kind == "bytes":
        return bytes.fromhex(content), 8
    if kind == "struct":
        return _pack_struct(scope, content, path)
    if kind in VECTORS:
        element, _, align = VECTORS[kind]
        return b"".join(_pack_scalar(scope, element, v, (*path, i)) for i, v in enumerate(content)), align
    return _pack_scalar(scope, kind, content, path), itemsize(kind)


def _pack_struct(scope: NodeScope, members: Sequence[dict[str, Any]], path: tuple[PathPart, ...]) -> tuple[bytes, int]:
    """C layout: each member at a multiple of its alignment, the whole padded to the largest."""
    data, largest = b"", 1
    for i, member in enumerate(members):
        ((kind, content),) = member.items()
        packed, align = _pack(scope, kind, content, (*path, i, kind))
        data += bytes(-len(data) % align) + packed
        largest = max(largest, align)
    return data + bytes(-len(data) % largest), largest


def _pack_scalar(scope: NodeScope, dtype: str, content: object, path: tuple[PathPart, ...]) -> bytes:
    kind = DTYPES[dtype].kind
    number: object = content
    if isinstance(content, str):
        special = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
        number = special[content] if kind == "float" and content in special else scope.evaluate(content, *path)
    if kind == "float" and isinstance(number, (int, float)) and not isinstance(number, bool):
        return pack_float(dtype, float(number))
    limits = DTYPES[dtype].limits
    if limits is not None and isinstance(number, int):
        if not limits[0] <= number <= limits[1]:
            raise scope.error("KG349", f"{number} does not fit {dtype}", *path)
        if kind == "bool" or not isinstance(number, bool):
            return struct.pack(_FORMATS[dtype], number)
    raise scope.error("KG349", f"{content!r} is no {dtype}", *path)


def pack_float(dtype: str, number: float) -> bytes:
    """Little-endian bytes of `number`, rounded to nearest even; too large becomes infinity."""
    if dtype in ("float64", "float32", "float16"):
        try:
            return struct.pack(_FORMATS[dtype], number)
        except OverflowError:
            return struct.pack(_FORMATS[dtype], float("inf") if number > 0 else float("-inf"))
    import ml_dtypes
    import numpy as np

    return np.array(number, dtype=getattr(ml_dtypes, dtype)).tobytes()
