"""Gradients of the operators that a small network trains through, as ordinary operators.

Input 0 is the gradient of the forward operator's output (GatherGrad: of shape, indices, gradient, in this order); then
come the forward inputs or outputs that the rule needs, with the forward operator's attributes. Where no forward value
is read, the forward input is there for its shape. Elementwise rules are scalar CUDA C, as in `elementwise`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from kgrun.graphs.dtypes import WIDE_FLOATS
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.shapes import Shape, axis_of, like, needs_dtype, same_dtype
from kgrun.graphs.operators.windows import POOL_ATTRIBUTES, WINDOW_ATTRIBUTES, Window, window_of

_ROOT_2_BY_PI = 0.7978845608028654


def conv_gradient_window(call: OpCall) -> Window:
    """The window of the Conv that a ConvGrad call belongs to."""
    return window_of(call, call.input(1).shape[2:], call.input(2).shape[2:])


def pool_gradient_window(call: OpCall) -> Window:
    """The window of the pooling that a MaxPoolGrad or AveragePoolGrad call belongs to."""
    return window_of(call, call.input(1).shape[2:], call.attributes["kernel_shape"])


def _needs_shape(call: OpCall, position: int, shape: Shape) -> None:
    found = call.input(position).shape
    if found != shape:
        call.fail(f"{call.op}: input {position} has shape {list(found)}, not {list(shape)}", "inputs", position)


def _elementwise(call: OpCall) -> list[TensorType]:
    same_dtype(call, 0, 1)
    _needs_shape(call, 1, call.input(0).shape)
    return [like(call.input(0))]


def _row_wise(call: OpCall) -> list[TensorType]:
    axis_of(call)
    return _elementwise(call)


def _conv(call: OpCall) -> list[TensorType]:
    same_dtype(call, 0, 1, 2)
    x, w, group = call.input(1), call.input(2), call.attributes["group"]
    if len(x.shape) < 3 or len(w.shape) != len(x.shape):
        call.fail(f"ConvGrad: weight {list(w.shape)} for input {list(x.shape)}", "inputs", 2)
    if group < 1 or x.shape[1] != w.shape[1] * group or w.shape[0] % group:
        message = f"ConvGrad: {x.shape[1]} channels, weight {list(w.shape)} and group {group} do not fit"
        call.fail(message, "attributes", "group")
    _needs_shape(call, 0, (x.shape[0], w.shape[0], *conv_gradient_window(call).output))
    return [like(x), like(w), like(w, w.shape[:1])][: call.output_count]


def _pool(call: OpCall) -> list[TensorType]:
    source = call.input(1)
    same_dtype(call, 0, 1)
    if len(source.shape) < 3:
        call.fail(f"{call.op} takes [batch, channels, spatial …], got {list(source.shape)}", "inputs", 1)
    shape = source.shape[:2] + pool_gradient_window(call).output
    _needs_shape(call, 0, shape)
    if call.op == "MaxPoolGrad":
        needs_dtype(call, 2, ("int64",))
        _needs_shape(call, 2, shape)
    return [like(source)]


def _layer_normalization(call: OpCall) -> list[TensorType]:
    source, axis = call.input(1), axis_of(call)
    same_dtype(call, 0, 1, 2)
    _needs_shape(call, 0, source.shape)
    _needs_shape(call, 2, source.shape[axis:])
    same_dtype(call, 3, 4)
    for position in (3, 4):
        needs_dtype(call, position, WIDE_FLOATS)
        _needs_shape(call, position, source.shape[:axis] + (1,) * (len(source.shape) - axis))
    scale = like(call.input(2))
    return [like(source), scale, scale][: call.output_count]


def _gather(call: OpCall) -> list[TensorType]:
    shape, indices, gradient = call.ints(0) or (), call.input(1), call.input(2)
    needs_dtype(call, 1, ("int32", "int64"))
    needs_dtype(call, 2, WIDE_FLOATS)
    axis = call.axis(call.attributes["axis"], len(shape))
    if min(shape, default=0) < 0:
        call.fail(f"GatherGrad: {list(shape)} is no shape", "inputs", 0)
    _needs_shape(call, 2, shape[:axis] + indices.shape + shape[axis + 1 :])
    return [like(gradient, shape)]


def _gelu(call: OpCall) -> str:
    if call.attributes["approximate"] == "tanh":
        inner = f"tanh(T({_ROOT_2_BY_PI}) * (y + T(0.044715) * y * y * y))"
        slope = f"T({_ROOT_2_BY_PI}) * (T(1) + T(0.134145) * y * y)"
        return f"x * T(0.5) * (T(1) + {inner} + y * (T(1) - {inner} * {inner}) * {slope})"
    density = "T(0.3989422804014327) * exp(T(-0.5) * y * y)"
    return f"x * (T(0.5) * (T(1) + erf(y * T(0.7071067811865476))) + y * {density})"


def _scalar(name: str, cuda: str | Callable[[OpCall], str], flops: int, **attributes: Attribute) -> OpSchema:
    return OpSchema(
        name,
        "gradients",
        (2, 2),
        _elementwise,
        dtypes=WIDE_FLOATS,
        attributes=attributes,
        inplace=(0, 1),
        flops=lambda call: flops * call.outputs[0].size,
        data={"cuda": cuda, "helpers": ""},
        domain="kgrun",
    )


def _rows(name: str) -> OpSchema:
    return OpSchema(
        name,
        "gradients",
        (2, 2),
        _row_wise,
        dtypes=WIDE_FLOATS,
        attributes={"axis": Attribute("int", -1)},
        inplace=(0, 1),
        flops=lambda call: 4 * call.outputs[0].size,
        domain="kgrun",
    )


register(
    _scalar("ReluGrad", "y > T(0) ? x : T(0)", 1),  # y: Relu's output, or its input
    _scalar("SigmoidGrad", "x * y * (T(1) - y)", 3),  # y: Sigmoid's output
    _scalar("TanhGrad", "x * (T(1) - y * y)", 3),  # y: Tanh's output
    # y: Gelu's input
    _scalar("GeluGrad", _gelu, 12, approximate=Attribute("string", "none", choices=("none", "tanh"))),
    _rows("SoftmaxGrad"),  # (gradient, output)
    _rows("LogSoftmaxGrad"),  # (gradient, output)
    # (gradient, input, weight): gradients of input, weight and bias.
    OpSchema(
        "ConvGrad",
        "gradients",
        (3, 3),
        _conv,
        outputs=(1, 3),
        dtypes=WIDE_FLOATS,
        attributes={**WINDOW_ATTRIBUTES, "group": Attribute("int", 1)},
        flops=lambda call: 4 * call.input(0).size * prod(call.input(2).shape[1:]),
        domain="kgrun",
    ),
    # (gradient, input for its shape, indices that MaxPool gave)
    OpSchema(
        "MaxPoolGrad",
        "gradients",
        (3, 3),
        _pool,
        dtypes=WIDE_FLOATS,
        attributes={**POOL_ATTRIBUTES, "storage_order": Attribute("int", 0)},
        flops=lambda call: call.input(0).size,
        data={"shape_only": frozenset({1})},
        domain="kgrun",
    ),
    # (gradient, input for its shape)
    OpSchema(
        "AveragePoolGrad",
        "gradients",
        (2, 2),
        _pool,
        dtypes=WIDE_FLOATS,
        attributes={**POOL_ATTRIBUTES, "count_include_pad": Attribute("int", 0)},
        flops=lambda call: call.input(0).size * prod(pool_gradient_window(call).kernel),
        data={"shape_only": frozenset({1})},
        domain="kgrun",
    ),
    # (gradient, input, scale, mean, inverse deviation), the last two LayerNormalization's outputs 1 and 2: gradients of
    # input, scale and bias.
    OpSchema(
        "LayerNormalizationGrad",
        "gradients",
        (5, 5),
        _layer_normalization,
        outputs=(1, 3),
        dtypes=WIDE_FLOATS,
        attributes={"axis": Attribute("int", -1)},
        flops=lambda call: 12 * call.input(1).size,
        domain="kgrun",
    ),
    # (shape of Gather's input, indices, gradient): rows of equal index are added up in their order.
    OpSchema(
        "GatherGrad",
        "gradients",
        (3, 3),
        _gather,
        dtypes=frozenset({"int64"}),
        attributes={"axis": Attribute("int", 0)},
        host_inputs=frozenset({0}),
        flops=lambda call: call.input(2).size,
        domain="kgrun",
    ),
)
