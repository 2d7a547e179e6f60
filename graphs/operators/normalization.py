"""Normalization: elements divided by a statistic of the group, row or neighbourhood they stand in.

Statistics are computed in float32 (float64 for float64), whatever `stash_type` allows below that. What normalizes rows
of its own may write over input 0: a kernel rereads only elements that the same thread writes.
"""

from __future__ import annotations

from kgrun.graphs.dtypes import WIDE_FLOATS
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.shapes import Shape, axis_of, broadcast_shape, counted_axes, like, needs_dtype, same_dtype

# float32, float16, float64 and bfloat16, as ONNX numbers them.
_STASH_TYPES = (1, 10, 11, 16)


def group_count(call: OpCall) -> int:
    """Groups of channels with statistics of their own: one a channel in InstanceNormalization."""
    channels = call.input(0).shape[1]
    return channels if call.op == "InstanceNormalization" else call.attributes["num_groups"]


def norm_axes(call: OpCall) -> tuple[int, ...]:
    """The axes that MeanVarianceNormalization reduces, ascending."""
    return tuple(sorted(counted_axes(call, call.attributes["axes"], len(call.input(0).shape))))


def _by_groups(call: OpCall) -> list[TensorType]:
    source = call.input(0)
    same_dtype(call, 0, 1, 2)
    if len(source.shape) < 2:
        call.fail(f"{call.op} takes [batch, channels, …], got {list(source.shape)}", "inputs", 0)
    channels, groups = source.shape[1], group_count(call)
    if (groups < 1 and channels) or (groups and channels % groups):
        call.fail(f"{call.op}: {channels} channels in {groups} groups", "attributes", "num_groups")
    # Before opset 21, GroupNormalization had a scale and a bias a group.
    allowed = {(channels,), (groups,)}
    for index in (1, 2):
        if call.input(index).shape not in allowed or call.input(index).shape != call.input(1).shape:
            shape = list(call.input(index).shape)
            call.fail(f"{call.op}: input {index} has shape {shape}, not [{channels}]", "inputs", index)
    _check_stash(call)
    return [like(source)]


def _check_stash(call: OpCall) -> None:
    if call.attributes.get("stash_type", 1) not in _STASH_TYPES:
        call.fail(f"{call.op}: stash_type {call.attributes['stash_type']} is no float", "attributes", "stash_type")


def normal_shape(call: OpCall) -> Shape:
    """The shape that RMSNormalization normalizes over."""
    return call.input(0).shape[axis_of(call) :]


def _rms_normalization(call: OpCall) -> list[TensorType]:
    source, scale, normal = call.input(0), call.input(1), normal_shape(call)
    needs_dtype(call, 1, WIDE_FLOATS)
    if broadcast_shape(call, [normal, scale.shape]) != normal:
        call.fail(f"{call.op}: {list(scale.shape)} does not broadcast to {list(normal)}", "inputs", 1)
    _check_stash(call)
    return [like(source, dtype=scale.dtype)]


def _mean_variance(call: OpCall) -> list[TensorType]:
    norm_axes(call)
    return [like(call.input(0))]


def _lp_normalization(call: OpCall) -> list[TensorType]:
    axis_of(call)
    if call.attributes["p"] not in (1, 2):
        call.fail(f"LpNormalization: p is 1 or 2, not {call.attributes['p']}", "attributes", "p")
    return [like(call.input(0))]


def _lrn(call: OpCall) -> list[TensorType]:
    source = call.input(0)
    if len(source.shape) < 2:
        call.fail(f"LRN takes [batch, channels, …], got {list(source.shape)}", "inputs", 0)
    if call.attributes["size"] < 1:
        call.fail(f"LRN: a neighbourhood of {call.attributes['size']} channels", "attributes", "size")
    return [like(source)]


_EPSILON = Attribute("float", 1e-5)
_STASH = Attribute("int", 1)


register(
    OpSchema(
        "InstanceNormalization",
        "normalization",
        (3, 3),
        _by_groups,
        dtypes=WIDE_FLOATS,
        attributes={"epsilon": _EPSILON},
        inplace=(0,),
        flops=lambda call: 8 * call.input(0).size,
    ),
    OpSchema(
        "GroupNormalization",
        "normalization",
        (3, 3),
        _by_groups,
        dtypes=WIDE_FLOATS,
        attributes={"epsilon": _EPSILON, "num_groups": Attribute("int", required=True), "stash_type": _STASH},
        inplace=(0,),
        flops=lambda call: 8 * call.input(0).size,
    ),
    OpSchema(
        "RMSNormalization",
        "normalization",
        (2, 2),
        _rms_normalization,
        dtypes=WIDE_FLOATS,
        attributes={"axis": Attribute("int", -1), "epsilon": _EPSILON, "stash_type": _STASH},
        inplace=(0,),
        flops=lambda call: 4 * call.input(0).size,
    ),
    OpSchema(
        "MeanVarianceNormalization",
        "normalization",
        (1, 1),
        _mean_variance,
        dtypes=WIDE_FLOATS,
        attributes={"axes": Attribute("ints", (0, 2, 3))},
        flops=lambda call: 6 * call.input(0).size,
    ),
    OpSchema(
        "LpNormalization",
        "normalization",
        (1, 1),
        _lp_normalization,
        dtypes=WIDE_FLOATS,
        attributes={"axis": Attribute("int", -1), "p": Attribute("int", 2)},
        flops=lambda call: 3 * call.input(0).size,
    ),
    OpSchema(
        "LRN",
        "normalization",
        (1, 1),
        _lrn,
        dtypes=WIDE_FLOATS,
        attributes={
            "alpha": Attribute("float", 1e-4),
            "beta": Attribute("float", 0.75),
            "bias": Attribute("float", 1.0),
            "size": Attribute("int", required=True),
        },
        flops=lambda call: (2 * call.attributes["size"] + 3) * call.input(0).size,
    ),
)
