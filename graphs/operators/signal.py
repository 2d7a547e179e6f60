"""Signals: Fourier transforms of whole axes and of frames, windows, and the mel filter bank."""

from __future__ import annotations

import math

from kgrun.graphs.dtypes import NUMBERS, ONNX_DTYPES, WIDE_FLOATS
from kgrun.graphs.operators.base import Attribute, OpCall, OpSchema, TensorType, register
from kgrun.graphs.operators.known import LIMIT, with_value
from kgrun.graphs.operators.shapes import needs_dtype, same_dtype
from kgrun.graphs.records import dataclass

_INDEX = frozenset({"int32", "int64"})


@dataclass(frozen=True, slots=True)
class Transform:
    """A Fourier transform of length `length` of rows of a signal [outer, size, inner, 1 or 2].

    A signal of an STFT may lack its last axis: it is of real numbers then.

    Attributes:
        count: elements of a frame that are there; more are zeros.
        bins: results of a frame.
        frames, step: frames of a row, and elements from one to the next.
        real: whether results are real numbers: the inverse of a one-sided transform.
    """

    length: int
    size: int
    inner: int
    outer: int
    count: int
    bins: int
    inverse: bool = False
    real: bool = False
    frames: int = 1
    step: int = 0


def dft_axis(call: OpCall) -> int:
    """The axis of a DFT, counted from the front; the last one holds real and imaginary part."""
    rank, given = len(call.input(0).shape), call.ints(2)
    axis = given[0] if given else call.attributes.get("axis", -2)
    found = call.axis(axis, rank)
    if found == rank - 1:
        call.fail(f"DFT: axis {axis} holds real and imaginary part", "inputs", 2)
    return found


