"""A model file: its parsed message without large data, and its arrays by key, each read from where it lies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from kgrun.graphs.data_onnx import SELF, Message, import_onnx, stored_tensor
from kgrun.graphs.data_stored import StoredArray
from kgrun.graphs.errors import GraphError
from kgrun.graphs.importers.onnx.wire import skeleton
from kgrun.graphs.records import dataclass

_LONGEST_KEY = 700  # beside the longest name of a file, in a reference of 1,000 characters


@dataclass(frozen=True, slots=True)
class Container:
    """A model file.

    Attributes:
        model: the ModelProto; large data are external references.
        arrays: TensorProto or SparseTensorProto by key. A key is the name of an initializer or of a Constant's output;
            those of subgraphs and functions begin with the way to them.
    """

    path: Path
    model: Message
    arrays: dict[str, Message]

    def files(self) -> list[Path]:
        """Further files that hold arrays of the model."""
        found = dict.fromkeys(
            entry.value
            for tensor in self.arrays.values()
            for entry in getattr(tensor, "external_data", ())
            if entry.key == "location" and entry.value != SELF
        )
        return [self.path.parent / name for name in found]

    def stored(self, key: str) -> StoredArray:
        """The array `key`, its elements unread. GraphError KG373 or KG375 for one that cannot be read."""
        return stored_tensor(self.arrays[key], key, self.path)


def open_container(path: Path) -> Container:
    """Parse the model at `path`, once as long as the file stays the same.

    Raises:
        GraphError: KG380 for a file that is missing, unreadable or no ONNX model.
        DeviceUnavailable: KG711 where the onnx package is not installed.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise GraphError(f"cannot be read: {error.strerror}", code="KG380", where=str(path)) from None
    return _open(path, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=4)
def _open(path: Path, *_state: int) -> Container:
    onnx = import_onnx()
    try:
        model = onnx.ModelProto.FromString(skeleton(path))
    except OSError as error:
        raise GraphError(f"cannot be read: {error.strerror}", code="KG380", where=str(path)) from None
    except Exception as error:  # protobuf's errors have no common base that is stable
        text = str(error).partition("\n")[0][:200]
        raise GraphError(f"is no ONNX model, or damaged: {text}", code="KG380", where=str(path)) from None
    if not model.ir_version or not model.HasField("graph"):
        raise GraphError("is no ONNX model: it has no graph", code="KG380", where=str(path))
    if not all(isinstance(text, str) for text in _texts(model)):
        raise GraphError("is damaged: a name in it is not UTF-8", code="KG380", where=str(path))
    arrays = dict(graph_arrays(model.graph, ""))
    for function in model.functions:
        arrays.update(node_arrays(function.node, function_prefix(function)))
    return Container(path, model, arrays)


def _texts(model: Message) -> Iterator[object]:
    """Every string by which the importer looks something up; protobuf gives bytes for one that is no text."""
    yield model.graph.name
    for opset in model.opset_import:
        yield opset.domain
    stack = [model.graph, *model.functions]
    while stack:
        graph = stack.pop()
        if hasattr(graph, "initializer"):
            yield from (tensor.name for tensor in graph.initializer)
            yield from (sparse.values.name for sparse in graph.sparse_initializer)
            for info in (*graph.input, *graph.output):
                yield info.name
                yield from (dim.dim_param for dim in info.type.tensor_type.shape.dim)
        else:
            yield from (graph.name, graph.domain, graph.overload, *graph.input, *graph.output)
        for node in graph.node:
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            for attribute in node.attribute:
                yield from (attribute.name, attribute.ref_attr_name)
                if attribute.HasField("g"):
                    stack.append(attribute.g)


def function_prefix(function: Message) -> str:
    """What begins the keys of a model-local function's arrays."""
    overload = f":{function.overload}" if function.overload else ""
    return f"{function.domain}.{function.name}{overload}/"


def subgraph_prefix(prefix: str, position: int, attribute: str) -> str:
    """What begins the keys inside `attribute` of the node at `position` of the graph with `prefix`."""
    return f"{prefix}{position}.{attribute}/"


def array_key(prefix: str, name: str) -> str:
    """The key of array `name`: one that a reference has room for, and that a weights file may have."""
    key = prefix + name
    if len(key) <= _LONGEST_KEY and key != "__metadata__":
        return key
    return f"{key[: _LONGEST_KEY // 2]}…{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def graph_arrays(graph: Message, prefix: str) -> Iterator[tuple[str, Message]]:
    """All arrays of a graph and its subgraphs, by key."""
    for tensor in graph.initializer:
        yield array_key(prefix, tensor.name), tensor
    for sparse in graph.sparse_initializer:
        yield array_key(prefix, sparse.values.name), sparse
    yield from node_arrays(graph.node, prefix)


def node_arrays(nodes: Any, prefix: str) -> Iterator[tuple[str, Message]]:
    """The arrays of Constant nodes, and of subgraphs, by key."""
    for position, node in enumerate(nodes):
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graph_arrays(attribute.g, subgraph_prefix(prefix, position, attribute.name))
            elif node.op_type == "Constant" and node.output and attribute.name == "value":
                yield array_key(prefix, node.output[0]), attribute.t
            elif node.op_type == "Constant" and node.output and attribute.name == "sparse_value":
                yield array_key(prefix, node.output[0]), attribute.sparse_tensor
