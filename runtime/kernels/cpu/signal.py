"""Signals in numpy: its fast Fourier transforms, in float32 for narrower floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from kgrun.graphs.operators.base import OpCall
from kgrun.graphs.operators.signal import dft_axis, mel_edges, transform_of, window_terms
from kgrun.runtime.kernels.base import HostFunction, on_cpu
from kgrun.runtime.kernels.cpu.common import widened

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]


def _numbers(x: Array) -> Array:
    """[…, 1 or 2] as real or complex numbers […]."""
    return x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]


def _store(found: Array, out: Array) -> None:
    out[..., 0] = found.real
    if out.shape[-1] == 2:
        out[..., 1] = found.imag


@on_cpu("DFT")
def dft(call: OpCall) -> HostFunction:
    """The transform, or its inverse, along an axis."""
    axis, found = dft_axis(call), transform_of(call)
    lead = (slice(None),) * axis

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        if outputs[0].size == 0:
            return
        x = _numbers(widened(inputs[0]))
        result: Array
        if found.real:
            result = np.fft.irfft(x, found.length, axis)
        elif found.inverse:
            result = np.fft.ifft(x, found.length, axis)
        elif found.bins < found.length and x.dtype.kind == "f":
            result = np.fft.rfft(x, found.length, axis)
        else:
            result = np.fft.fft(x, found.length, axis)[(*lead, slice(found.bins))]
        _store(result, outputs[0])

    return run


@on_cpu("STFT")
def stft(call: OpCall) -> HostFunction:
    """Transforms of frames that a window weighs."""
    found = transform_of(call)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        if outputs[0].size == 0:
            return
        x = widened(inputs[0])
        x = x if x.ndim == 2 else _numbers(x)
        frames = sliding_window_view(x, found.length, 1)[:, :: found.step]
        if len(inputs) > 2 and inputs[2] is not None:
            frames = frames * widened(inputs[2])
        transform = np.fft.rfft if found.bins < found.length and x.dtype.kind == "f" else np.fft.fft
        _store(transform(frames, axis=2)[..., : found.bins], outputs[0])

    return run


@on_cpu("HannWindow", "HammingWindow", "BlackmanWindow")
def window(call: OpCall) -> HostFunction:
    """A sum of cosines."""
    size, period, (a, b, c) = window_terms(call)
    turns = 2 * np.pi * np.arange(size) / period
    value = a + b * np.cos(turns) + c * np.cos(2 * turns)

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        np.copyto(outputs[0], value, casting="unsafe")

    return run


@on_cpu("MelWeightMatrix")
def mel_weight_matrix(call: OpCall) -> HostFunction:
    """Triangles [spectrum bins, bands] that rise to 1 and fall to 0 between a band's edges."""
    edges, rows = np.array(mel_edges(call)), np.arange(call.outputs[0].shape[0])[:, None]
    low, peak, high = edges[:-2], edges[1:-1], edges[2:]
    rise = (rows - low) / np.maximum(peak - low, 1)
    rising = (rows >= low) & (rows < peak)
    fall = (high - rows) / np.maximum(high - peak, 1)
    value = np.where(rising, rise, np.where((rows > peak) & (rows < high), fall, rows == peak))

    def run(inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
        np.copyto(outputs[0], value, casting="unsafe")

    return run
