"""One table of what the CUDA device does on this machine: launches, copies, products, reductions, elementwise kernels.

    python benchmarks/gpu_smoke.py [--device N]

Times are medians of stream events over 20 runs after 3 warm-ups, "hot": the same buffers every time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from kgrun.graphs.operators import all_schemas, infer
from kgrun.graphs.operators.base import TensorType
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.kernels.base import LibraryRoutine, Operand, cuda_kernel
from kgrun.runtime.kernels.cuda import linear
from kgrun.runtime.lower.placing import placed
from kgrun.runtime.program import Copy, KernelCode, Launch, Pointer, Step, Work

Row = tuple[str, str, str]
RUNS, WARM_UP = 20, 3


def step(work: Work) -> Step:
    """A step that stands alone."""
    return Step(0, "step", 0, "op", "compute", work, (), ())


def median_ns(device: CudaDevice, launch: Callable[[], None]) -> int:
    """Median time of `launch` by events on the stream."""
    samples = []
    for run in range(RUNS + WARM_UP):
        start = device.record()
        launch()
        elapsed = device.elapsed_ns(start, device.record())
        if run >= WARM_UP:
            samples.append(elapsed)
    return round(statistics.median(samples))


def launch_cost(device: CudaDevice) -> list[Row]:
    """Host and device time of empty launches."""
    code = KernelCode('extern "C" __global__ void k(int* p) {}', None, "cuda", "empty.cu", "k")
    prepared = device.prepare(step(Launch(code, (None,), (1, 1, 1), (32, 1, 1))), lambda _: 0)
    rows = []
    for name, call in (("lean launch", prepared.launch), ("bare call", prepared.raw)):  # type: ignore[attr-defined]
        for _ in range(100):
            call()
        device.synchronize()
        started = time.perf_counter_ns()
        for _ in range(1_000):
            call()
        issued = time.perf_counter_ns() - started
        device.synchronize()
        total = time.perf_counter_ns() - started
        rows.append((f"1,000 × {name}", f"{total / 1e6:.2f} µs each", f"host {issued / 1e6:.2f} µs"))
    return rows


def copies(device: CudaDevice) -> list[Row]:
    """Host to device, device to host, and on the device."""
    rows = []
    data = np.ones(256 << 20, np.uint8)
    a, b = device.allocate(data.nbytes), device.allocate(data.nbytes)
    for name, call in (("upload", device.upload), ("download", device.download)):
        call(a, data)
        started = time.perf_counter()
        call(a, data)
        rows.append((f"{name} 256 MiB pageable", f"{data.nbytes / (time.perf_counter() - started) / 1e9:.1f} GB/s", ""))
    prepared = device.prepare(step(Copy(Pointer(1), Pointer(0), data.nbytes)), lambda p: (a, b)[p.buffer])
    ns = median_ns(device, prepared.launch)
    rows.append(("device copy 256 MiB", f"{2 * data.nbytes / ns:.0f} GB/s", "read and written"))
    device.free(a)
    device.free(b)
    return rows


def operator(device: CudaDevice, op: str, dtype: str, *shapes: tuple[int, ...], **attributes: Any) -> Row:
    """One operator's time, and its rate by the schema's bytes and FLOPs."""
    call = infer(op, op, [TensorType(dtype, shape) for shape in shapes], attributes)
    lowered = cuda_kernel(op)(call)
    sizes = {("input", i): t.nbytes for i, t in enumerate(call.inputs) if t}
    sizes |= {("output", i): t.nbytes for i, t in enumerate(call.outputs)}
    sizes |= {("workspace", i): n for i, n in enumerate(lowered.workspace)}
    at = {key: device.allocate(max(size, 512)) for key, size in sizes.items()}
    places = list(at)
    numpy_dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    for index, type_ in enumerate(call.inputs):
        if type_:
            device.upload(at["input", index], np.full(type_.shape, 0.01).astype(numpy_dtype))

    def pointer(operand: Operand) -> Pointer:
        return Pointer(places.index((operand.role, operand.index)), operand.offset)

    prepared = [
        device.prepare(step(placed(work, pointer)), lambda p: at[places[p.buffer]] + p.offset) for work in lowered.work
    ]
    ns = median_ns(device, lambda: [p.launch() for p in prepared] and None)
    for address in at.values():
        device.free(address)
    moved = sum(t.nbytes for t in (*call.inputs, *call.outputs) if t)
    flops = all_schemas()[op].flops
    rate = f"{moved / ns:.0f} GB/s"
    if flops and op in ("MatMul", "Gemm", "Conv"):
        rate = f"{flops(call) / ns / 1000:.1f} TFLOP/s"
    shape = " ".join("×".join(map(str, s)) for s in shapes[:2])
    library = " cuBLAS" if any(isinstance(work, LibraryRoutine) for work in lowered.work) else ""
    return (f"{op}{library} {dtype} {shape}", f"{ns / 1000:.1f} µs", rate)


def operators(device: CudaDevice) -> list[Row]:
    """A few large calls of each family."""
    big = (8_192, 8_192)
    rows = [
        operator(device, "Add", "float32", big, big),
        operator(device, "Add", "float16", big, big),
        operator(device, "Add", "float32", big, (8_192,)),
        operator(device, "Gelu", "float16", big),
        operator(device, "Transpose", "float32", big),
        operator(device, "Transpose", "float16", (32, 512, 16, 64), perm=[0, 2, 1, 3]),
        operator(device, "Softmax", "float16", (16_384, 1_024)),
        operator(device, "LayerNormalization", "float16", (16_384, 1_024), (1_024,), (1_024,)),
        operator(device, "ReduceSum", "float32", (1 << 26,)),
        operator(device, "ReduceSum", "float32", big, axes=[0]),
        operator(device, "ReduceMean", "float32", big, axes=[1]),
        operator(device, "Conv", "float16", (32, 128, 28, 28), (128, 128, 3, 3), pads=[1, 1, 1, 1]),
        operator(device, "Conv", "float32", (32, 64, 56, 56), (64, 64, 3, 3), pads=[1, 1, 1, 1]),
        operator(device, "Conv", "float32", (32, 128, 56, 56), (128, 1, 3, 3), pads=[1, 1, 1, 1], group=128),
        operator(device, "MaxPool", "float32", (32, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2]),
    ]
    for dtype in ("float32", "float16"):
        rows.append(operator(device, "MatMul", dtype, (4_096, 4_096), (4_096, 4_096)))
        if linear.blas_available():
            given, linear.blas_available = linear.blas_available, lambda: False  # type: ignore[assignment]
            rows.append(operator(device, "MatMul", dtype, (4_096, 4_096), (4_096, 4_096)))
            linear.blas_available = given
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", type=int, default=0)
    device = CudaDevice(parser.parse_args().device)
    print(f"{device.info.name} {device.info.arch}, driver for CUDA {device.info.versions['cuda_driver']}")
    try:
        rows = [*launch_cost(device), *copies(device), *operators(device)]
    finally:
        device.close()
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
