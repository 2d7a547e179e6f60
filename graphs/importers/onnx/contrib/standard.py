"""Operators of ONNX Runtime's that ONNX has too, under this name or another."""

from __future__ import annotations

from kgrun.graphs.importers.onnx.contrib.parts import Contrib, Results, like, unsqueezed
from kgrun.graphs.importers.onnx.errors import Unsupported
from kgrun.graphs.importers.onnx.uses import Use


def _same(use: Use) -> Results:
    return use.result(use.tensors)


def _range(use: Use) -> Results:
    """Range, of one-element tensors too; the step is 1 where there is none."""
    inputs = use.tensors[:3]
    if len(inputs) < 3 or inputs[2] is None:
        inputs = [*inputs[:2], like(use, use.needed(0), 1) if _real(use) else use.constant(_kind(use), (), (1,))]
    none = use.ints([])
    flat = [use.part("Reshape", [value, none]) if value is not None and value.rank else value for value in inputs]
    return use.result(flat, {})


def _kind(use: Use) -> str:
    found = use.needed(0).type
    if found is None:
        raise Unsupported("the type of its start is not known")
    return found.dtype


def _real(use: Use) -> bool:
    return _kind(use).startswith("float")


def _expand_dims(use: Use) -> Results:
    """Unsqueeze by an int32."""
    return use.result([use.needed(0), use.part("Cast", [use.needed(1)], to="int64")], {}, "Unsqueeze")


def _pad(use: Use) -> Results:
    """Pad, whose numbers may stand in a row, and whose value in a tensor of one element."""
    inputs, none = use.tensors, use.ints([])
    inputs[1] = use.part("Reshape", [use.needed(1), use.ints([-1])])
    if len(inputs) > 2 and inputs[2] is not None and inputs[2].rank:
        inputs[2] = use.part("Reshape", [inputs[2], none])
    return use.result(inputs)


def _grid_sample(use: Use) -> Results:
    """GridSample, whose modes have the names of opset 16."""
    renamed = {"bilinear": "linear", "bicubic": "cubic"}
    mode = use.attributes.get("mode", "bilinear")
    return use.result(use.tensors, use.attributes | {"mode": renamed.get(mode, mode)})


def _distances(use: Use) -> Results:
    """Distances between the rows of two matrices."""
    squares = {"euclidean": "ReduceL2", "sqeuclidean": "ReduceSumSquare", "cityblock": "ReduceL1"}
    metric = use.attributes.get("metric", "sqeuclidean")
    if metric not in squares:
        raise Unsupported(f"metric {metric!r}")
    apart = use.part("Sub", [unsqueezed(use, use.needed(0), 1), unsqueezed(use, use.needed(1), 0)])
    return use.result([apart, use.ints([2])], {"keepdims": 0}, squares[metric])


STANDARD: dict[str, Contrib] = {
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear", "GatherND", "Trilu", "Unique"), _same),
    "Range": _range,
    "ExpandDims": _expand_dims,
    "Pad": _pad,
    "GridSample": _grid_sample,
    "CDist": _distances,
}
