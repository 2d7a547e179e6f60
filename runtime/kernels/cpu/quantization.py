"""Quantised operators in numpy; integer products go through BLAS in a float that holds every sum exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.data import numpy_dtype
from kgrun.graphs.dtypes import DTYPES
from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.quantization import (
    FLOAT8,
    conv_operands,
    division_dtype,
    matmul_operands,
    quantized_window,
    scale_steps,
)
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.common import given
from kgrun.runtime.kernels.cpu.convolution import method
from kgrun.runtime.kernels.cpu.elementwise import LARGEST

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_LARGEST_PRODUCT = 255 * 255  # of two bytes without their zero points
_SHARE = 2**24 // _LARGEST_PRODUCT  # products whose sum float32 holds exactly
_NEAR = 1 << 17  # elements that stay in the cache while a few rows are multiplied with them


def _spread(call: OpCall) -> Callable[[Array | None], Array | None]:
    """A function that brings a scale or zero point to a shape that broadcasts against input 0."""
    size, share, _, steps = scale_steps(call)
    shape = call.input(0).shape
    if steps == (0, 0, 0):
        return lambda found: None if found is None else found.reshape(())
    axis = call.axis(call.attributes["axis"], len(shape))
    if not call.attributes["block_size"]:
        return lambda found: None if found is None else found.reshape((size,) + (1,) * (len(shape) - axis - 1))
    places = np.arange(size) // share
    return lambda found: None if found is None else found.take(places, axis)


@on_cpu("QuantizeLinear")
def quantize(call: OpCall) -> HostFunction:
    """x / scale, rounded to the nearest even integer, plus the zero point, limited to the type's range."""
    spread, to = _spread(call), call.outputs[0].dtype
    work = numpy_dtype(division_dtype(call))
    limits, largest = DTYPES[to].limits, LARGEST.get(to) if call.attributes["saturate"] else None

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x, scale, zero = inputs[0], spread(inputs[1]), spread(given(inputs, 2))
        assert x is not None
        assert scale is not None
        with np.errstate(all="ignore"):
            result = np.asarray(x.astype(work) / scale.astype(work))
            if result.dtype != np.float64:
                result = result.astype(np.float32)
            if limits is not None:
                np.rint(result, out=result)
                if zero is not None:
                    result += zero.astype(result.dtype)
                np.clip(result, *limits, out=result)
            elif largest is not None:
                np.clip(result, -largest, largest, out=result)
            np.copyto(outputs[0], result, casting="unsafe")

    return run


@on_cpu("DequantizeLinear")
def dequantize(call: OpCall) -> HostFunction:
    """(x - zero point) · scale, in float32."""
    spread, shifted = _spread(call), call.input(0).dtype not in FLOAT8

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x, scale, zero = inputs[0], spread(inputs[1]), spread(given(inputs, 2))
        assert x is not None
        assert scale is not None
        result = x.astype(np.float32)
        if zero is not None and shifted:
            result = result - zero.astype(np.float32)
        with np.errstate(all="ignore"):
            np.copyto(outputs[0], result * scale.astype(np.float32), casting="unsafe")

    return run


@on_cpu("DynamicQuantizeLinear")
def dynamic_quantize(call: OpCall) -> HostFunction:
    """Bytes whose range is that of the elements and 0."""

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        x = inputs[0]
        assert x is not None
        high = np.float32(max(np.maximum.reduce(x, None, initial=0), 0))
        low = np.float32(min(np.minimum.reduce(x, None, initial=0), 0))
        scale = np.float32(1 if high == low else high - low) / np.float32(255)
        zero = np.rint(np.clip(-low / scale, 0, 255))
        result = np.asarray(x / scale)
        np.rint(result, out=result)
        result += zero
        np.copyto(outputs[0], np.clip(result, 0, 255, out=result), casting="unsafe")
        outputs[1][...] = scale
        outputs[2][...] = zero

    return run


def _exact(terms: int) -> Any:
    """The float that holds a sum of `terms` products of bytes exactly."""
    return np.float32 if terms * _LARGEST_PRODUCT < 2**24 else np.float64


def _shifted(array: Array | None, zero: Array | None, work: Any) -> Array:
    assert array is not None
    wide: Array = array.astype(work)
    if zero is not None and zero.any():
        wide -= zero.astype(work)
    return wide


def _along(array: Array | None, rank: int, axis: int) -> Array | None:
    """A parameter of a matrix, one element or one a row (axis -2) or column (-1), ready to broadcast."""
    if array is None or array.size == 1:
        return None if array is None else array.reshape(())
    if array.ndim > 1 or rank < 2:
        return array
    return array.reshape(-1, 1) if axis == -2 else array


def _rescaled(total: Array, factor: Array, zero: Array, out: Array) -> None:
    """total · factor, rounded, plus the zero point, into the range of `out`; float8 is not rounded first."""
    result = total.astype(np.float32) * factor
    limits = DTYPES[out.dtype.name].limits
    if limits is None:
        largest = LARGEST[out.dtype.name]
        result = np.clip(result + zero.astype(np.float32), -largest, largest)
    else:
        result = np.clip(np.rint(result) + zero.astype(np.float32), *limits)
    np.copyto(out, result, casting="unsafe")


