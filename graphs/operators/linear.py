"""Linear algebra: MatMul and Gemm."""

from __future__ import annotations

from math import prod

from kgrun.graphs.dtypes import WIDE_FLOATS
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.shapes import broadcast_shape, same_dtype

_MULTIPLIED = WIDE_FLOATS | {"int32", "int64", "uint32", "uint64"}
_MATRICES = frozenset({0, 1})


def gemm_sizes(call: OpCall) -> tuple[int, int, int]:
    """Rows, columns and inner size (m, n, k) of one product of a MatMul or Gemm call, broadcast batches apart."""
    a, b = call.input(0).shape, call.input(1).shape
    if call.op == "Gemm":
        m, k = reversed(a) if call.attributes["transA"] else a
        return m, b[0] if call.attributes["transB"] else b[1], k
    return (1 if len(a) == 1 else a[-2]), (1 if len(b) == 1 else b[-1]), a[-1]


def _matmul(call: OpCall) -> list[TensorType]:
    dtype = same_dtype(call, 0, 1)
    a, b = call.input(0).shape, call.input(1).shape
    for index, shape in enumerate((a, b)):
        if not shape:
            call.fail("MatMul takes no scalars", "inputs", index)
    if a[-1] != (b[-2] if len(b) > 1 else b[0]):
        call.fail(f"MatMul: inner sizes of {list(a)} and {list(b)} differ", "inputs", 1)
    batch = broadcast_shape(call, [a[:-2], b[:-2]])
    return [TensorType(dtype, batch + a[-2:-1] + (b[-1:] if len(b) > 1 else ()))]


def _gemm(call: OpCall) -> list[TensorType]:
    dtype = same_dtype(call, 0, 1, 2)
    for index in (0, 1):
        if len(call.input(index).shape) != 2:
            call.fail(
                f"Gemm multiplies matrices, input {index} has shape {list(call.input(index).shape)}", "inputs", index
            )
    m, n, k = gemm_sizes(call)
    b = call.input(1).shape
    if k != (b[1] if call.attributes["transB"] else b[0]):
        call.fail(f"Gemm: inner sizes of {list(call.input(0).shape)} and {list(b)} differ", "inputs", 1)
    added = call.optional(2)
    if added is not None and broadcast_shape(call, [added.shape, (m, n)]) != (m, n):
        call.fail(f"Gemm: C of shape {list(added.shape)} does not broadcast to {[m, n]}", "inputs", 2)
    return [TensorType(dtype, (m, n))]


def _flops(call: OpCall) -> int:
    _, _, k = gemm_sizes(call)
    return 2 * k * prod(call.outputs[0].shape)


register(
    OpSchema("MatMul", "linear", (2, 2), _matmul, dtypes=_MULTIPLIED, turnable=_MATRICES, flops=_flops),
    OpSchema(
        "Gemm",
        "linear",
        (2, 3),
        _gemm,
        dtypes=_MULTIPLIED,
        attributes={
            "alpha": Attribute("float", 1.0),
            "beta": Attribute("float", 1.0),
            "transA": Attribute("int", 0),
            "transB": Attribute("int", 0),
        },
        turnable=_MATRICES,
        flops=_flops,
    ),
)
