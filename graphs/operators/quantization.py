"""Quantised operators: QuantizeLinear and DequantizeLinear by tensor, axis or block, and integer products.

A scale has one element (the whole tensor), one an index of `axis`, or one a block of `block_size` along `axis`; its
zero point has the same shape. Quotients and scaled sums are rounded to the nearest even integer before the zero point
is added.
"""

from __future__ import annotations

from math import prod

from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.shapes import Shape, broadcast_shape, like, needs_dtype, same_dtype
from kgrun.graphs.operators.windows import WINDOW_ATTRIBUTES, Window, window_of

FLOAT8 = frozenset({"float8_e4m3fn", "float8_e5m2"})
_BYTES = frozenset({"int8", "uint8"})
_QUANTIZED = _BYTES | FLOAT8 | {"int16", "uint16"}
_SCALES = frozenset({"float32", "float16", "bfloat16"})


def scale_steps(call: OpCall) -> tuple[int, int, int, Shape]:
    """How a scale follows input 0, seen as [outer, axis, inner].

    Returns:
        size of the axis, elements of it that share a scale, inner size, and the scale's steps (in elements) along
        outer, along the shares of the axis, along inner.
    """
    shape, scale = call.input(0).shape, call.input(1).shape
    if not scale or (len(scale) == 1 and call.input(1).size == 1):
        return 1, 1, 1, (0, 0, 0)
    axis = call.axis(call.attributes["axis"], len(shape))
    inner = prod(shape[axis + 1 :])
    if len(scale) == 1 and not call.attributes["block_size"]:
        return shape[axis], 1, inner, (0, 1, 0)
    return shape[axis], call.attributes["block_size"], inner, (scale[axis] * inner, inner, 1)


