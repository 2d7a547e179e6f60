"""Sliding windows of convolution and pooling: pads, strides and output sizes from ONNX's attributes."""

from __future__ import annotations

from kgrun.graphs.operators.base import Attribute, OpCall
from kgrun.graphs.operators.shapes import Shape
from kgrun.graphs.records import dataclass

WINDOW_ATTRIBUTES = {
    "auto_pad": Attribute("string", "NOTSET", choices=("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")),
    "dilations": Attribute("ints"),
    "kernel_shape": Attribute("ints"),
    "pads": Attribute("ints"),
    "strides": Attribute("ints"),
}
POOL_ATTRIBUTES = {
    **WINDOW_ATTRIBUTES,
    "kernel_shape": Attribute("ints", required=True),
    "ceil_mode": Attribute("int", 0),
}


@dataclass(frozen=True, slots=True)
class Window:
    """A window over the spatial axes, one entry an axis.

    Attributes:
        begin, end: elements of padding before and after the input.
        output: number of places the window takes.
    """

    input: Shape
    kernel: Shape
    strides: Shape
    dilations: Shape
    begin: Shape
    end: Shape
    output: Shape

    @property
    def reach(self) -> Shape:
        """Extent of the dilated window."""
        return tuple((size - 1) * step + 1 for size, step in zip(self.kernel, self.dilations, strict=True))

    @property
    def overhang(self) -> Shape:
        """Elements that the last window reaches beyond input and padding (ceil_mode); 0 where it does not."""
        rows = zip(self.output, self.strides, self.reach, self.input, self.begin, self.end, strict=True)
        return tuple(max((o - 1) * s + r - (i + b + e), 0) for o, s, r, i, b, e in rows)


def window_of(call: OpCall, spatial: Shape, kernel: Shape) -> Window:
    """The window of a Conv or pooling call over `spatial`; InferenceError for attributes that do not fit."""
    rank = len(spatial)
    strides = per_axis(call, "strides", rank)
    dilations = per_axis(call, "dilations", rank)
    if len(kernel) != rank or min(kernel, default=1) < 1:
        call.fail(f"{call.op}: kernel_shape {list(kernel)} for {rank} spatial axes", "attributes", "kernel_shape")
    begin, end = _pads(call, spatial, kernel, strides, dilations)
    output = []
    for axis in range(rank):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        room = spatial[axis] + begin[axis] + end[axis] - reach
        if room < 0:
            call.fail(f"{call.op}: a window of {reach} does not fit axis {axis} of size {spatial[axis]}", "inputs", 0)
        places = room // strides[axis] + 1
        # The extra place of ceil_mode counts only when its window starts inside the input or the padding before it.
        if (
            call.attributes.get("ceil_mode")
            and room % strides[axis]
            and places * strides[axis] < spatial[axis] + begin[axis]
        ):
            places += 1
        output.append(places)
    return Window(spatial, kernel, strides, dilations, begin, end, tuple(output))


def per_axis(call: OpCall, name: str, rank: int) -> Shape:
    """Attribute `name`, one positive number a spatial axis; ones where it is not given."""
    found = call.attributes.get(name) or (1,) * rank
    if len(found) != rank or min(found, default=1) < 1:
        call.fail(f"{call.op}: {name} {list(found)} for {rank} spatial axes", "attributes", name)
    return tuple(found)


def _pads(call: OpCall, spatial: Shape, kernel: Shape, strides: Shape, dilations: Shape) -> tuple[Shape, Shape]:
    rank, auto = len(spatial), call.attributes.get("auto_pad", "NOTSET")
    if auto == "NOTSET":
        pads = call.attributes.get("pads") or (0,) * (2 * rank)
        if len(pads) != 2 * rank or min(pads, default=0) < 0:
            call.fail(f"{call.op}: pads {list(pads)} for {rank} spatial axes", "attributes", "pads")
        return tuple(pads[:rank]), tuple(pads[rank:])
    if auto == "VALID":
        return (0,) * rank, (0,) * rank
    totals = []
    for size, width, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        places = -(-size // stride)
        totals.append(max((places - 1) * stride + (width - 1) * dilation + 1 - size, 0))
    less, more = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
    return (less, more) if auto == "SAME_UPPER" else (more, less)
