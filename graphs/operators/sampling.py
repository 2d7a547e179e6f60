"""Sampling at places that tensors name: GridSample and AffineGrid, regions of interest, deformable convolution."""

from __future__ import annotations

from math import prod

from kgrun.graphs.dtypes import DTYPES, WIDE_FLOATS
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.nn import conv_window
from kgrun.graphs.operators.shapes import like, needs_dtype, same_dtype
from kgrun.graphs.operators.windows import WINDOW_ATTRIBUTES


def _grid_sample(call: OpCall) -> list[TensorType]:
    needs_dtype(call, 1, WIDE_FLOATS)
    x, grid = call.input(0), call.input(1)
    rank = len(x.shape) - 2
    if rank < 1 or len(grid.shape) != rank + 2 or grid.shape[-1] != rank or grid.shape[0] != x.shape[0]:
        call.fail(f"GridSample: a grid of shape {list(grid.shape)} for {list(x.shape)}", "inputs", 1)
    out = like(x, (*x.shape[:2], *grid.shape[1:-1]))
    if out.size and not x.size:
        call.fail("GridSample of nothing", "inputs", 0)
    if x.dtype == "bool" and sample_mode(call) != "nearest":
        call.fail(f"GridSample: {call.attributes['mode']} of bool", "attributes", "mode")
    return [out]


def sample_mode(call: OpCall) -> str:
    """GridSample's mode: nearest, linear or cubic, by its names of all opsets."""
    mode: str = call.attributes["mode"]
    return {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)


def _affine_grid(call: OpCall) -> list[TensorType]:
    theta, size = call.input(0), call.ints(1) or ()
    rank = len(size) - 2
    if rank not in (2, 3) or theta.shape != (size[0], rank, rank + 1) or min(size) < 0:
        call.fail(f"AffineGrid: matrices {list(theta.shape)} for size {list(size)}", "inputs", 1)
    return [like(theta, (size[0], *size[2:], rank))]


def _check_regions(call: OpCall, columns: int) -> int:
    """The number of regions of a [regions, columns] tensor."""
    same_dtype(call, 0, 1)
    x, regions = call.input(0).shape, call.input(1).shape
    if len(x) != 4:
        call.fail(f"{call.op} takes [batch, channels, height, width], got {list(x)}", "inputs", 0)
    if len(regions) != 2 or regions[1] != columns:
        call.fail(f"{call.op}: regions are [count, {columns}], got {list(regions)}", "inputs", 1)
    if regions[0] and not prod(x):
        call.fail(f"{call.op} of nothing", "inputs", 0)
    return regions[0]


def _roi_align(call: OpCall) -> list[TensorType]:
    count, given = _check_regions(call, 4), call.attributes
    needs_dtype(call, 2, ("int64",))
    if call.input(2).shape != (count,):
        call.fail(f"RoiAlign: {list(call.input(2).shape)} batch indices for {count} regions", "inputs", 2)
    sizes = (given["output_height"], given["output_width"])
    if min(sizes) < 1 or given["sampling_ratio"] < 0:
        call.fail(f"RoiAlign: an output of {list(sizes)}", "attributes")
    return [like(call.input(0), (count, call.input(0).shape[1], *sizes))]


def _max_roi_pool(call: OpCall) -> list[TensorType]:
    count, sizes = _check_regions(call, 5), call.attributes["pooled_shape"]
    if len(sizes) != 2 or min(sizes) < 1:
        call.fail(f"MaxRoiPool: a pooled_shape of {list(sizes)}", "attributes", "pooled_shape")
    return [like(call.input(0), (count, call.input(0).shape[1], *sizes))]


def _deform_conv(call: OpCall) -> list[TensorType]:
    dtype = same_dtype(call, 0, 1, 2, 3, 4)
    x, w, offset = (call.input(index).shape for index in range(3))
    group, offset_group = call.attributes["group"], call.attributes["offset_group"]
    if len(x) < 3 or len(w) != len(x):
        call.fail(f"DeformConv: weight of shape {list(w)} for input of shape {list(x)}", "inputs", 1)
    if min(group, offset_group) < 1 or x[1] != w[1] * group or w[0] % group or x[1] % offset_group:
        call.fail(f"DeformConv: {x[1]} channels, weight {list(w)}, groups {group} and {offset_group}", "attributes")
    kernel = call.attributes.get("kernel_shape")
    if kernel is not None and tuple(kernel) != w[2:]:
        call.fail(f"DeformConv: kernel_shape {list(kernel)}, weight {list(w)}", "attributes", "kernel_shape")
    output, taps = conv_window(call).output, prod(w[2:])
    bias, mask = call.optional(3), call.optional(4)
    if bias is not None and bias.shape != w[:1]:
        call.fail(f"DeformConv: bias of shape {list(bias.shape)} for {w[0]} filters", "inputs", 3)
    for index, shape, each in ((2, offset, taps * len(output)), (4, mask.shape if mask else None, taps)):
        if shape is not None and shape != (x[0], offset_group * each, *output):
            call.fail(f"DeformConv: input {index} has shape {list(shape)}", "inputs", index)
    return [TensorType(dtype, (x[0], w[0], *output))]


_DEFORMED = {name: spec for name, spec in WINDOW_ATTRIBUTES.items() if name != "auto_pad"}
register(
    OpSchema(
        "GridSample",
        "sampling",
        (2, 2),
        _grid_sample,
        dtypes=frozenset(DTYPES) - {"float8_e4m3fn", "float8_e5m2"},
        attributes={
            "align_corners": Attribute("int", 0),
            "mode": Attribute("string", "linear", choices=("linear", "nearest", "cubic", "bilinear", "bicubic")),
            "padding_mode": Attribute("string", "zeros", choices=("zeros", "border", "reflection")),
        },
        flops=lambda call: call.outputs[0].size * 2 * 4 ** (len(call.input(0).shape) - 2),
    ),
    OpSchema(
        "AffineGrid",
        "sampling",
        (2, 2),
        _affine_grid,
        dtypes=WIDE_FLOATS,
        attributes={"align_corners": Attribute("int", 0)},
        host_inputs=frozenset({1}),
        flops=lambda call: call.outputs[0].size * 2 * call.outputs[0].shape[-1],
    ),
    OpSchema(
        "RoiAlign",
        "sampling",
        (3, 3),
        _roi_align,
        dtypes=WIDE_FLOATS,
        attributes={
            "coordinate_transformation_mode": Attribute(
                "string", "half_pixel", choices=("half_pixel", "output_half_pixel")
            ),
            "mode": Attribute("string", "avg", choices=("avg", "max")),
            "output_height": Attribute("int", 1),
            "output_width": Attribute("int", 1),
            "sampling_ratio": Attribute("int", 0),
            "spatial_scale": Attribute("float", 1.0),
        },
    ),
    OpSchema(
        "MaxRoiPool",
        "sampling",
        (2, 2),
        _max_roi_pool,
        dtypes=WIDE_FLOATS,
        attributes={"pooled_shape": Attribute("ints", required=True), "spatial_scale": Attribute("float", 1.0)},
    ),
    OpSchema(
        "DeformConv",
        "sampling",
        (3, 5),
        _deform_conv,
        dtypes=WIDE_FLOATS,
        attributes={**_DEFORMED, "group": Attribute("int", 1), "offset_group": Attribute("int", 1)},
        flops=lambda call: 2 * call.outputs[0].size * prod(call.input(1).shape[1:]),
    ),
)
