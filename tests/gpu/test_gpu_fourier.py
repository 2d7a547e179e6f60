"""Fourier transforms on the GPU against numpy: lengths of one block, of several stages, and of none but a chirp."""

from __future__ import annotations

import numpy as np
import pytest

from kgrun.graphs.operators import infer
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.kernels.base import cuda_kernel
from tests.gpu.gpu_run import run_operator
from tests.runtime.kernels.cuda.call_basics import known
from tests.runtime.kernels.cuda.emulation import expected

SHAPES = [(64, 4_096, 2), (3, 1 << 18, 2), (1, 1 << 22, 2), (2, 3_000, 40, 2), (2, 97 * 89, 2), (5_000, 60, 2)]
CHIRPS = [(4, 1_009, 2), (1, 1_000_003, 2)]


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [*SHAPES, *CHIRPS])
def test_long_transforms(device: CudaDevice, shape: tuple[int, ...], dtype: str, inverse: int) -> None:
    call = infer("DFT", "long", [TensorType(dtype, shape), None, known(1)], {"inverse": inverse})
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    inputs = [x, None, np.array([1])]
    (got,) = run_operator(device, call, cuda_kernel("DFT")(call), inputs)
    (want,) = expected(call, inputs)
    unit = float(np.finfo(dtype).eps) * float(np.abs(want).max())
    np.testing.assert_allclose(got, want, rtol=0, atol=8 * unit)


@pytest.mark.parametrize("n", [16, 60, 385, 4_096, 6_000])
def test_single_precision_inverses_are_those_of_the_cpu_to_the_bit(device: CudaDevice, n: int) -> None:
    call = infer("DFT", "bits", [TensorType("float32", (3, n, 2)), None, known(1)], {"inverse": 1})
    inputs = [np.random.default_rng(n).standard_normal((3, n, 2)).astype(np.float32), None, np.array([1])]
    (got,) = run_operator(device, call, cuda_kernel("DFT")(call), inputs)
    assert got.tobytes() == expected(call, inputs)[0].tobytes()
