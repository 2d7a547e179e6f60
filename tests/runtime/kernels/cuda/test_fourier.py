"""Fourier transforms as CUDA C on the CPU engine, against numpy's; their passes, stages and lengths as integers."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.runtime.kernels.base import cuda_kernel
from kgrun.runtime.kernels.cuda import fourier, fourier_plan
from tests.runtime.kernels.cuda.call_basics import known
from tests.runtime.kernels.cuda.emulation import expected, run_lowered

Array = np.ndarray[Any, Any]
ALL_CHECKS = frozenset(("bounds", "race", "init", "barrier"))
lengths = st.integers(1, 200_000)


@given(lengths)
def test_factors_multiply_to_the_length(n: int) -> None:
    found = fourier_plan.factors(n)
    assert prod(found) == n
    assert all(factor in (4, 8) or all(factor % p for p in range(2, factor)) for factor in found)
    assert found.count(4) <= 1
    assert 2 not in found[1:]


@given(lengths)
def test_smooth_lengths_are_the_next_ones(least: int) -> None:
    def smooth(n: int) -> bool:
        for prime in (2, 3, 5):
            while n % prime == 0:
                n //= prime
        return n == 1

    assert fourier_plan.smooth_length(least) == next(n for n in range(least, 2 * least + 1) if smooth(n))


@given(lengths, st.sampled_from([1, 2, 3, 4, 17, 1_000]), st.sampled_from([1, 5, 700]), st.sampled_from([8, 16]))
def test_stages_cover_the_length_and_fit_into_a_block(n: int, inner: int, rows: int, number_bytes: int) -> None:
    if not fourier_plan.direct(n):
        return
    cut = fourier_plan.stages(n, inner, rows, number_bytes)
    before = 1
    for stage in cut:
        assert (stage.before, before * stage.radix * stage.after) == (before, n)
        before *= stage.radix
        assert 1 <= stage.lanes <= rows * inner * n // stage.radix
        assert stage.radix * stage.lanes * number_bytes <= 32 << 10
        assert stage.threads % 32 == 0
        assert stage.radix * stage.lanes <= 16 * stage.threads
    assert sum((stage.factors for stage in cut), ()) == fourier_plan.factors(n)
    assert len(cut) <= 3


def test_long_transforms_take_few_stages() -> None:
    assert [len(fourier_plan.stages(1 << bits, 1, 1, 8)) for bits in (12, 13, 18, 24)] == [1, 2, 2, 3]


def dft(
    shape: tuple[int, ...], dtype: str = "float32", axis: int = 1, length: int | None = None, **more: int
) -> OpCall:
    return infer("DFT", "dft", [TensorType(dtype, shape), length and known(length), known(axis)], more)


def transformed(call: OpCall, x: Array, checks: frozenset[str] = frozenset()) -> tuple[Array, Array]:
    """What the kernels and what numpy on the CPU device make of `x`."""
    inputs = [x, *(None if t is None else np.array(t.value) for t in call.inputs[1:])]
    return run_lowered(cuda_kernel(call.op)(call), call, inputs, checks)[0], expected(call, inputs)[0]


def signal(call: OpCall, seed: int = 0) -> Array:
    source = call.input(0)
    return np.random.default_rng(seed).standard_normal(source.shape).astype(source.dtype)


# Every radix, first and behind another.
@pytest.mark.parametrize("n", [1, 12, 16, 385])
def test_inverses_in_single_precision_are_numpys_to_the_bit(n: int) -> None:
    call = dft((3, n, 2), inverse=1)
    got, want = transformed(call, signal(call))
    assert got.tobytes() == want.tobytes()


def _calls() -> Iterator[tuple[str, OpCall]]:
    yield "an unrolled prime, columns", dft((2, 13, 5, 2), inverse=1)
    yield "primes in shared memory", dft((2, 17 * 19, 2), inverse=1)
    yield "half of a spectrum of an even length", dft((3, 9, 2), inverse=1, onesided=1)
    yield "half of a spectrum of an odd length", dft((3, 8, 1), "float64", inverse=1, onesided=1, length=15)
    yield "padded", dft((2, 7, 1), length=12, onesided=1)
    yield "cut", dft((2, 3, 14, 2), "float16", axis=-2, length=9)


@pytest.mark.parametrize("call", [pytest.param(call, id=name) for name, call in _calls()])
def test_any_length_agrees_with_numpy(call: OpCall) -> None:
    assert_near(*transformed(call, signal(call)))


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.data())
def test_transforms_are_those_of_numpy(data: st.DataObject) -> None:
    n, axis = data.draw(st.integers(2, 30)), data.draw(st.integers(0, 2))
    inverse, onesided = data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1))
    parts = 2 if inverse and onesided else data.draw(st.sampled_from([1, 2]))
    length = data.draw(st.none() | st.integers(2, 36))
    shape = [2, 3, 2, parts]
    shape[axis] = n
    call = dft(tuple(shape), "float64", axis, length, inverse=inverse, onesided=onesided)
    x = signal(call)
    (got,) = run_lowered(cuda_kernel("DFT")(call), call, [x, None, np.array([axis])])
    numbers = x[..., 0] + 1j * x[..., -1] if parts == 2 else x[..., 0]
    if inverse and onesided:
        want = np.fft.irfft(numbers, length, axis)[..., None]
    else:
        whole = (np.fft.ifft if inverse else np.fft.fft)(numbers, length, axis)
        kept = whole.take(range(whole.shape[axis] // 2 + 1), axis) if onesided else whole
        want = np.stack([kept.real, kept.imag], -1)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "call", [dft((2, 7, 3, 1), "float64"), dft((5, 7, 2), inverse=1), dft((2, 7, 1), "bfloat16", onesided=1)]
)
def test_chirps_serve_any_length(monkeypatch: pytest.MonkeyPatch, call: OpCall) -> None:
    monkeypatch.setattr(fourier_plan, "LARGEST_FACTOR", 5)
    assert len(cuda_kernel("DFT")(call).work) == 5
    assert_near(*transformed(call, signal(call), ALL_CHECKS))


@pytest.mark.parametrize(
    ("call", "kernels"),
    [(dft((2, 60, 2), inverse=1), 2), (dft((1, 30, 5, 2), inverse=1), 2), (dft((3, 13 * 17, 1)), 2)],
    ids=["rows", "columns", "primes"],
)
def test_stages_meet_in_memory(monkeypatch: pytest.MonkeyPatch, call: OpCall, kernels: int) -> None:
    monkeypatch.setattr(fourier_plan, "_TILE_BYTES", 48 * 8)
    x = signal(call)
    got, want = transformed(call, x, ALL_CHECKS)
    assert len(cuda_kernel("DFT")(call).work) == 1 + kernels
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("n", [8, 12, 17, 34])
def test_blocks_go_on_with_further_groups(monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    monkeypatch.setattr(fourier_plan, "_TILE_BYTES", n * 8)
    monkeypatch.setattr(fourier, "MOST_BLOCKS", 2)
    call = dft((7, n, 2), inverse=1)
    assert_near(*transformed(call, signal(call), ALL_CHECKS))


def assert_near(got: Array, want: Array) -> None:
    """Equal but for some rounding errors of the largest result."""
    unit = float(ml_dtypes.finfo(got.dtype).eps) * float(np.abs(want).max())
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=0, atol=8 * unit)


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [
        pytest.param(dft((1, 6_000, 2), inverse=1), id="two stages"),
        pytest.param(dft((1, 1_200, 5, 2), inverse=1), id="two stages over columns"),
        pytest.param(dft((1, 1 << 18, 1)), id="a long one"),
        pytest.param(dft((40, 89, 2), "float64"), id="a large prime"),
        pytest.param(dft((2, 103, 2), inverse=1), id="a chirp"),
        pytest.param(dft((2, 3_001, 2), "float64"), id="a chirp of several stages"),
        pytest.param(dft((300, 60, 3, 2), inverse=1), id="many rows"),
    ],
)
def test_long_and_many_transforms_agree_with_numpy(call: OpCall) -> None:
    got, want = transformed(call, signal(call))
    assert_near(got, want)
    if call.attributes["inverse"] and fourier_plan.direct(call.input(0).shape[1]):
        assert got.tobytes() == want.tobytes()


def test_infinite_numbers_spoil_no_other_row() -> None:
    call = dft((2, 12, 2), inverse=1)
    x = signal(call)
    x[0, 3] = np.inf
    got, want = transformed(call, x)
    assert not np.isfinite(got[0]).any()
    assert got[1].tobytes() == want[1].tobytes()


def test_work_grows_as_n_log_n() -> None:
    """A pass takes its factor's steps a number; a chirp takes transforms of at most four times the length."""

    def steps(n: int) -> int:
        return sum(sum(stage.factors) for stage in fourier_plan.stages(n, 1, 1, 16))

    assert steps(1 << 20) <= 3 * 20
    assert steps(3**12) <= 3 * 20
    assert not fourier_plan.direct(1_000_003)
    assert steps(fourier_plan.smooth_length(2 * 1_000_003 - 1)) <= 3 * 22
    lengths = (64, 1 << 20, 1_000_003)
    assert [len(cuda_kernel("DFT")(dft((1, n, 1))).work) for n in lengths] == [2, 4, 2 + 3 * 3]


