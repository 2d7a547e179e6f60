"""The graphs that `gpu_offload.py` runs: an MLP's training step, a stack of streamed weights, a chain of large sums."""

from __future__ import annotations

from typing import Any

Graph = dict[str, Any]


def _graph(name: str, tensors: Graph, nodes: list[Graph], outputs: list[str]) -> Graph:
    return {"kgrun": 1, "name": name, "tensors": tensors, "nodes": nodes, "outputs": outputs}


def _op(name: str, op: str, inputs: list[str], output: str, **attributes: Any) -> Graph:
    made: Graph = {"name": name, "op": op, "inputs": inputs, "outputs": [output]}
    return made | ({"attributes": attributes} if attributes else {})


def mlp_step(layers: int, hidden: int, batch: int, rate: float = 1e-3) -> Graph:
    """Forward, backward and update of `layers` layers h = relu(h · w); weights are updated in place.

    Activations take layers × batch × hidden × 4 bytes, weights layers × hidden² × 4.
    """
    scale = (6.0 / hidden) ** 0.5
    tensors: Graph = {
        "x": {"role": "input", "dtype": "float32", "shape": [batch, hidden], "init": {"uniform": [-1, 1], "seed": 1}},
        "rate": {"role": "constant", "dtype": "float32", "value": [rate]},
    }
    nodes = []
    for i in range(layers):
        init = {"uniform": [-scale, scale], "seed": 2 + i}
        tensors[f"w{i}"] = {"role": "parameter", "dtype": "float32", "shape": [hidden, hidden], "init": init}
        nodes.append(_op(f"forward{i}", "MatMul", [f"h{i - 1}" if i else "x", f"w{i}"], f"z{i}"))
        nodes.append(_op(f"relu{i}", "Relu", [f"z{i}"], f"h{i}"))
    nodes.append(_op("loss", "Sigmoid", [f"h{layers - 1}"], f"g{layers - 1}"))
    for i in reversed(range(layers)):
        nodes.append(_op(f"sign{i}", "Sign", [f"h{i}"], f"s{i}"))
        nodes.append(_op(f"mask{i}", "Mul", [f"g{i}", f"s{i}"], f"m{i}"))
        if i:
            nodes.append(_op(f"back{i}", "Gemm", [f"m{i}", f"w{i}"], f"g{i - 1}", transB=1))
        nodes.append(_op(f"grad{i}", "Gemm", [f"h{i - 1}" if i else "x", f"m{i}"], f"d{i}", transA=1))
        nodes.append(_op(f"step{i}", "Mul", [f"d{i}", "rate"], f"u{i}"))
        update = _op(f"update{i}", "Sub", [f"w{i}", f"u{i}"], f"v{i}")
        nodes.append(update | {"inplace": {f"v{i}": f"w{i}"}})
    return _graph("mlp step", tensors, nodes, [f"v{i}" for i in range(0, layers, max(layers // 4, 1))])


def streamed_blocks(layers: int, width: int, tokens: int) -> Graph:
    """GPT-2's matrices without its attention, three a layer; weights live on the host."""
    tensors: Graph = {
        "x": {"role": "input", "dtype": "float32", "shape": [tokens, width], "init": {"uniform": [-1, 1], "seed": 1}}
    }
    nodes = []
    last = "x"
    for i in range(layers):
        for part, (rows, columns) in enumerate(((width, 4 * width), (4 * width, width), (width, width))):
            scale = (3.0 / rows) ** 0.5
            name = f"w{i}.{part}"
            tensors[name] = {
                "role": "parameter",
                "dtype": "float32",
                "shape": [rows, columns],
                "location": "host",
                "init": {"uniform": [-scale, scale], "seed": 10 * i + part},
            }
            nodes.append(_op(f"product{i}.{part}", "MatMul", [last, name], f"p{i}.{part}"))
            nodes.append(_op(f"tanh{i}.{part}", "Tanh", [f"p{i}.{part}"], f"a{i}.{part}"))
            last = f"a{i}.{part}"
    return _graph("streamed blocks", tensors, nodes, [last])


def large_chain(count: int, elements: int) -> Graph:
    """`count` vectors, each made from the one before and all added up in reverse, so that all live at once."""
    tensors: Graph = {
        "x": {"role": "input", "dtype": "float32", "shape": [elements], "init": {"uniform": [-1, 1], "seed": 1}}
    }
    nodes = [_op(f"make{i}", "Sin", [f"t{i - 1}" if i else "x"], f"t{i}") for i in range(count)]
    total = f"t{count - 1}"
    for i in reversed(range(count - 1)):
        nodes.append(_op(f"add{i}", "Add", [total, f"t{i}"], f"s{i}"))
        total = f"s{i}"
    return _graph("large chain", tensors, nodes, [total])
