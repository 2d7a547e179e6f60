"""Windows turned round in numpy: ConvTranspose as one product and a sum of shifted taps, Col2Im, MaxUnpool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.errors import GraphError
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.transposed import column_window, transposed_window, unpooled_shape
from kgrun.graphs.operators.windows import Window
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.common import widened
from kgrun.runtime.kernels.cpu.sliding import add_bias, tap_slices

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def _spread(columns: Array, window: Window, out: Array) -> None:
    """Add columns [lead …, taps, places …] to `out` [lead …, image …] where the window's taps lie."""
    lead = columns.ndim - 1 - len(window.input)
    # Everything the taps reach, padding included; the image is the middle of it.
    reach = [
        max((size - 1) * stride + (width - 1) * dilation + 1, before + whole)
        for size, stride, width, dilation, before, whole in zip(
            window.input, window.strides, window.kernel, window.dilations, window.begin, window.output, strict=True
        )
    ]
    total = np.zeros((*columns.shape[:lead], *reach), columns.dtype)
    every = (slice(None),) * lead
    turned = replace(window, input=tuple(reach), output=window.input)
    for tap, place in enumerate(tap_slices(turned)):
        met = total[(*every, *place)]
        met += columns[(*every, slice(tap, tap + 1))].reshape(met.shape)
    middle = tuple(slice(before, before + size) for before, size in zip(window.begin, window.output, strict=True))
    np.copyto(out, total[(*every, *middle)], casting="unsafe")


@on_cpu("ConvTranspose")
def conv_transpose(call: OpCall) -> HostFunction:
    """The gradient of a convolution by its input: every input place adds its filters to what they cover."""
    window, group = transposed_window(call), call.attributes["group"]
    taps, places = prod(window.kernel), prod(window.input)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x, weight = widened(inputs[0]), widened(inputs[1])
        bias = widened(inputs[2]) if len(inputs) > 2 and inputs[2] is not None else None
        if outputs[0].size == 0:
            return
        batch, channels = x.shape[0], x.shape[1] // group
        matrices = weight.reshape(group, channels, weight.shape[1] * taps).transpose(0, 2, 1)
        out = outputs[0] if outputs[0].dtype == x.dtype else np.empty(outputs[0].shape, x.dtype)
        for image in range(batch):  # one image at a time, so that the columns stay small
            columns = np.matmul(matrices, x[image].reshape(group, channels, places))
            _spread(columns.reshape(weight.shape[1] * group, taps, *window.input), window, out[image])
        add_bias(out, bias)
        if out is not outputs[0]:
            np.copyto(outputs[0], out, casting="unsafe")

    return run


@on_cpu("Col2Im")
def col2im(call: OpCall) -> HostFunction:
    """Columns [batch, channels · taps, places] added up to images."""
    window = column_window(call)
    taps = prod(window.kernel)
    whole = DTYPES[call.input(0).dtype].kind == "bool"

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        if outputs[0].size == 0:
            return
        x = widened(inputs[0])
        shape = (x.shape[0], x.shape[1] // taps, taps, *window.input)
        _spread((x.astype(np.int32) if whole else x).reshape(shape), window, outputs[0])

    return run


@on_cpu("MaxUnpool")
def max_unpool(call: OpCall) -> HostFunction:
    """Elements put where their indices say, zeros elsewhere; GraphError for an index outside."""
    inner = unpooled_shape(call)
    corner, size = tuple(slice(n) for n in inner), prod(inner)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x, indices = inputs[0], inputs[1]
        assert x is not None
        assert indices is not None
        wrong = indices[(indices < 0) | (indices >= size)]
        if wrong.size:
            message = f"{call.node}: MaxUnpool's index {wrong.flat[0]} is outside [0, {size - 1}]"
            raise GraphError(message, code="KG333")
        flat = np.zeros(size, x.dtype)
        flat[indices.reshape(-1)] = x.reshape(-1)
        outputs[0].fill(0)
        outputs[0][corner] = flat.reshape(inner)

    return run