def _onnx_cases() -> list[Any]:
    pytest.importorskip("onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("onnx.backend.test.case.node.dft")
        found = importlib.import_module("onnx.backend.test.case.node")._NodeTestCases
    return [case for case in found if case.name.startswith("test_dft")]


def test_onnx_expects_what_the_kernels_give() -> None:
    """Its tolerance of 1e-7 holds where the exact value is 0 and numpy's rounding error is the expected one."""
    names = set()
    for case in _onnx_cases():
        (node,), ((given, (want,)),) = case.model.graph.node, case.data_sets
        places = iter(given)
        inputs = [np.asarray(next(places)) if name else None for name in node.input]
        types = [None if x is None else TensorType(x.dtype.name, x.shape, _value(x)) for x in inputs]
        attributes = {attribute.name: attribute.i for attribute in node.attribute}
        if "opset19" in case.name:
            attributes.setdefault("axis", 1)
        call = infer("DFT", case.name, types, attributes)
        (got,) = run_lowered(cuda_kernel("DFT")(call), call, inputs)
        np.testing.assert_allclose(got, want, rtol=case.rtol, atol=case.atol, err_msg=case.name)
        names.add(case.name)
    assert {"test_dft", "test_dft_inverse", "test_dft_inverse_opset19", "test_dft_rfft"} <= names


def _value(x: Array) -> tuple[int, ...] | None:
    return tuple(map(int, x.reshape(-1))) if x.dtype.kind == "i" else None
