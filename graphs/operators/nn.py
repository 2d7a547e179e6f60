"""Network layers over [batch, channels, spatial …]: Conv, pooling, BatchNormalization."""

from __future__ import annotations

from math import prod

from kgrun.graphs.dtypes import WIDE_FLOATS
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.shapes import like, needs_dtype, same_dtype
from kgrun.graphs.operators.windows import POOL_ATTRIBUTES, WINDOW_ATTRIBUTES, Window, window_of


def conv_window(call: OpCall) -> Window:
    """The window of a Conv or DeformConv call; its kernel comes from the weight's shape."""
    return window_of(call, call.input(0).shape[2:], call.input(1).shape[2:])


def pool_window(call: OpCall) -> Window:
    """The window of a MaxPool or AveragePool call."""
    return window_of(call, call.input(0).shape[2:], call.attributes["kernel_shape"])


def _needs_channels(call: OpCall, least: int) -> None:
    shape = call.input(0).shape
    if len(shape) < least:
        call.fail(f"{call.op} takes [batch, channels, spatial …], got {list(shape)}", "inputs", 0)


def _conv(call: OpCall) -> list[TensorType]:
    _needs_channels(call, 3)
    dtype = same_dtype(call, 0, 1, 2)
    x, w, bias = call.input(0).shape, call.input(1).shape, call.optional(2)
    group, kernel = call.attributes["group"], call.attributes.get("kernel_shape")
    if len(w) != len(x):
        call.fail(f"Conv: weight of shape {list(w)} for input of shape {list(x)}", "inputs", 1)
    if group < 1 or x[1] != w[1] * group or w[0] % group:
        call.fail(f"Conv: {x[1]} channels, weight {list(w)} and group {group} do not fit", "attributes", "group")
    if kernel is not None and kernel != w[2:]:
        call.fail(
            f"Conv: kernel_shape {list(kernel)} differs from the weight's {list(w[2:])}", "attributes", "kernel_shape"
        )
    if bias is not None and bias.shape != w[:1]:
        call.fail(f"Conv: bias of shape {list(bias.shape)} for {w[0]} filters", "inputs", 2)
    return [TensorType(dtype, (x[0], w[0], *conv_window(call).output))]


def _conv_flops(call: OpCall) -> int:
    return 2 * call.outputs[0].size * prod(call.input(1).shape[1:])


def _check_power(call: OpCall) -> None:
    if call.attributes.get("p", 1) < 1:
        call.fail(f"{call.op}: there is no {call.attributes['p']}-norm", "attributes", "p")


def _pool(call: OpCall) -> list[TensorType]:
    _needs_channels(call, 3)
    _check_power(call)
    source = call.input(0)
    shape = source.shape[:2] + pool_window(call).output
    return [TensorType(source.dtype, shape), TensorType("int64", shape)][: call.output_count]


def _pool_flops(call: OpCall) -> int:
    return call.outputs[0].size * prod(pool_window(call).kernel)


def _global_pool(call: OpCall) -> list[TensorType]:
    _needs_channels(call, 3)
    _check_power(call)
    source = call.input(0)
    if call.op == "GlobalMaxPool" and 0 in source.shape[2:]:
        call.fail("GlobalMaxPool of nothing", "inputs", 0)
    return [like(source, source.shape[:2] + (1,) * (len(source.shape) - 2))]


def _batch_normalization(call: OpCall) -> list[TensorType]:
    source = call.input(0)
    if call.output_count > 1 and not call.attributes["training_mode"]:
        call.fail("BatchNormalization has running statistics in training_mode only", "outputs", 1)
    if not source.shape:
        call.fail("BatchNormalization takes no scalars", "inputs", 0)
    channels = source.shape[1] if len(source.shape) > 1 else 1
    same_dtype(call, 1, 2)
    same_dtype(call, 3, 4)
    for index in range(1, 5):
        needs_dtype(call, index, WIDE_FLOATS)
        if call.input(index).shape != (channels,):
            call.fail(
                f"{call.op}: input {index} has shape {list(call.input(index).shape)}, not [{channels}]", "inputs", index
            )
    return [like(source), like(call.input(3)), like(call.input(4))][: call.output_count]


register(
    OpSchema(
        "Conv",
        "nn",
        (2, 3),
        _conv,
        dtypes=WIDE_FLOATS,
        attributes={**WINDOW_ATTRIBUTES, "group": Attribute("int", 1)},
        flops=_conv_flops,
    ),
    OpSchema(
        "MaxPool",
        "nn",
        (1, 1),
        _pool,
        outputs=(1, 2),
        dtypes=WIDE_FLOATS | {"int8", "uint8"},
        attributes={**POOL_ATTRIBUTES, "storage_order": Attribute("int", 0)},
        flops=_pool_flops,
    ),
    OpSchema(
        "AveragePool",
        "nn",
        (1, 1),
        _pool,
        dtypes=WIDE_FLOATS,
        attributes={**POOL_ATTRIBUTES, "count_include_pad": Attribute("int", 0)},
        flops=_pool_flops,
    ),
    OpSchema(
        "LpPool",
        "nn",
        (1, 1),
        _pool,
        dtypes=WIDE_FLOATS,
        attributes={**POOL_ATTRIBUTES, "p": Attribute("int", 2)},
        flops=_pool_flops,
    ),
    OpSchema(
        "GlobalLpPool",
        "nn",
        (1, 1),
        _global_pool,
        dtypes=WIDE_FLOATS,
        attributes={"p": Attribute("int", 2)},
        flops=lambda call: 2 * call.input(0).size,
    ),
    OpSchema(
        "GlobalAveragePool", "nn", (1, 1), _global_pool, dtypes=WIDE_FLOATS, flops=lambda call: call.input(0).size
    ),
    OpSchema("GlobalMaxPool", "nn", (1, 1), _global_pool, dtypes=WIDE_FLOATS, flops=lambda call: call.input(0).size),
    OpSchema(
        "BatchNormalization",
        "nn",
        (5, 5),
        _batch_normalization,
        outputs=(1, 3),
        dtypes=WIDE_FLOATS,
        attributes={
            "epsilon": Attribute("float", 1e-5),
            "momentum": Attribute("float", 0.9),
            "training_mode": Attribute("int", 0),
        },
        inplace=(0,),
        flops=lambda call: 2 * call.input(0).size,
    ),
)
