"""A bound graph of builtin operators as a torch function with the same weights: the peer of the model benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from kgrun.graphs.bound import BoundGraph, BoundNode
from kgrun.graphs.data import numpy_dtype
from kgrun.runtime.host_data import host_array

Tensor = torch.Tensor
_TORCH = {
    "float32": torch.float32, "float16": torch.float16, "int64": torch.int64, "int32": torch.int32, "bool": torch.bool,
}  # fmt: skip


class TorchGraph:
    """Runs the nodes of a graph in order. `run(inputs)` takes and gives tensors by name.

    Raises:
        KeyError: an operator that is not among `_OPS`.
    """

    def __init__(self, bound: BoundGraph, device: str = "cuda", channels_last: bool = False) -> None:
        self.outputs = bound.outputs
        self.nodes = [node for node in bound.nodes if not _known(node)]
        self.calls = [_OPS[node.op](node) for node in self.nodes]
        self.weights: dict[str, Tensor] = {}
        computed = {name for node in self.nodes for name in node.written_names()}
        for name, tensor in bound.tensors.items():
            if name in computed or tensor.role == "input":
                continue
            if tensor.producer is None:
                array = host_array(bound, tensor, {}, 0)
            elif tensor.type.value is not None:
                array = np.asarray(tensor.type.value, numpy_dtype(tensor.type.dtype)).reshape(tensor.type.shape)
            else:
                continue
            found = torch.from_numpy(np.ascontiguousarray(array)).to(device)
            last = channels_last and found.dim() == 4
            self.weights[name] = found.to(memory_format=torch.channels_last) if last else found

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """One pass."""
        values = {**self.weights, **inputs}
        for node, call in zip(self.nodes, self.calls, strict=True):
            given = [None if name is None else values[name] for name in node.inputs]
            made = call(given)
            results = made if isinstance(made, (tuple, list)) else (made,)
            values.update({n: r for n, r in zip(node.outputs, results, strict=False) if n is not None})
        return {name: values[name] for name in self.outputs}


def _known(node: BoundNode) -> bool:
    return node.call is not None and all(kind.value is not None for kind in node.call.outputs)


Call = Callable[[Sequence[Any]], Any]


def _simple(function: Callable[..., Tensor]) -> Callable[[BoundNode], Call]:
    return lambda node: lambda given: function(*given)


def _attributes(node: BoundNode) -> Mapping[str, Any]:
    assert node.call is not None
    return node.call.attributes


def _shape(node: BoundNode) -> Call:
    assert node.call is not None
    shape = node.call.outputs[0].shape
    return lambda given: given[0].reshape(shape)


def _cast(node: BoundNode) -> Call:
    assert node.call is not None
    kind = _TORCH[node.call.outputs[0].dtype]
    return lambda given: given[0].to(kind)


def _conv(node: BoundNode) -> Call:
    a = _attributes(node)
    pads = a.get("pads") or (0, 0, 0, 0)
    assert pads[:2] == pads[2:], "symmetric padding"
    options = {"stride": a.get("strides") or 1, "padding": pads[:2], "dilation": a.get("dilations") or 1}
    return lambda given: F.conv2d(
        given[0], given[1], given[2] if len(given) > 2 else None, groups=a["group"], **options
    )


def _max_pool(node: BoundNode) -> Call:
    a = _attributes(node)
    pads = a.get("pads") or (0, 0, 0, 0)
    return lambda given: F.max_pool2d(given[0], a["kernel_shape"], a.get("strides"), tuple(pads[:2]))


def _gemm(node: BoundNode) -> Call:
    a = _attributes(node)
    assert (a["transA"], a["transB"], a["alpha"], a["beta"]) == (0, 1, 1, 1), "a linear layer"
    return lambda given: F.linear(given[0], given[1], given[2])


def _transpose(node: BoundNode) -> Call:
    order = _attributes(node)["perm"]
    return lambda given: given[0].permute(*order)


def _softmax(node: BoundNode) -> Call:
    axis = _attributes(node)["axis"]
    return lambda given: torch.softmax(given[0], axis)


def _layer_norm(node: BoundNode) -> Call:
    a = _attributes(node)
    return lambda given: F.layer_norm(given[0], given[1].shape, given[1], given[2], a["epsilon"])


def _gather(node: BoundNode) -> Call:
    axis = _attributes(node)["axis"]

    def call(given: Sequence[Any]) -> Tensor:
        source, index = given
        taken = source.index_select(axis, index.reshape(-1))
        return taken.reshape(*source.shape[:axis], *index.shape, *source.shape[axis + 1 :])

    return call


def _concat(node: BoundNode) -> Call:
    axis = _attributes(node)["axis"]
    return lambda given: torch.cat(tuple(given), axis)


def _split(node: BoundNode) -> Call:
    assert node.call is not None
    axis = _attributes(node)["axis"]
    sizes = [kind.shape[axis] for kind in node.call.outputs]
    return lambda given: torch.split(given[0], sizes, axis)


def _slice(node: BoundNode) -> Call:
    assert node.call is not None
    call = node.call
    rank = len(call.input(0).shape)
    starts, ends = call.ints(1) or (), call.ints(2) or ()
    axes, steps = call.ints(3) or tuple(range(len(starts))), call.ints(4) or (1,) * len(starts)
    index: list[slice] = [slice(None)] * rank
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[axis] = slice(start, end, step)
    return lambda given: given[0][tuple(index)]


def _mean(given: Sequence[Any]) -> Tensor:
    found: Tensor = given[0].mean(dim=(2, 3), keepdim=True)
    return found


_OPS: dict[str, Callable[[BoundNode], Call]] = {
    "Add": _simple(torch.add), "Sub": _simple(torch.sub), "Mul": _simple(torch.mul), "Div": _simple(torch.div),
    "Pow": _simple(torch.pow), "MatMul": _simple(torch.matmul), "Relu": _simple(torch.relu), "Erf": _simple(torch.erf),
    "Tanh": _simple(torch.tanh), "Where": _simple(torch.where), "LessOrEqual": _simple(torch.le),
    "GlobalAveragePool": lambda node: _mean, "Conv": _conv, "MaxPool": _max_pool, "Gemm": _gemm, "Cast": _cast,
    "Flatten": _shape, "Reshape": _shape, "Unsqueeze": _shape, "Squeeze": _shape, "Transpose": _transpose,
    "Softmax": _softmax, "LayerNormalization": _layer_norm, "Gather": _gather, "Concat": _concat, "Split": _split,
    "Slice": _slice,
}  # fmt: skip
