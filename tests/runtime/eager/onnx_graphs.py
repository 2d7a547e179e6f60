"""ONNX models of the node tests as graph documents, bodies of If, Loop and Scan included."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from kgrun.graphs.dtypes import ONNX_DTYPES

Graph = dict[str, Any]


def document(model: Any) -> Graph:
    """The graph file's content for `model`; inputs are those without an initializer."""
    bodies: dict[str, Graph] = {}
    made = _body(model.graph, bodies, "g")
    return {"kgrun": 1, "graphs": bodies, **made}


def _body(graph: Any, bodies: dict[str, Graph], prefix: str) -> Graph:
    tensors: Graph = {}
    for value in graph.initializer:
        array = onnx.numpy_helper.to_array(value)
        tensors[value.name] = _constant(array, ONNX_DTYPES[value.data_type])
    inputs = [info.name for info in graph.input if info.name not in tensors]
    for info in graph.input:
        if prefix == "g":
            kind = info.type.tensor_type
            shape = [dim.dim_value for dim in kind.shape.dim]
            tensors[info.name] = {"role": "input", "dtype": ONNX_DTYPES[kind.elem_type], "shape": shape}
    nodes = [_node(node, bodies, f"{prefix}_{i}") for i, node in enumerate(graph.node)]
    for info in graph.output:
        kind = info.type.tensor_type
        if prefix != "g" and kind.elem_type and all(dim.HasField("dim_value") for dim in kind.shape.dim):
            shape = [dim.dim_value for dim in kind.shape.dim]
            tensors.setdefault(info.name, {"dtype": ONNX_DTYPES[kind.elem_type], "shape": shape})
    return {"inputs": inputs, "tensors": tensors, "nodes": nodes, "outputs": [info.name for info in graph.output]}


def _constant(array: np.ndarray[Any, Any], dtype: str) -> Graph:
    return {"role": "constant", "dtype": dtype, "shape": list(array.shape), "value": array.tolist()}


def _node(node: Any, bodies: dict[str, Graph], name: str) -> Graph:
    made: Graph = {
        "name": name,
        "op": node.op_type,
        "inputs": [each or None for each in node.input],
        "outputs": [each or None for each in node.output],
        "attributes": {},
    }
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, onnx.GraphProto):
            body = f"{name}_{attribute.name}"
            bodies[body] = _body(value, bodies, body)
            made.setdefault("subgraphs", {})[attribute.name] = body
        elif isinstance(value, onnx.TensorProto):
            items = onnx.numpy_helper.to_array(value)
            made["attributes"]["dtype"] = ONNX_DTYPES[value.data_type]
            flat = items.reshape(-1).tolist()
            if node.op_type == "Constant":
                made["attributes"] |= {"shape": list(items.shape), "value": flat}
            else:
                made["attributes"]["value"] = flat[0]
        elif isinstance(value, bytes):
            made["attributes"][attribute.name] = value.decode()
        else:
            made["attributes"][attribute.name] = list(value) if isinstance(value, (list, tuple)) else value
    return made