def _product(a: Array, a_zero: Array | None, b: Array, b_zero: Array | None) -> Array:
    """The product of matrices of bytes without their zero points, exactly: float32 holds a share of each sum."""
    terms = a.shape[-1]
    if terms <= _SHARE or a.dtype.kind == "f" or a.dtype.name in FLOAT8:
        return np.asarray(np.matmul(_shifted(a, a_zero, np.float32), _shifted(b, b_zero, np.float32)))
    few = b.ndim == 2 and a.size <= 32 * terms
    # A part of b that stays in the cache, but not so small that adding up sums takes longer than reading it.
    share = min(_SHARE, max(_NEAR // max(b.shape[1], 1), a.size // terms * 8)) if few else _SHARE
    scratch = np.empty((share, b.shape[1]), np.float32) if few else None
    work = np.int32 if terms * _LARGEST_PRODUCT < 2**31 else np.int64
    total: Array | None = None
    for start in range(0, terms, share):
        part = slice(start, start + share)
        left, right = _shifted(a[..., part], a_zero, np.float32), b[..., part, :] if b.ndim > 1 else b[part]
        if scratch is not None:
            wide = scratch[: right.shape[0]]
            np.copyto(wide, right)
        else:
            wide = _shifted(right, b_zero, np.float32)
        sums = np.asarray(np.matmul(left, wide)).astype(work)
        total = sums if total is None else np.add(total, sums, out=total if total.ndim else None)
    total = np.asarray(total)
    if scratch is not None and b_zero is not None and b_zero.any():  # sums of a less, instead of every element of b
        rows = _shifted(a, a_zero, np.float64).sum(-1, keepdims=True)
        total -= (rows * b_zero.reshape(-1)).astype(work)
    return total


@on_cpu("MatMulInteger", "QLinearMatMul")
def matmul(call: OpCall) -> HostFunction:
    """The product of matrices without their zero points; QLinearMatMul rescales it."""
    first, second = matmul_operands(call)
    a, b = call.input(first), call.input(second)
    linear = call.op == "QLinearMatMul"
    zeros = (2, 5) if linear else (2, 3)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        left, right = inputs[first], inputs[second]
        assert left is not None
        assert right is not None
        left_zero = _along(given(inputs, zeros[0]), len(a.shape), -2)
        right_zero = _along(given(inputs, zeros[1]), len(b.shape), -1)
        total = _product(left, left_zero, right, right_zero)
        if not linear:
            np.copyto(outputs[0], total.astype(np.int64), casting="unsafe")
            return
        rank = len(a.shape)
        scales = [_along(inputs[position], rank, axis) for position, axis in ((1, -2), (4, -1), (6, -2))]
        x, w, y = (np.asarray(scale).astype(np.float32) for scale in scales)
        zero = np.asarray(_along(inputs[7], rank, -2))
        _rescaled(total, x * w / y, zero, outputs[0])

    return run


@on_cpu("ConvInteger", "QLinearConv")
def conv(call: OpCall) -> HostFunction:
    """A convolution of bytes without their zero points, padded with them; QLinearConv adds a bias and rescales."""
    first, second = conv_operands(call)
    linear, weight = call.op == "QLinearConv", call.input(second).shape
    group, taps = call.attributes["group"], prod(weight[2:])
    work = np.float32 if group == 1 and taps <= _SHARE else _exact(prod(weight[1:]))
    share = max(1, _SHARE // max(taps, 1)) if group == 1 else weight[1]  # channels whose sums float32 holds exactly
    apply = method(weight, quantized_window(call), group, call.input(0).shape[0])
    spatial = (1,) * (len(weight) - 2)

    def by_filter(array: Array | None) -> Array | None:
        return None if array is None or array.size == 1 else array.reshape(-1, 1, *spatial)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        zero, each = given(inputs, 2), given(inputs, 5 if linear else 3)
        x = _shifted(inputs[first], None if zero is None else zero.reshape(()), work)
        filtered = by_filter(each)
        w = _shifted(inputs[second], each.reshape(()) if each is not None and filtered is None else filtered, work)
        total = np.zeros(outputs[0].shape, work)
        if total.size and share >= weight[1]:
            apply(x, w, None, total)
        elif total.size:
            part, total = total, total.astype(np.float64)
            for start in range(0, weight[1], share):
                apply(x[:, start : start + share], w[:, start : start + share], None, part)
                total += part
        if not linear:
            np.copyto(outputs[0], total.astype(np.int64), casting="unsafe")
            return
        bias, scale = given(inputs, 8), np.asarray(inputs[4])
        whole = total.astype(np.int64)
        if bias is not None:
            whole += bias.reshape(-1, *spatial)
        scale = scale.reshape(()) if scale.size == 1 else scale.reshape(-1, *spatial)
        factor = np.asarray(inputs[1]).reshape(()) * scale / np.asarray(inputs[6]).reshape(())
        _rescaled(whole, factor, np.asarray(inputs[7]).reshape(()), outputs[0])

    return run
