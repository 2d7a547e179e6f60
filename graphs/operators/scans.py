"""Scans along one axis: running sums and products, and the largest elements in order.

TopK takes a NaN for larger than every number and puts the lower index first among equal elements, also where ONNX
leaves the order open (`sorted=0`).
"""

from __future__ import annotations

from itertools import accumulate

from kgrun.graphs.dtypes import NUMBERS, WIDE_FLOATS
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.known import values_of, with_value
from kgrun.graphs.operators.shapes import like, needs_dtype

_SUMMED = WIDE_FLOATS | {"int32", "int64", "uint32", "uint64"}


def scan_axis(call: OpCall) -> int:
    """The axis of a CumSum or CumProd (input 1) or a TopK (attribute), counted from the front."""
    rank = len(call.input(0).shape)
    if call.op == "TopK":
        return call.axis(call.attributes["axis"], rank)
    axis = call.ints(1)
    if axis is None or len(axis) != 1 or not -rank <= axis[0] < rank:
        call.fail(f"{call.op}: axis {axis and list(axis)} is outside [-{rank}, {rank - 1}]", "inputs", 1)
    return axis[0] % rank


def _scan(call: OpCall) -> list[TensorType]:
    needs_dtype(call, 1, ("int32", "int64"))
    source = call.input(0)
    scan_axis(call)
    values = values_of(source)
    plain = len(source.shape) == 1 and not call.attributes["reverse"] and not call.attributes["exclusive"]
    if values is None or not plain or call.op != "CumSum":
        return [like(source)]
    return [with_value(like(source), list(accumulate(values[0])))]


def _top_k(call: OpCall) -> list[TensorType]:
    source, axis = call.input(0), scan_axis(call)
    needs_dtype(call, 1, ("int64",))
    wanted = call.ints(1) or (call.attributes.get("k", -1),)
    count = wanted[0] if len(wanted) == 1 else -1
    if not 0 <= count <= source.shape[axis]:
        call.fail(f"TopK: {list(wanted)} of {source.shape[axis]} elements", "inputs", 1)
    shape = (*source.shape[:axis], count, *source.shape[axis + 1 :])
    return [TensorType(source.dtype, shape), TensorType("int64", shape)]


def _cumulative(name: str) -> OpSchema:
    return OpSchema(
        name,
        "scans",
        (2, 2),
        _scan,
        dtypes=_SUMMED,
        attributes={"exclusive": Attribute("int", 0), "reverse": Attribute("int", 0)},
        host_inputs=frozenset({1}),
        flops=lambda call: call.input(0).size,
    )


register(
    _cumulative("CumSum"),
    _cumulative("CumProd"),
    OpSchema(
        "TopK",
        "scans",
        (1, 2),
        _top_k,
        outputs=(2, 2),
        dtypes=NUMBERS,
        attributes={
            "axis": Attribute("int", -1),
            "k": Attribute("int"),
            "largest": Attribute("int", 1),
            "sorted": Attribute("int", 1),
        },
        host_inputs=frozenset({1}),
    ),
)
