"""Windows turned round: ConvTranspose, Col2Im and MaxUnpool, which spread elements over the places a window covers.

Their `Window` has the small side as input and the large one as output: output place y meets tap t of the window at
input place x where x · stride = y + begin - t · dilation.
"""

from __future__ import annotations

from math import prod

from kgrun.graphs.dtypes import DTYPES, WIDE_FLOATS
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.shapes import Shape, needs_dtype, same_dtype
from kgrun.graphs.operators.windows import WINDOW_ATTRIBUTES, Window, per_axis


def transposed_window(call: OpCall) -> Window:
    """The window of a ConvTranspose; its kernel comes from the weight's shape."""
    spatial, kernel = call.input(0).shape[2:], call.input(1).shape[2:]
    rank, auto = len(spatial), call.attributes["auto_pad"]
    strides, dilations = per_axis(call, "strides", rank), per_axis(call, "dilations", rank)
    more = call.attributes.get("output_padding") or (0,) * rank
    wanted = call.attributes.get("output_shape")
    if min(kernel, default=1) < 1 or (wanted is not None and len(wanted) not in (rank, rank + 2)):
        call.fail(f"ConvTranspose: kernel {list(kernel)}, output_shape {wanted and list(wanted)}", "attributes")
    if len(more) != rank or min(more, default=0) < 0:
        call.fail(f"ConvTranspose: output_padding {list(more)} for {rank} axes", "attributes", "output_padding")
    reach = [
        (size - 1) * stride + (width - 1) * dilation + 1 + extra
        for size, stride, width, dilation, extra in zip(spatial, strides, kernel, dilations, more, strict=True)
    ]
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(size * stride for size, stride in zip(spatial, strides, strict=True))
    if wanted is None:
        pads = (call.attributes.get("pads") if auto == "NOTSET" else None) or (0,) * (2 * rank)
        if len(pads) != 2 * rank or min(pads, default=0) < 0:
            call.fail(f"ConvTranspose: pads {list(pads)} for {rank} spatial axes", "attributes", "pads")
        begin, end = tuple(pads[:rank]), tuple(pads[rank:])
        output = tuple(size - before - after for size, before, after in zip(reach, begin, end, strict=True))
    else:
        # A wanted shape says how much is cut off; what lies beyond all taps is zero.
        output = tuple(wanted)[-rank:]
        totals = [max(size - given, 0) for size, given in zip(reach, output, strict=True)]
        less, greater = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
        begin, end = (less, greater) if auto == "SAME_UPPER" else (greater, less)
    if len(output) != rank or min(output, default=1) < 1:
        call.fail(f"ConvTranspose: pads or output_shape leave {list(output)} of the output", "attributes")
    return Window(spatial, kernel, strides, dilations, begin, end, output)


def _conv_transpose(call: OpCall) -> list[TensorType]:
    dtype = same_dtype(call, 0, 1, 2)
    x, w, bias, group = call.input(0).shape, call.input(1).shape, call.optional(2), call.attributes["group"]
    if len(x) < 3 or len(w) != len(x):
        call.fail(f"ConvTranspose: weight of shape {list(w)} for input of shape {list(x)}", "inputs", 1)
    if group < 1 or x[1] != w[0] or w[0] % group:
        call.fail(f"ConvTranspose: {x[1]} channels, weight {list(w)}, group {group} do not fit", "attributes", "group")
    kernel = call.attributes.get("kernel_shape")
    if kernel is not None and tuple(kernel) != w[2:]:
        call.fail(f"ConvTranspose: kernel_shape {list(kernel)}, weight {list(w)}", "attributes", "kernel_shape")
    if min(x[2:]) < 1:
        call.fail("ConvTranspose of nothing", "inputs", 0)
    filters = w[1] * group
    if bias is not None and bias.shape != (filters,):
        call.fail(f"ConvTranspose: bias of shape {list(bias.shape)} for {filters} filters", "inputs", 2)
    return [TensorType(dtype, (x[0], filters, *transposed_window(call).output))]


