"""What `gpu_side_by_side.py` compares kgrun with, written as one would by hand; and the clocks that all are held to."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from side_by_side_graphs import COUNT, TINY

Times = dict[str, Callable[[], float]]

SAXPY_BY_HAND = """
import sys
import numpy as np
import pycuda.driver as cuda
cuda.init()
context = cuda.Device(0).retain_primary_context()
context.push()
module = cuda.module_from_buffer(open(sys.argv[1], "rb").read())
function = module.get_function("saxpy")
n = 1 << 20
x = np.random.default_rng(0).uniform(-1, 1, n).astype(np.float32)
y = np.random.default_rng(1).standard_normal(n).astype(np.float32)
z = np.empty_like(x)
a, b, c = (cuda.mem_alloc(x.nbytes) for _ in range(3))
cuda.memcpy_htod(a, x)
cuda.memcpy_htod(b, y)
function(a, b, c, np.float32(2), np.int32(n), grid=(1056, 1), block=(256, 1, 1))
cuda.memcpy_dtoh(z, c)
print(z[:4], float(abs(z - (2 * x + y)).max()))
context.pop()
"""


def events_us(device: Any, issue: Callable[[], Any], runs: int = 20) -> float:
    """Median of an event pair around `issue`, µs."""
    samples = []
    for _ in range(runs):
        start = device.record()
        issue()
        samples.append(device.elapsed_ns(start, device.record()) / 1e3)
    return statistics.median(samples)


def host_us(device: Any, issue: Callable[[], Any], runs: int = 20) -> float:
    """Median host time of `issue` on an idle GPU, µs."""
    samples = []
    for _ in range(runs):
        device.synchronize()
        started = time.perf_counter_ns()
        issue()
        samples.append((time.perf_counter_ns() - started) / 1e3)
    device.synchronize()
    return statistics.median(samples)


def hand_captured(device: Any, issue: Callable[[], Any]) -> tuple[Callable[[], Any], Callable[[], None]]:
    """`issue` captured as one would by hand: begin, launch, end, instantiate; a launch and what frees it."""
    from cuda.bindings import driver as api

    def ok(result: Any) -> Any:
        status, *values = result
        assert int(status) == 0, status
        return values[0] if values else None

    stream = api.CUstream(device.driver.stream)
    ok(api.cuStreamBeginCapture(stream, api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
    issue()
    graph = ok(api.cuStreamEndCapture(stream))
    made = ok(api.cuGraphInstantiate(graph, 0))
    ok(api.cuGraphUpload(made, stream))

    def free() -> None:
        device.synchronize()
        api.cuGraphExecDestroy(made)
        api.cuGraphDestroy(graph)

    return lambda: api.cuGraphLaunch(made, stream), free


def raw_pycuda(device: Any, addresses: Sequence[int]) -> Callable[[], None]:
    """The tiny kernels by PyCUDA's prepared launches, written as its documentation does.

    Args:
        addresses: of the tensors from first to last. A kernel of a microsecond takes up to an eighth longer or shorter
            by how far its bytes in the second-level cache are from its multiprocessor, so all ways use the same.
    """
    from kgrun.runtime.compile.nvrtc import compile_cuda

    device.driver.activate()
    cuda = device.driver.cuda
    module = cuda.module_from_buffer(compile_cuda(TINY, name="tiny.cu", arch=device.info.arch).image)
    function = module.get_function("tiny")
    function.prepare("PP")
    stream = device.driver._stream
    pairs = list(pairwise(addresses))

    def issue(keep: Any = module) -> None:
        for x, z in pairs:
            function.prepared_async_call((1, 1), (128, 1, 1), stream, x, z)

    return issue


def torch_ways() -> Times:
    """The same additions by torch, eagerly and as its CUDA graph; empty without torch."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    x, one = torch.zeros(128, device="cuda"), torch.ones(128, device="cuda")

    def eager() -> None:
        for _ in range(COUNT):
            torch.add(x, one, out=x)

    def timed(issue: Callable[[], Any]) -> float:
        samples = []
        for _ in range(10):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            issue()
            end.record()
            end.synchronize()
            samples.append(start.elapsed_time(end) * 1e3)
        return statistics.median(samples)

    eager()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        eager()
    return {"torch, CUDA graph": partial(timed, graph.replay), "torch, eager": partial(timed, eager)}
