"""The device's measured roofline: how fast it copies memory and how fast it multiplies and adds, float32.

Two short kernels, timed like any step. What they find is kept on disk by GPU and driver, since it takes a fraction of a
second. The model is that of Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kgrun.graphs.errors import KgrunError
from kgrun.graphs.whole_files import replacing
from kgrun.runtime.compile.cache import default_directory, digest_key
from kgrun.runtime.program import KernelCode, Launch, Pointer, Step, Value
from kgrun.runtime.report import Roofline

if TYPE_CHECKING:
    from kgrun.runtime.devices.cuda import CudaDevice

_COPY = """
extern "C" __global__ void peak_copy(const float4* __restrict__ x, float4* __restrict__ z, long long n) {
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) z[i] = x[i];
}
"""
_FMA = """
extern "C" __global__ void __launch_bounds__(256) peak_fma(float* z, int rounds, float m) {
    float a[16];
    #pragma unroll
    for (int k = 0; k < 16; ++k) a[k] = threadIdx.x + k;
    for (int r = 0; r < rounds; ++r) {
        #pragma unroll
        for (int k = 0; k < 16; ++k) a[k] = fmaf(a[k], m, m);
    }
    float s = 0;
    #pragma unroll
    for (int k = 0; k < 16; ++k) s += a[k];
    if (s == 12345.678f) z[blockIdx.x] = s;  // never: keeps the loop
}
"""
_COPY_BYTES = 512 << 20  # far more than any cache holds
_ROUNDS = 8_192
_BLOCKS = 2_112  # 16 blocks for each of an H200's 132 multiprocessors; two waves
_RUNS = 5
_FORMAT = 1


def measured_roofline(device: CudaDevice) -> Roofline | None:
    """Peak rates of the device, from disk where they were measured before; None where there is no room to measure."""
    facts = device.driver.facts
    key = digest_key((f"roofline-{_FORMAT}", facts.name, facts.arch, "{}.{}".format(*facts.cuda)))
    path = default_directory() / "rooflines" / f"{key[:32]}.json"
    found = _read(path)
    if found is None:
        try:
            found = _measure(device)
        except KgrunError:
            return None
        if found is not None:
            _write(path, found)
    return found


def _measure(device: CudaDevice) -> Roofline | None:
    driver = device.driver
    held: list[int] = []
    try:
        # Straight from the driver, so that it does not count as the graph's memory.
        held.extend(driver.alloc(_COPY_BYTES) for _ in range(2))
        driver.fill(held[0], 0, _COPY_BYTES)
        ns_copy = _median_ns(device, _copy_launch(), held)
        ns_fma = _median_ns(device, _fma_launch(), held)
    except driver.errors:
        return None
    finally:
        with contextlib.suppress(*driver.errors):
            driver.synchronize()
            for address in held:
                driver.free(address)
    if not ns_copy or not ns_fma:
        return None
    flops = 2 * 16 * _ROUNDS * 256 * _BLOCKS
    return Roofline(2 * _COPY_BYTES * 1_000_000_000 // ns_copy, flops * 1_000_000_000 // ns_fma)


def _copy_launch() -> Launch:
    code = KernelCode(_COPY, None, "cuda", "kgrun:peak_copy.cu", "peak_copy")
    count = Value(np.int64(_COPY_BYTES // 16).tobytes(), 8)
    return Launch(code, (Pointer(0), Pointer(1), count), (_BLOCKS, 1, 1), (256, 1, 1))


def _fma_launch() -> Launch:
    code = KernelCode(_FMA, None, "cuda", "kgrun:peak_fma.cu", "peak_fma")
    arguments = (Pointer(1), Value(np.int32(_ROUNDS).tobytes(), 4), Value(np.float32(0.5).tobytes(), 4))
    return Launch(code, arguments, (_BLOCKS, 1, 1), (256, 1, 1))


def _median_ns(device: CudaDevice, launch: Launch, places: list[int]) -> int:
    step = Step(0, "peak", 0, launch.code.entry, "compute", launch, (0,), (1,))
    prepared = device.prepare(step, lambda pointer: places[pointer.buffer] + pointer.offset)
    prepared.launch()
    times = device.time_steps([prepared], _RUNS)
    return sorted(times.samples[0])[_RUNS // 2] if times is not None else 0


def _read(path: Path) -> Roofline | None:
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        rates = int(data["bytes_per_s"]), int(data["flops_per_s"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Roofline(*rates) if min(rates) > 0 else None


def _write(path: Path, found: Roofline) -> None:
    text = json.dumps({"bytes_per_s": found.bytes_per_s, "flops_per_s": found.flops_per_s})
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(text.encode())
