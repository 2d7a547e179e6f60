"""Resampling: Resize, and Upsample, its name before opset 10.

A resized axis is a filter moved along the input: output y reads at source coordinate x, from `first` taps beside
floor(x) on, with weights `filter((tap - x) · stretch)`. Axes are independent of each other.
"""

from __future__ import annotations

from math import floor, isclose, isfinite

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.shapes import Shape, counted_axes, like, needs_dtype
from kgrun.graphs.records import dataclass

_TRANSFORMS = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
    "tf_half_pixel_for_nn",  # of opset 11 alone
)
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True, slots=True)
class ResizedAxis:
    """One axis that changes.

    Attributes:
        input, output: its sizes.
        scale: output size by input size, before that was rounded.
        start, end: of the region of interest, as parts of the axis.
    """

    axis: int
    input: int
    output: int
    scale: float
    start: float = 0.0
    end: float = 1.0


@dataclass(frozen=True, slots=True)
class Rules:
    """How a Resize reads: `mode` is nearest, linear or cubic; see ONNX for the rest."""

    mode: str
    transform: str
    rounding: str
    cubic: float
    antialias: bool
    exclude_outside: bool
    outside: float

    def stretch(self, scale: float) -> float:
        """How far the filter is stretched: below 1 where antialiasing widens it."""
        return min(scale, 1.0) if self.antialias else 1.0

    def taps(self, scale: float) -> tuple[int, int]:
        """The first tap beside floor(x), and how many there are."""
        if self.mode == "nearest":
            return 0, 1
        first = floor((-1 if self.mode == "linear" else -2) / self.stretch(scale)) + 1
        return first, 2 - 2 * first


@dataclass(frozen=True, slots=True)
class Coordinates:
    """Output y reads at source coordinate (y + before) · step / divisor + after; ONNX's formulas are all of this kind.

    It is computed in this order, and in float32 where the nearest element is read: a coordinate that is whole, or half,
    would be rounded to the wrong side else.
    """

    before: float = 0.0
    step: float = 1.0
    divisor: float = 1.0
    after: float = 0.0


def resize_rules(call: OpCall) -> Rules:
    """The rules of a Resize; Upsample maps y to y / scale and rounds down."""
    given = call.attributes
    if call.op == "Upsample":
        return Rules(given["mode"], "asymmetric", "floor", -0.75, False, False, 0.0)
    return Rules(
        mode=given["mode"],
        transform=given["coordinate_transformation_mode"],
        rounding=given["nearest_mode"],
        cubic=given["cubic_coeff_a"],
        antialias=bool(given["antialias"]),
        exclude_outside=bool(given["exclude_outside"]),
        outside=given["extrapolation_value"],
    )


def source_coordinates(rules: Rules, axis: ResizedAxis) -> Coordinates:
    """Where the outputs along an axis read."""
    n, size, scale = axis.input, axis.output, axis.scale
    match rules.transform:
        case "align_corners":
            width = scale * n  # not rounded: what ONNX's tests expect
            return Coordinates(step=n - 1, divisor=width - 1) if width != 1 else Coordinates(step=0)
        case "asymmetric":
            return Coordinates(divisor=scale)
        case "tf_half_pixel_for_nn":
            return Coordinates(before=0.5, divisor=scale)
        case "tf_crop_and_resize":
            if size == 1:
                return Coordinates(step=0, after=0.5 * (axis.start + axis.end) * (n - 1))
            return Coordinates(step=(axis.end - axis.start) * (n - 1), divisor=size - 1, after=axis.start * (n - 1))
        case "pytorch_half_pixel" if size == 1:
            return Coordinates(step=0)
        case "half_pixel_symmetric":
            offset = n / 2 * (1 - size / (scale * n))
            return Coordinates(before=0.5, divisor=scale, after=offset - 0.5)
    return Coordinates(before=0.5, divisor=scale, after=-0.5)


