"""Transforms that invert each other, frames cut by hand, and windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrun.graphs.operators.base import InferenceError
from tests.runtime.kernels.cpu.calls import run


def parts(x: Any) -> Any:
    """Complex numbers as [..., 2]."""
    return np.stack([x.real, x.imag], -1)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(0, 2), st.booleans())
def test_the_inverse_brings_a_signal_back(size: int, axis: int, onesided: bool) -> None:
    shape = [2, 3, 4]
    shape[axis] = size
    x = np.random.default_rng(0).normal(size=(*shape, 1))
    (spectrum,) = run("DFT", x, None, np.array(axis), onesided=int(onesided))
    expected = np.fft.rfft(x[..., 0], axis=axis) if onesided else np.fft.fft(x[..., 0], axis=axis)
    np.testing.assert_allclose(spectrum, parts(expected), atol=1e-12)
    more = {"inverse": 1, "onesided": int(onesided)}
    (back,) = run("DFT", spectrum, np.array(size), np.array(axis), **more)
    np.testing.assert_allclose(back[..., :1], x, atol=1e-12)


def test_single_precision_stays_single() -> None:
    x = np.random.default_rng(1).normal(size=(1, 64, 1)).astype(np.float32)
    (found,) = run("DFT", x)
    np.testing.assert_allclose(found, parts(np.fft.fft(x[..., 0].astype(float))), atol=1e-4)
    with pytest.raises(InferenceError, match="holds real and imaginary part"):
        run("DFT", x, None, np.array(-1))


def test_frames_are_windowed_and_transformed() -> None:
    rng = np.random.default_rng(2)
    signal, window = rng.normal(size=(2, 20, 1)), rng.normal(size=6)
    (found,) = run("STFT", signal, np.array(4), window)
    frames = [np.fft.rfft(signal[:, start : start + 6, 0] * window) for start in range(0, 15, 4)]
    np.testing.assert_allclose(found, parts(np.stack(frames, 1)), atol=1e-12)
    np.testing.assert_array_equal(run("STFT", signal[..., 0], np.array(4), window)[0], found)


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows_are_symmetric_unless_periodic(op: str) -> None:
    (plain,) = run(op, np.array(9), periodic=0, output_datatype="float64")
    np.testing.assert_allclose(plain, plain[::-1], atol=1e-12)
    assert plain[4] == pytest.approx(1)
    (periodic,) = run(op, np.array(8), output_datatype="float64")
    np.testing.assert_allclose(periodic, plain[:-1], atol=1e-12)


def test_mel_bands_peak_at_one() -> None:
    numbers = [np.array(value) for value in (10, 512, 16_000)]
    (found,) = run("MelWeightMatrix", *numbers, np.array(0, np.float32), np.array(8_000, np.float32))
    assert found.shape == (257, 10)
    np.testing.assert_allclose(found.max(0), 1)
    assert (np.diff(found.argmax(0)) > 0).all()