def transform_of(call: OpCall) -> Transform:
    """What a DFT or STFT computes."""
    shape = call.input(0).shape
    if call.op == "STFT":
        step, length = (call.ints(1) or (0,))[0], call.ints(3)
        window = call.optional(2)
        n = length[0] if length else window.shape[0] if window is not None else shape[1]
        if step < 1 or not 1 <= n <= shape[1]:
            call.fail(f"STFT: frames of {n}, {step} apart, in {shape[1]} elements", "inputs", 1)
        bins = n // 2 + 1 if call.attributes["onesided"] else n
        return Transform(n, shape[1], 1, shape[0], n, bins, frames=(shape[1] - n) // step + 1, step=step)
    axis, given = dft_axis(call), call.ints(1)
    inverse, onesided = bool(call.attributes["inverse"]), bool(call.attributes["onesided"])
    size, real = shape[axis], inverse and onesided
    n = given[0] if given else 2 * (size - 1) if real else size
    if n < 1:
        call.fail(f"DFT of length {n}", "inputs", 1)
    bins = n // 2 + 1 if onesided and not inverse else n
    count = min(size, n // 2 + 1 if real else n)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 : -1])
    return Transform(n, size, inner, outer, count, bins, inverse, real)


def _dft(call: OpCall) -> list[TensorType]:
    needs_dtype(call, 1, _INDEX)
    needs_dtype(call, 2, ("int64",))
    source = call.input(0)
    if len(source.shape) < 2 or source.shape[-1] not in (1, 2):
        call.fail(f"DFT takes [signal …, 1 or 2], got {list(source.shape)}", "inputs", 0)
    axis, found = dft_axis(call), transform_of(call)
    inner = source.shape[axis + 1 : -1]
    return [TensorType(source.dtype, (*source.shape[:axis], found.bins, *inner, 1 if found.real else 2))]


def _stft(call: OpCall) -> list[TensorType]:
    dtype, source, window = same_dtype(call, 0, 2), call.input(0), call.optional(2)
    needs_dtype(call, 1, _INDEX)
    needs_dtype(call, 3, _INDEX)
    if len(source.shape) not in (2, 3) or source.shape[2:] not in ((), (1,), (2,)):
        call.fail(f"STFT takes [batch, signal] or [batch, signal, 1 or 2], got {list(source.shape)}", "inputs", 0)
    if window is not None and len(window.shape) != 1:
        call.fail(f"STFT: a window has one axis, not {list(window.shape)}", "inputs", 2)
    found = transform_of(call)
    if window is not None and window.shape != (found.length,):
        call.fail(f"STFT: a window {list(window.shape)} for frames of {found.length}", "inputs", 2)
    return [TensorType(dtype, (source.shape[0], found.frames, found.bins, 2))]


def made_dtype(call: OpCall) -> str:
    """The dtype that attribute output_datatype names."""
    given = call.attributes["output_datatype"]
    found = ONNX_DTYPES.get(given, "") if isinstance(given, int) else given
    if found not in NUMBERS:
        call.fail(f"{call.op} makes no {given}", "attributes", "output_datatype")
    return found


def window_terms(call: OpCall) -> tuple[int, int, tuple[float, float, float]]:
    """Size, period and factors a, b, c of a window a + b·cos(2πi/period) + c·cos(4πi/period)."""
    given = call.ints(0)
    if given is None or len(given) != 1 or given[0] < 0:
        call.fail(f"{call.op}: {given and list(given)} is no size", "inputs", 0)
    size = given[0]
    factors = {
        "HannWindow": (0.5, -0.5, 0.0),
        "HammingWindow": (25 / 46, 25 / 46 - 1, 0.0),
        "BlackmanWindow": (0.42, -0.5, 0.08),
    }
    return size, max(size if call.attributes["periodic"] else size - 1, 1), factors[call.op]


def _window(call: OpCall) -> list[TensorType]:
    size, period, (a, b, c) = window_terms(call)
    out = TensorType(made_dtype(call), (size,))
    if size > LIMIT:
        return [out]
    turns = [2 * math.pi * i / period for i in range(size)]
    return [with_value(out, [a + b * math.cos(turn) + c * math.cos(2 * turn) for turn in turns])]


def mel_edges(call: OpCall) -> tuple[int, ...]:
    """The spectrum bins at which a mel filter bank's triangles begin, peak and end: band i has edges i, i+1, i+2."""
    numbers = []
    for index in range(5):
        value = call.known(index)
        if len(value) != 1 or not math.isfinite(value[0]):
            call.fail(f"MelWeightMatrix: input {index} is one number", "inputs", index)
        numbers.append(value[0])
    bands, length, rate, low, high = numbers
    if min(bands, length, rate) < 1 or low < 0 or high < low:
        call.fail(f"MelWeightMatrix: no bands between {low} and {high} Hz", "inputs")
    low, high = (2595 * math.log10(1 + edge / 700) for edge in (low, high))
    step = (high - low) / (int(bands) + 2)
    hertz = [700 * math.expm1((low + i * step) / 2595 * math.log(10)) for i in range(int(bands) + 2)]
    edges = tuple(int((int(length) + 1) * edge // int(rate)) for edge in hertz)
    if edges[-1] > int(length) // 2 + 1:
        call.fail(f"MelWeightMatrix: {numbers[4]} Hz is above half the sample rate", "inputs", 4)
    return edges


def _mel(call: OpCall) -> list[TensorType]:
    needs_dtype(call, 1, _INDEX)
    needs_dtype(call, 2, _INDEX)
    bands = len(mel_edges(call)) - 2
    length = (call.ints(1) or (0,))[0]
    return [TensorType(made_dtype(call), (length // 2 + 1, bands))]


def _transform_flops(call: OpCall) -> int:
    """5 n log2 n a frame, as a fast transform takes."""
    found = transform_of(call)
    return int(5 * found.length * max(math.log2(found.length), 1)) * found.outer * found.inner * found.frames


_MADE = {"output_datatype": Attribute("dtype", 1)}


def _window_schema(name: str) -> OpSchema:
    return OpSchema(
        name,
        "signal",
        (1, 1),
        _window,
        dtypes=_INDEX,
        attributes={**_MADE, "periodic": Attribute("int", 1)},
        host_inputs=frozenset({0}),
    )


register(
    OpSchema(
        "DFT",
        "signal",
        (1, 3),
        _dft,
        dtypes=WIDE_FLOATS,
        attributes={"axis": Attribute("int"), "inverse": Attribute("int", 0), "onesided": Attribute("int", 0)},
        host_inputs=frozenset({1, 2}),
        flops=_transform_flops,
    ),
    OpSchema(
        "STFT",
        "signal",
        (2, 4),
        _stft,
        dtypes=WIDE_FLOATS,
        attributes={"onesided": Attribute("int", 1)},
        host_inputs=frozenset({1, 3}),
        flops=_transform_flops,
    ),
    OpSchema(
        "MelWeightMatrix",
        "signal",
        (5, 5),
        _mel,
        dtypes=_INDEX,
        attributes=_MADE,
        host_inputs=frozenset(range(5)),
    ),
    _window_schema("HannWindow"),
    _window_schema("HammingWindow"),
    _window_schema("BlackmanWindow"),
)