def _check_scale(call: OpCall) -> None:
    shape, scale, zero = call.input(0).shape, call.input(1), call.optional(2)
    if zero is not None and zero.shape != scale.shape and not zero.size == scale.size == 1:
        found = f"{list(zero.shape)} and {list(scale.shape)}"
        call.fail(f"{call.op}: zero point and scale have different shapes {found}", "inputs", 2)
    if not scale.shape or scale.shape == (1,):
        return
    axis, block = call.axis(call.attributes["axis"], len(shape)), call.attributes["block_size"]
    if block < 0:
        call.fail(f"{call.op}: block_size {block} is negative", "attributes", "block_size")
    wanted = (shape[axis],)
    if block:
        wanted = (*shape[:axis], -(-shape[axis] // block), *shape[axis + 1 :])
    if scale.shape != wanted:
        call.fail(f"{call.op}: scale of shape {list(scale.shape)}, {list(wanted)} is needed", "inputs", 1)


def _quantize(call: OpCall) -> list[TensorType]:
    zero, named = call.optional(2), call.attributes["output_dtype"]
    needs_dtype(call, 1, _SCALES | {"int32"})
    needs_dtype(call, 2, _QUANTIZED)
    if named and (named not in _QUANTIZED or (zero is not None and zero.dtype != named)):
        call.fail(f"QuantizeLinear: output_dtype {named} does not fit", "attributes", "output_dtype")
    if call.attributes["precision"] not in (0, "float32", "float16", "bfloat16", "float64"):
        call.fail("QuantizeLinear: precision is a float type", "attributes", "precision")
    _check_scale(call)
    return [like(call.input(0), dtype=zero.dtype if zero is not None else named or "uint8")]


def _dequantize(call: OpCall) -> list[TensorType]:
    needs_dtype(call, 1, _SCALES)
    same_dtype(call, 0, 2)
    named = call.attributes["output_dtype"]
    if named and named not in _SCALES:
        call.fail(f"DequantizeLinear: output_dtype {named} is no float type", "attributes", "output_dtype")
    _check_scale(call)
    return [like(call.input(0), dtype=named or call.input(1).dtype)]


def _dynamic(call: OpCall) -> list[TensorType]:
    return [like(call.input(0), dtype="uint8"), TensorType("float32", ()), TensorType("uint8", ())][: call.output_count]


def division_dtype(call: OpCall) -> str:
    """The type in which QuantizeLinear divides: `precision`, or the scale's; float64 for an integer scale."""
    found: str = call.attributes["precision"] or call.input(1).dtype
    return "float64" if found == "int32" else found


def matmul_operands(call: OpCall) -> tuple[int, int]:
    """The positions of the matrices."""
    return (0, 3) if call.op == "QLinearMatMul" else (0, 1)


def _check_parameter(call: OpCall, position: int, matrix: Shape, along: int, batch: Shape) -> None:
    """A scale or zero point of a matrix: one element, one a row (along -2) or column (-1), or these by batch."""
    found = call.optional(position)
    if found is None or found.size == 1:
        return
    size = matrix[along] if len(matrix) > 1 else 1
    last = (size, 1) if along == -2 else (1, size)
    whole = len(found.shape) > 1 and found.shape[-2:] == last
    if found.shape != (size,) and not (whole and broadcast_shape(call, [found.shape[:-2], batch]) == batch):
        what = "row" if along == -2 else "column"
        message = f"{call.op}: {list(found.shape)} for a matrix {list(matrix)}, one element a {what} is needed"
        call.fail(message, "inputs", position)


def _matmul(call: OpCall) -> list[TensorType]:
    first, second = matmul_operands(call)
    a, b = call.input(first).shape, call.input(second).shape
    for index, shape in ((first, a), (second, b)):
        if not shape:
            call.fail(f"{call.op} takes no scalars", "inputs", index)
    if a[-1] != (b[-2] if len(b) > 1 else b[0]):
        call.fail(f"{call.op}: inner sizes of {list(a)} and {list(b)} differ", "inputs", second)
    batch = broadcast_shape(call, [a[:-2], b[:-2]])
    shape = batch + a[-2:-1] + (b[-1:] if len(b) > 1 else ())
    if call.op == "MatMulInteger":
        needs_dtype(call, 1, _BYTES)
        same_dtype(call, 0, 2)
        same_dtype(call, 1, 3)
        _check_parameter(call, 2, a, -2, batch)
        _check_parameter(call, 3, b, -1, batch)
        return [TensorType("int32", shape)]
    same_dtype(call, 0, 2)
    same_dtype(call, 3, 5)
    same_dtype(call, 1, 4, 6)
    needs_dtype(call, 1, _SCALES)
    allowed = FLOAT8 if call.input(0).dtype in FLOAT8 else _BYTES
    for position in (3, 7):
        needs_dtype(call, position, allowed)
    for position, matrix, along in ((1, a, -2), (2, a, -2), (4, b, -1), (5, b, -1), (6, a, -2), (7, a, -2)):
        _check_parameter(call, position, matrix, along, batch)
    return [TensorType(call.input(7).dtype, shape)]


def conv_operands(call: OpCall) -> tuple[int, int]:
    """The positions of input and weight."""
    return (0, 3) if call.op == "QLinearConv" else (0, 1)


def quantized_window(call: OpCall) -> Window:
    """The window of a ConvInteger or QLinearConv call."""
    x, w = (call.input(position).shape for position in conv_operands(call))
    return window_of(call, x[2:], w[2:])


def _conv(call: OpCall) -> list[TensorType]:
    first, second = conv_operands(call)
    x, w, group = call.input(first).shape, call.input(second).shape, call.attributes["group"]
    needs_dtype(call, second, _BYTES)
    if len(x) < 3 or len(w) != len(x):
        call.fail(f"{call.op}: weight of shape {list(w)} for input of shape {list(x)}", "inputs", second)
    if group < 1 or x[1] != w[1] * group or w[0] % group:
        message = f"{call.op}: {x[1]} channels, weight {list(w)} and group {group} do not fit"
        call.fail(message, "attributes", "group")
    shape = (x[0], w[0], *quantized_window(call).output)
    linear = call.op == "QLinearConv"
    same_dtype(call, first, 2)
    same_dtype(call, second, 5 if linear else 3)
    one, each = ((1, 2, 6, 7), (4, 5)) if linear else ((2,), (3,))
    for position in (*one, *each):
        found = call.optional(position)
        if found is not None and found.size != 1 and (position in one or found.shape != w[:1]):
            call.fail(f"{call.op}: input {position} has shape {list(found.shape)}", "inputs", position)
    if not linear:
        return [TensorType("int32", shape)]
    for position in (1, 4, 6):
        needs_dtype(call, position, ("float32",))
    needs_dtype(call, 7, _BYTES)
    needs_dtype(call, 8, ("int32",))
    bias = call.optional(8)
    if bias is not None and bias.shape != w[:1]:
        call.fail(f"{call.op}: bias of shape {list(bias.shape)} for {w[0]} filters", "inputs", 8)
    return [TensorType(call.input(7).dtype, shape)]


def _matmul_flops(call: OpCall) -> int:
    return 2 * call.outputs[0].size * call.input(0).shape[-1]


def _conv_flops(call: OpCall) -> int:
    return 2 * call.outputs[0].size * prod(call.input(conv_operands(call)[1]).shape[1:])


_LAYOUT = {"axis": Attribute("int", 1), "block_size": Attribute("int", 0), "output_dtype": Attribute("dtype", 0)}
_CONV = {**WINDOW_ATTRIBUTES, "group": Attribute("int", 1)}
register(
    OpSchema(
        "QuantizeLinear",
        "quantization",
        (2, 3),
        _quantize,
        dtypes=_SCALES | {"int32"},
        attributes={**_LAYOUT, "precision": Attribute("dtype", 0), "saturate": Attribute("int", 1)},
        flops=lambda call: 3 * call.input(0).size,
    ),
    OpSchema(
        "DequantizeLinear",
        "quantization",
        (2, 3),
        _dequantize,
        dtypes=_QUANTIZED | {"int32"},
        attributes=_LAYOUT,
        flops=lambda call: 2 * call.input(0).size,
    ),
    OpSchema(
        "DynamicQuantizeLinear",
        "quantization",
        (1, 1),
        _dynamic,
        outputs=(3, 3),
        dtypes=frozenset({"float32"}),
        flops=lambda call: 5 * call.input(0).size,
    ),
    OpSchema("MatMulInteger", "quantization", (2, 4), _matmul, dtypes=_BYTES, flops=_matmul_flops),
    OpSchema("QLinearMatMul", "quantization", (8, 8), _matmul, dtypes=_BYTES | FLOAT8, flops=_matmul_flops),
    OpSchema("ConvInteger", "quantization", (2, 4), _conv, dtypes=_BYTES, attributes=_CONV, flops=_conv_flops),
    OpSchema("QLinearConv", "quantization", (8, 9), _conv, dtypes=_BYTES, attributes=_CONV, flops=_conv_flops),
)