def resized_axes(call: OpCall) -> tuple[ResizedAxis, ...]:
    """The axes that change, ascending; InferenceError for sizes and scales that do not fit."""
    shape = call.input(0).shape
    rank = len(shape)
    axes = counted_axes(call, call.attributes.get("axes", range(rank)), rank, len(call.inputs))
    region = _numbers(call, 1) if call.op == "Resize" else ()
    if resize_rules(call).transform != "tf_crop_and_resize" or not region:
        region = (0.0,) * len(axes) + (1.0,) * len(axes)
    if len(region) != 2 * len(axes):
        call.fail(f"Resize: a region of {len(region)} numbers for {len(axes)} axes", "inputs", 1)
    outputs, scales = _extents(call, shape, axes)
    found = []
    for index, (axis, output, scale) in enumerate(zip(axes, outputs, scales, strict=True)):
        row = ResizedAxis(axis, shape[axis], output, scale, region[index], region[index + len(axes)])
        same = output == row.input and isclose(scale, 1.0)
        if not (same and isclose(row.start, 0.0, abs_tol=1e-9) and isclose(row.end, 1.0)):
            found.append(row)
    return tuple(sorted(found, key=lambda row: row.axis))


def _extents(call: OpCall, shape: Shape, axes: Shape) -> tuple[list[int], list[float]]:
    """Output size and scale of each of `axes`."""
    scales = _numbers(call, 1 if call.op == "Upsample" else 2) or call.attributes.get("scales", ())
    sizes = call.ints(3) or () if call.op == "Resize" else ()
    if bool(scales) == bool(sizes) and axes:
        call.fail(f"{call.op} needs either scales or sizes", "inputs")
    given = scales or sizes
    if len(given) != len(axes) or min(given, default=1) <= 0:
        call.fail(f"{call.op}: {list(given)} for {len(axes)} axes", "inputs", 2 if scales else 3)
    if scales:
        return [floor(shape[axis] * scale) for axis, scale in zip(axes, scales, strict=True)], list(scales)
    if any(shape[axis] == 0 for axis in axes):
        call.fail("Resize: an empty axis has no scale", "inputs", 0)
    ratios = [size / shape[axis] for axis, size in zip(axes, sizes, strict=True)]
    policy = call.attributes.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch" or not ratios:
        return list(sizes), ratios
    common = min(ratios) if policy == "not_larger" else max(ratios)
    return [floor(common * shape[axis] + 0.5) for axis in axes], [common] * len(axes)


def _numbers(call: OpCall, index: int) -> tuple[float, ...]:
    """The known numbers of a host input, () where it is absent or empty."""
    found = call.optional(index)
    if found is None or found.size == 0:
        return ()
    numbers = tuple(float(item) for item in call.known(index))
    if not all(map(isfinite, numbers)):
        call.fail(f"{call.op}: {list(numbers)} are not all finite", "inputs", index)
    return numbers


def _resize(call: OpCall) -> list[TensorType]:
    source, rules = call.input(0), resize_rules(call)
    needs_dtype(call, 1, ("float16", "bfloat16", "float32", "float64"))
    needs_dtype(call, 2, ("float32",))
    needs_dtype(call, 3, ("int64",))
    shape = list(source.shape)
    for row in resized_axes(call):
        if row.input == 0 and row.output:
            call.fail(f"{call.op}: axis {row.axis} is empty", "inputs", 0)
        shape[row.axis] = row.output
    if rules.mode != "nearest" and source.dtype == "bool":
        call.fail(f"{call.op}: {rules.mode} of bool", "attributes", "mode")
    return [like(source, tuple(shape))]


_MOVED = frozenset(DTYPES) - {"float8_e4m3fn", "float8_e5m2"}
register(
    OpSchema(
        "Resize",
        "resampling",
        (1, 4),
        _resize,
        dtypes=_MOVED,
        attributes={
            "antialias": Attribute("int", 0),
            "axes": Attribute("ints"),
            "coordinate_transformation_mode": Attribute("string", "half_pixel", choices=_TRANSFORMS),
            "cubic_coeff_a": Attribute("float", -0.75),
            "exclude_outside": Attribute("int", 0),
            "extrapolation_value": Attribute("float", 0.0),
            "keep_aspect_ratio_policy": Attribute(
                "string", "stretch", choices=("stretch", "not_larger", "not_smaller")
            ),
            "mode": Attribute("string", "nearest", choices=("nearest", "linear", "cubic")),
            "nearest_mode": Attribute("string", "round_prefer_floor", choices=_ROUNDINGS),
        },
        host_inputs=frozenset({1, 2, 3}),
    ),
    OpSchema(
        "Upsample",
        "resampling",
        (1, 2),
        _resize,
        dtypes=_MOVED - {"bfloat16"},
        attributes={
            "mode": Attribute("string", "nearest", choices=("nearest", "linear")),
            "scales": Attribute("floats"),
        },
        host_inputs=frozenset({1}),
    ),
)
