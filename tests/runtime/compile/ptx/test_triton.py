"""PTX made by Triton: warp shuffles, cp.async, ldmatrix, mma.sync as a compiler uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgrun.runtime.compile.ptx.launch import BufferInfo
from kgrun.runtime.compile.ptx.module import load_ptx
from tests.runtime.compile.ptx.harness import ALL_CHECKS, floats, ints, pack

pytest.importorskip("llvmlite")
pytest.importorskip("cuda.bindings")
FOLDER = Path(__file__).parent / "corpus" / "triton"
every_check = pytest.mark.parametrize("checks", [frozenset(), ALL_CHECKS], ids=["plain", "checked"])


def run(name: str, args: list[Any], grid: tuple[int, int, int], shared: int, checks: frozenset[str]) -> None:
    module = load_ptx((FOLDER / f"{name}.ptx").read_text(), name=f"{name}.ptx", checks=checks)
    kernel = module.kernel(module.entries[0])
    buffers = [BufferInfo(str(n), a.ctypes.data, a.nbytes) for n, a in enumerate(args) if isinstance(a, np.ndarray)]
    packed = pack([*args, np.uint64(0), np.uint64(0)])
    result = kernel.launch(grid, (128, 1, 1), shared, packed, buffers=buffers)
    assert [str(fault) for fault in result.faults] == []


@every_check
def test_add(checks: frozenset[str]) -> None:
    x, y, o = floats(3000), floats(3000, seed=1), np.zeros(3000, np.float32)
    run("add", [x, y, o, np.int32(3000)], (3, 1, 1), 0, checks)
    np.testing.assert_array_equal(o, x + y)


@every_check
def test_softmax(checks: frozenset[str]) -> None:
    x, o = floats(5, 781), np.zeros((5, 781), np.float32)
    run("softmax", [o, x, np.int32(781), np.int32(781)], (5, 1, 1), 16, checks)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(o, e / e.sum(1, keepdims=True), 1e-5, 1e-8)


@every_check
@pytest.mark.parametrize(
    ("name", "dtype", "shared", "rtol"), [("fp16", "f2", 16384, 1e-3), ("fp32", "f4", 32768, 1e-2)]
)
def test_matrix_product(name: str, dtype: str, shared: int, rtol: float, checks: frozenset[str]) -> None:
    a, b, c = floats(128, 96).astype(dtype), floats(96, 64, seed=1).astype(dtype), np.zeros((128, 64), np.float32)
    run(f"matmul_{name}", [a, b, c, np.int32(128), np.int32(64), np.int32(96)], (2, 1, 1), shared, checks)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol, 20 * rtol)


@every_check
def test_atomic_histogram(checks: frozenset[str]) -> None:
    x, h = ints(1500, low=0, high=16), np.zeros(16, np.int32)
    run("hist", [x, h, np.int32(1500)], (3, 1, 1), 0, checks)
    np.testing.assert_array_equal(h, np.bincount(x, minlength=16))
