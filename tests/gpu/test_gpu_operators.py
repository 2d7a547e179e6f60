"""Every operator on the GPU against the CPU kernels, with all dtype classes and special shapes."""

from __future__ import annotations

import numpy as np
import pytest

from kgrun.graphs.operators import all_schemas, infer
from kgrun.graphs.operators.base import OpCall, TensorType
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.kernels.base import KernelCall, LibraryRoutine, cuda_kernel
from kgrun.runtime.kernels.cuda import linear
from tests.gpu.gpu_run import Arena, run_lowered, run_operator
from tests.runtime.kernels.cuda.emulation import array_dtype, compare, expected, inputs_for
from tests.runtime.kernels.cuda.operator_calls import calls_of

OPS = sorted(all_schemas())
LINEAR = ["MatMul", "Gemm"]


def check(device: CudaDevice, call: OpCall) -> None:
    inputs = inputs_for(call)
    got = run_operator(device, call, cuda_kernel(call.op)(call), inputs)
    compare(call, got, expected(call, inputs))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("op", OPS)
def test_operators_agree_with_the_cpu(device: CudaDevice, op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "blas_available", lambda: False)
    calls = list(calls_of(op))
    works = [work for call in calls for work in cuda_kernel(op)(call).work]
    device.code.compile_all(work.code for work in works if isinstance(work, KernelCall))
    for call in calls:
        check(device, call)


@pytest.mark.parametrize("op", LINEAR)
def test_cublas_agrees_with_the_cpu(device: CudaDevice, op: str) -> None:
    if not linear.blas_available():
        pytest.skip("cuBLAS bindings are not installed")
    routines = 0
    for call in calls_of(op):
        routines += sum(isinstance(work, LibraryRoutine) for work in cuda_kernel(op)(call).work)
        check(device, call)
    assert routines >= 4


@pytest.mark.parametrize("blas", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("sizes", [(512, 768, 384), (1, 1000, 2048), (1000, 3, 77), (129, 257, 65)])
def test_larger_products(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch, blas: bool, dtype: str, sizes: tuple[int, int, int]
) -> None:
    if blas and not linear.blas_available():
        pytest.skip("cuBLAS bindings are not installed")
    if not blas:
        monkeypatch.setattr(linear, "blas_available", lambda: False)
    m, n, k = sizes
    call = infer("MatMul", "large", [TensorType(dtype, (m, k)), TensorType(dtype, (k, n))], {})
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype(array_dtype(dtype)) for shape in ((m, k), (k, n))]
    got = run_operator(device, call, cuda_kernel("MatMul")(call), inputs)[0].astype(np.float64)
    want = inputs[0].astype(np.float64) @ inputs[1].astype(np.float64)
    unit = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-14}[dtype]
    assert np.abs(got - want).max() <= unit * np.sqrt(k) * np.abs(want).max() / 3


@pytest.mark.parametrize(
    ("op", "shape", "attributes"),
    [
        ("ReduceSum", (3_000_000,), {}),
        ("ReduceMean", (64, 100_000), {"axes": [1]}),
        ("ReduceMax", (100_000, 7), {"axes": [0]}),
        ("Softmax", (64, 30_000), {}),
        ("Transpose", (2_000, 3_001), {}),
        ("Relu", (5_000_001,), {}),
        ("ArgMax", (40, 50_000), {"axis": 1}),
    ],
)
def test_large_tensors(device: CudaDevice, op: str, shape: tuple[int, ...], attributes: dict[str, object]) -> None:
    check(device, infer(op, "large", [TensorType("float32", shape)], attributes))


def test_results_are_the_same_in_every_run(device: CudaDevice) -> None:
    for op, shape, attributes in (("ReduceSum", (700_000,), {}), ("Softmax", (50, 3_000), {})):
        call = infer(op, "again", [TensorType("float32", shape)], attributes)
        inputs = inputs_for(call)
        runs = {run_operator(device, call, cuda_kernel(op)(call), inputs)[0].tobytes() for _ in range(5)}
        assert len(runs) == 1


@pytest.mark.parametrize("op", ["Softmax", "Relu", "Add"])
def test_results_may_be_written_over_the_input(device: CudaDevice, op: str) -> None:
    types = [TensorType("float32", (60, 2_000))] * (2 if op == "Add" else 1)
    call = infer(op, "inplace", types, {})
    inputs = inputs_for(call)
    want = expected(call, inputs)
    arena = Arena(device, [array.nbytes for array in inputs if array is not None])
    try:
        for index, array in enumerate(inputs):
            if array is not None:
                arena.write(index, array)
        places = {("input", index): index for index in range(len(inputs))} | {("output", 0): 0}
        run_lowered(device, cuda_kernel(op)(call), places, arena, op)
        compare(call, [arena.read(0, np.empty_like(want[0]))], want)
    finally:
        arena.close()