def column_window(call: OpCall) -> Window:
    """The window whose columns a Col2Im adds up to an image."""
    image, kernel = call.ints(1) or (), call.ints(2) or ()
    rank = len(image)
    strides, dilations = per_axis(call, "strides", rank), per_axis(call, "dilations", rank)
    pads = call.attributes.get("pads") or (0,) * (2 * rank)
    if rank < 1 or len(kernel) != rank or len(pads) != 2 * rank or min((*image, *kernel, *pads)) < 0:
        call.fail(f"Col2Im: image {list(image)}, block {list(kernel)}, pads {list(pads)} do not fit", "inputs", 1)
    begin, end = tuple(pads[:rank]), tuple(pads[rank:])
    rooms = [
        size + before + after - (width - 1) * dilation - 1
        for size, before, after, width, dilation in zip(image, begin, end, kernel, dilations, strict=True)
    ]
    if min(rooms) < 0:
        call.fail(f"Col2Im: a block of {list(kernel)} does not fit the image {list(image)}", "inputs", 2)
    places = tuple(room // stride + 1 for room, stride in zip(rooms, strides, strict=True))
    return Window(places, kernel, strides, dilations, begin, end, image)


def _col2im(call: OpCall) -> list[TensorType]:
    needs_dtype(call, 1, ("int64",))
    needs_dtype(call, 2, ("int64",))
    source, window = call.input(0), column_window(call)
    taps, places = prod(window.kernel), prod(window.input)
    if len(source.shape) != 3 or source.shape[1] % max(taps, 1) or source.shape[2] != places:
        call.fail(f"Col2Im: {list(source.shape)} is no [batch, channels · {taps}, {places}]", "inputs", 0)
    return [TensorType(source.dtype, (source.shape[0], source.shape[1] // taps, *window.output))]


def unpooled_shape(call: OpCall) -> Shape:
    """The shape that MaxUnpool's indices count in: what was pooled, as far as the attributes tell."""
    spatial, kernel = call.input(0).shape[2:], call.attributes["kernel_shape"]
    rank = len(spatial)
    strides, pads = per_axis(call, "strides", rank), call.attributes.get("pads") or (0,) * (2 * rank)
    if len(kernel) != rank or len(pads) != 2 * rank:
        call.fail(f"MaxUnpool: kernel_shape {list(kernel)}, pads {list(pads)} for {rank} axes", "attributes")
    sizes = zip(spatial, strides, kernel, pads[:rank], pads[rank:], strict=True)
    return call.input(0).shape[:2] + tuple((n - 1) * s + k - b - e for n, s, k, b, e in sizes)


def _max_unpool(call: OpCall) -> list[TensorType]:
    needs_dtype(call, 1, ("int64",))
    needs_dtype(call, 2, ("int64",))
    source, wanted = call.input(0), call.ints(2)
    if len(source.shape) < 3 or call.input(1).shape != source.shape:
        call.fail(f"MaxUnpool: {list(source.shape)} with indices {list(call.input(1).shape)}", "inputs", 1)
    inner = unpooled_shape(call)
    shape = inner if wanted is None else wanted
    if len(shape) != len(inner) or any(size < own for size, own in zip(shape, inner, strict=True)) or min(inner) < 0:
        call.fail(f"MaxUnpool: {list(inner)} does not fit into {list(shape)}", "inputs", 2)
    return [TensorType(source.dtype, tuple(shape))]


_MOVED = frozenset(DTYPES) - {"float8_e4m3fn", "float8_e5m2"}
_PADS = {name: Attribute("ints") for name in ("pads", "strides")}
register(
    OpSchema(
        "ConvTranspose",
        "transposed",
        (2, 3),
        _conv_transpose,
        dtypes=WIDE_FLOATS,
        attributes={
            **WINDOW_ATTRIBUTES,
            "group": Attribute("int", 1),
            "output_padding": Attribute("ints"),
            "output_shape": Attribute("ints"),
        },
        flops=lambda call: 2 * call.input(0).size * prod(call.input(1).shape[1:]),
    ),
    OpSchema(
        "Col2Im",
        "transposed",
        (3, 3),
        _col2im,
        dtypes=_MOVED,
        attributes={**_PADS, "dilations": Attribute("ints")},
        host_inputs=frozenset({1, 2}),
        flops=lambda call: call.input(0).size,
    ),
    OpSchema(
        "MaxUnpool",
        "transposed",
        (2, 3),
        _max_unpool,
        dtypes=WIDE_FLOATS,
        attributes={**_PADS, "kernel_shape": Attribute("ints", required=True)},
        host_inputs=frozenset({2}),
    ),
)
