"""Whether a graph may run with a dimension rounded up: what is added to tensors must never reach what is asked for.

The graph is bound at two sizes. An axis whose extent is the dimension in both is padded; each node must treat the
elements along it apart, by the rules below. A graph of which that cannot be shown runs at its exact size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kgrun.graphs.bound import BoundGraph, BoundNode
from kgrun.graphs.operators import lookup
from kgrun.graphs.operators.base import OpCall

Axes = frozenset[int]
_NONE: Axes = frozenset()


def padded_axes(small: BoundGraph, large: BoundGraph, dim: str) -> dict[str, int] | str:
    """The padded axis of each tensor that has one, or why the graph cannot be padded along `dim`.

    Args:
        small, large: the graph bound at two values of `dim`, all else the same.
    """
    axes: dict[str, Axes] = {}
    for name, tensor in small.tensors.items():
        one, other = tensor.type, large.tensors[name].type
        if len(one.shape) != len(other.shape):
            return f"the rank of {name!r} depends on it"
        differing = [i for i, (a, b) in enumerate(zip(one.shape, other.shape, strict=True)) if a != b]
        if any(one.shape[i] != small.dims[dim] or other.shape[i] != large.dims[dim] for i in differing):
            return f"{name!r} has an axis that is not {dim} itself"
        if len(differing) > 1:
            return f"{name!r} has it twice"
        if differing and tensor.producer is None and tensor.role != "input":
            return f"the shape of {tensor.role} {name!r} depends on it"
        if one.value != other.value and tensor.used and tensor.consumers and _read_on_device(small, name):
            return f"elements of {name!r} depend on it"
        axes[name] = frozenset(differing)
    for node in small.nodes:
        if not _apart(node, axes):
            return f"{node.op} {node.name!r} mixes elements along it, or cannot be shown not to"
    return {name: next(iter(found)) for name, found in axes.items() if found}


def _read_on_device(bound: BoundGraph, name: str) -> bool:
    for index in bound.tensors[name].consumers:
        node = bound.nodes[index]
        host = lookup(node.op).host_inputs if node.call is not None else _NONE
        known = node.call is not None and all(kind.value is not None for kind in node.call.outputs)
        if not known and any(n == name and i not in host for i, n in enumerate(node.inputs)):
            return True
    return name in bound.outputs


def _apart(node: BoundNode, axes: Mapping[str, Axes]) -> bool:
    """Whether each result along the padded axis comes from the elements at the same place of that axis alone."""
    inputs = [_NONE if name is None else axes.get(name, _NONE) for name in node.inputs]
    outputs = [axes.get(name, _NONE) for name in node.written_names()]
    if not any(inputs) and not any(outputs):
        return True
    call = node.call
    if call is None or node.inplace:
        return False  # a custom kernel, or one that changes what it reads: nobody knows
    family = lookup(node.op).family
    if family == "elementwise":
        return True  # broadcasting lines the axes up: the extents would not fit otherwise
    rule = _RULES.get(node.op) or _FAMILIES.get(family)
    return rule is not None and rule(call, inputs, outputs)


def _axis(call: OpCall, index: int = 0, default: int = -1) -> int:
    rank = len(call.input(index).shape)
    axis = int(call.attributes.get("axis", default))
    return axis + rank if axis < 0 else axis


def _leading(call: OpCall, inputs: Sequence[Axes], outputs: Sequence[Axes]) -> bool:
    """Only the first axis, of the first operand and of all results: a batch."""
    return inputs[0] == {0} and not any(inputs[1:]) and all(axes == {0} for axes in outputs)


def _along(call: OpCall, inputs: Sequence[Axes], outputs: Sequence[Axes]) -> bool:
    """Works along one axis, which is not the padded one."""
    axis = _axis(call)
    return all(axis not in axes for axes in inputs) and all(axis not in axes for axes in outputs)


def _rows(call: OpCall, inputs: Sequence[Axes], outputs: Sequence[Axes]) -> bool:
    """Works along all axes from `axis` on."""
    axis = _axis(call)
    return all(place < axis for place in inputs[0]) and not any(inputs[1:]) and outputs[0] == inputs[0]


def _reduced(call: OpCall, inputs: Sequence[Axes], outputs: Sequence[Axes]) -> bool:
    """The padded axis is still there: it was not reduced, for its extent is found in the result."""
    return len(inputs[0]) == len(outputs[0]) == 1 and not any(inputs[1:])


def _product(call: OpCall, inputs: Sequence[Axes], outputs: Sequence[Axes]) -> bool:
    """The inner axis is not padded."""
    left, right = len(call.input(0).shape), len(call.input(1).shape)
    inner = left - 1, max(right - 2, 0)
    if call.op == "Gemm":
        inner = (0 if call.attributes.get("transA") else 1), (1 if call.attributes.get("transB") else 0)
    return inner[0] not in inputs[0] and inner[1] not in inputs[1]


def _gathered(call: OpCall, inputs: Sequence[Axes], outputs: Sequence[Axes]) -> bool:
    """Padded indices pick some row; padded data only along an axis that is kept whole."""
    return not (inputs[0] and inputs[1]) and _axis(call, default=0) not in inputs[0]


def _kept_first(call: OpCall, inputs: Sequence[Axes], outputs: Sequence[Axes]) -> bool:
    """Row-major order keeps a leading axis apart."""
    return inputs[0] == {0} and outputs[0] == {0}


def _always(call: OpCall, inputs: Sequence[Axes], outputs: Sequence[Axes]) -> bool:
    return True


Rule = Callable[[OpCall, Sequence[Axes], Sequence[Axes]], bool]
_RULES: Mapping[str, Rule] = {
    "Identity": _always,
    "Dropout": _always,
    "Transpose": _always,
    "Squeeze": _reduced,
    "Unsqueeze": _reduced,
    "Reshape": _kept_first,
    "Flatten": _kept_first,
    "Concat": _along,
    "Split": _along,
    "Gather": _gathered,
    "Softmax": _along,
    "LogSoftmax": _along,
    "Hardmax": _along,
    "ArgMax": _reduced,
    "ArgMin": _reduced,
    "LayerNormalization": _rows,
    "RMSNormalization": _rows,
    "MatMul": _product,
    "Gemm": _product,
    "Shape": _always,
    "Size": _always,
    "QuantizeLinear": _leading,
    "DequantizeLinear": _leading,
} | dict.fromkeys(
    (
        "ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare",
        "ReduceLogSum", "ReduceLogSumExp",
    ),
    _reduced,
)  # fmt: skip
_FAMILIES: dict[str, Rule] = {"nn": _leading, "resampling": _leading}
