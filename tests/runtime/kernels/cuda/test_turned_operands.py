"""Products whose operands lie turned: own kernels change no bit, cuBLAS gets flags and strides that mean the same.

A cuBLAS over host memory stands in for NVIDIA's: it reads what the bindings would be given, by columns, as BLAS does.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kgrun.graphs.operators.base import OpCall
from kgrun.runtime.devices.cuda_blas import Blas
from kgrun.runtime.kernels.base import LibraryRoutine, Operand, cuda_kernel
from kgrun.runtime.kernels.cuda import linear
from kgrun.runtime.lower.placing import placed
from kgrun.runtime.program import LibraryCall, Pointer
from tests.runtime.devices.fake_cuda_driver import FakeDriver
from tests.runtime.kernels.cuda.call_basics import call, turned
from tests.runtime.kernels.cuda.emulation import array_dtype, compare, expected, inputs_for, run_lowered

pytest.importorskip("cuda.bindings")
Array = np.ndarray[Any, Any]
_TYPES = {0: "float32", 1: "float64", 2: "float16", 14: "bfloat16"}


def products() -> Iterator[OpCall]:
    """MatMul and Gemm of every form that cuBLAS takes, with one or both operands turned."""
    for positions in ((0,), (1,), (0, 1)):
        for dtype in ("float32", "float64", "float16", "bfloat16"):
            yield turned(call("MatMul", dtype, (17, 33), (33, 20)), *positions)
        yield turned(call("MatMul", "float32", (2, 3, 9, 8), (2, 3, 8, 5)), *positions)
        yield turned(call("MatMul", "float32", (2, 3, 9, 8), (8, 5)), *positions)
        yield turned(call("MatMul", "float32", (9, 8), (3, 8, 5)), *positions)
        yield turned(call("MatMul", "float32", (3, 1, 8), (3, 8, 1)), *positions)
        yield turned(call("MatMul", "float32", (9, 1), (1, 5)), *positions)
        for a, b in ((0, 0), (0, 1), (1, 0), (1, 1)):
            shapes = ((8, 9) if a else (9, 8), (5, 8) if b else (8, 5), (5,))
            yield turned(call("Gemm", "float32", *shapes, transA=a, transB=b, alpha=0.5, beta=2.0), *positions)
    yield turned(call("MatMul", "float32", (1, 40), (40, 30)), 1)
    yield turned(call("MatMul", "float32", (8,), (3, 8, 5)), 1)
    yield turned(call("MatMul", "float32", (3, 9, 8), (8,)), 0)


def label(found: OpCall) -> str:
    shapes = "x".join(str(list(kind.shape)) for kind in found.inputs if kind is not None)
    flips = [found.attributes[name] for name in ("transA", "transB") if name in found.attributes]
    return f"{found.node} {shapes} {flips} turned {sorted(found.turned)}"


def by_columns(address: int, kind: int, rows: int, columns: int, step: int) -> Array:
    """A matrix as BLAS sees it: column j starts `step` elements after column j - 1."""
    dtype = array_dtype(_TYPES[kind])
    count = (columns - 1) * step + rows
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    flat: Array = np.frombuffer(memory, dtype)
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (dtype.itemsize, step * dtype.itemsize))


def gemm_strided_batched_ex(
    handle: int, turn_a: int, turn_b: int, m: int, n: int, k: int, alpha: int,
    a: int, a_kind: int, a_step: int, a_batch: int, b: int, b_kind: int, b_step: int, b_batch: int, beta: int,
    d: int, d_kind: int, d_step: int, d_batch: int, batch: int, compute: int, algorithm: int,
) -> None:  # fmt: skip
    """cublasGemmStridedBatchedEx over host memory; a step shorter than a column is refused, as there."""
    wide = ctypes.c_double if compute == 70 else ctypes.c_float
    scale, keep = (wide.from_address(place).value for place in (alpha, beta))
    for step, rows in ((a_step, k if turn_a else m), (b_step, n if turn_b else k), (d_step, m)):
        assert step >= rows, "a leading dimension is too small"
    width = array_dtype(_TYPES[a_kind]).itemsize
    for z in range(batch):
        left = by_columns(a + z * a_batch * width, a_kind, k if turn_a else m, m if turn_a else k, a_step)
        right = by_columns(b + z * b_batch * width, b_kind, n if turn_b else k, k if turn_b else n, b_step)
        out = by_columns(d + z * d_batch * width, d_kind, m, n, d_step)
        left, right = (x.astype(np.float64) for x in (left.T if turn_a else left, right.T if turn_b else right))
        out[...] = (scale * (left @ right) + (keep * out.astype(np.float64) if keep else 0)).astype(out.dtype)


@pytest.fixture
def blas(monkeypatch: pytest.MonkeyPatch) -> Blas:
    module = SimpleNamespace(
        create=lambda: 1, set_stream=lambda *_: None, set_math_mode=lambda *_: None, get_version=lambda _: 130000,
        gemm_strided_batched_ex=gemm_strided_batched_ex, cuBLASError=ValueError,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cublas", module)  # type: ignore[arg-type]
    monkeypatch.setattr(linear, "blas_available", lambda: True)
    return Blas(FakeDriver())


@pytest.mark.parametrize("found", list(products()), ids=label)
def test_cublas_is_given_the_same_product(blas: Blas, found: OpCall) -> None:
    inputs = inputs_for(found)
    out = np.full(found.outputs[0].shape, 99, array_dtype(found.outputs[0].dtype))
    if found.optional(2) is not None:  # a copy puts what is added there first
        out[...] = np.broadcast_to(np.asarray(inputs[2]), out.shape)
    routine = next(work for work in cuda_kernel(found.op)(found).work if isinstance(work, LibraryRoutine))
    arrays = [*inputs[:2], out]
    places = {Operand("input", 0): 0, Operand("input", 1): 1, Operand("output", 0): 2}
    work = placed(routine, lambda operand: Pointer(places[operand]))
    assert isinstance(work, LibraryCall)
    blas.prepare(work, lambda pointer: int(np.asarray(arrays[pointer.buffer]).ctypes.data))()
    compare(found, [out], expected(found, inputs))


@pytest.mark.parametrize(
    "found",
    [
        call("MatMul", "float32", (1, 40), (40, 300)),
        call("MatMul", "float16", (33, 40), (40, 70)),
        call("MatMul", "float64", (2, 1, 9, 8), (3, 8, 5)),
    ],
    ids=label,
)
def test_own_kernels_give_the_same_bits_as_without(found: OpCall, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "blas_available", lambda: False)
    inputs = inputs_for(found)
    plain = run_lowered(cuda_kernel("MatMul")(found), found, inputs)[0]
    for positions in ((0,), (1,), (0, 1)):
        lying = turned(found, *positions)
        swapped = [
            np.ascontiguousarray(np.asarray(x).swapaxes(-1, -2)) if i in positions else x for i, x in enumerate(inputs)
        ]
        got = run_lowered(cuda_kernel("MatMul")(lying), lying, swapped)[0]
        assert got.tobytes() == plain.tobytes()
