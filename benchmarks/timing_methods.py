"""What each way of timing says of the same kernel, from about 1 to 1,000 µs: the ground for kgrun's choice.

    python benchmarks/timing_methods.py            prints the table; needs a GPU, PyCUDA, cuda-bindings
    python benchmarks/timing_methods.py --profile  only launches, for ncu to look at

ncu, where it is installed, is run on the second form with caches and clocks left alone.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from harness import ncu_durations

SOURCE = """
extern "C" __global__ void stream(const float4* x, float4* z, long long n, int rounds) {
    for (int r = 0; r < rounds; ++r)
        for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) {
            float4 v = x[i];
            z[i] = make_float4(v.x * 2.f, v.y * 2.f, v.z * 2.f, v.w * 2.f);
        }
}
extern "C" __global__ void empty() {}
"""
# (label, bytes read, rounds over them)
SIZES = [
    ("empty", 0, 0),
    *((f"{kib} KiB", kib << 10, 1) for kib in (4, 512, 4096, 16384, 32768, 65536, 131072, 524288, 1572864)),
]


class Bench:
    """One device with the kernels loaded and the calls packed."""

    def __init__(self) -> None:
        from kgrun.runtime.compile.nvrtc import compile_cuda
        from kgrun.runtime.devices.cuda_pycuda import PyCudaDriver

        self.driver = PyCudaDriver(0)
        module = self.driver.load(compile_cuda(SOURCE, name="timing.cu", arch=self.driver.facts.arch).image, "timing")
        self.stream, self.empty = (self.driver.function(module, name) for name in ("stream", "empty"))
        largest = max(nbytes for _, nbytes, _ in SIZES)
        self.x, self.z = self.driver.alloc(largest), self.driver.alloc(largest)
        self.driver.fill(self.x, 0, largest)

    def call(self, nbytes: int, rounds: int) -> Any:
        """A launch ready to go."""
        if not nbytes:
            return self.driver.launcher(self.empty, (1, 1, 1), (32, 1, 1), b"", 0, None, False)
        packed = np.array([self.x, self.z, nbytes // 16], np.int64).tobytes() + np.int32(rounds).tobytes()
        grid = min(132 * 8, -(-nbytes // 16 // 256))
        return self.driver.launcher(self.stream, (grid, 1, 1), (256, 1, 1), packed, 0, None, False)


def stream_events(bench: Bench, call: Any, runs: int = 60) -> float:
    """Median of an event pair around one launch, µs."""
    samples = []
    for _ in range(runs):
        start = bench.driver.record()
        call()
        end = bench.driver.record()
        samples.append(bench.driver.elapsed_ns(start, end) / 1e3)
    return statistics.median(samples)


def _replay(bench: Bench, calls: list[Any]) -> Any:
    from kgrun.runtime.devices.cuda_graph import capture

    return capture(bench.driver.stream, calls, [[i - 1] if i else [] for i in range(len(calls))])


def _timed_replay(bench: Bench, replay: Any, runs: int = 30) -> float:
    samples = []
    for _ in range(runs):
        start = bench.driver.record()
        replay.launch()
        end = bench.driver.record()
        samples.append(bench.driver.elapsed_ns(start, end) / 1e3)
    return statistics.median(samples)


def graph_events(bench: Bench, call: Any, runs: int = 60) -> float:
    """Median of event nodes before and after the kernel inside a graph, µs."""
    from cuda.bindings import driver as api

    events = [api.cuEventCreate(0)[1] for _ in range(2)]

    def record(event: Any) -> Any:
        return lambda: api.cuEventRecordWithFlags(event, api.CUstream(bench.driver.stream), 1)

    replay = _replay(bench, [call, record(events[0]), call, record(events[1]), call])
    samples = []
    for _ in range(runs):
        replay.launch()
        bench.driver.synchronize()
        status, milliseconds = api.cuEventElapsedTime(events[0], events[1])
        assert int(status) == 0, status
        samples.append(milliseconds * 1e3)
    replay.close()
    return statistics.median(samples)


def amortised(bench: Bench, call: Any) -> tuple[float, float]:
    """µs a kernel in a graph of many: whole time ÷ count, and the slope between two counts."""
    one = max(stream_events(bench, call, 5), 1.0)
    count = int(min(400, max(10, 20_000 / one)))
    small, large = _replay(bench, [call] * count), _replay(bench, [call] * (2 * count))
    for replay in (small, large):
        _timed_replay(bench, replay, 3)
    a, b = _timed_replay(bench, small), _timed_replay(bench, large)
    small.close()
    large.close()
    return b / (2 * count), (b - a) / count


def cupti_times(bench: Bench, calls: list[Any], runs: int = 30) -> list[float]:
    """Median kernel duration by CUPTI's activity records, µs a call; empty where CUPTI is not installed."""
    try:
        from cupti import cupti
    except ImportError:
        return []
    records: list[Any] = []

    def completed(found: list[Any]) -> None:
        records.extend((a.start, a.end) for a in found if a.kind == cupti.ActivityKind.CONCURRENT_KERNEL)

    cupti.activity_register_callbacks(lambda: (8 * 1024 * 1024, 0), completed)
    cupti.activity_enable(cupti.ActivityKind.CONCURRENT_KERNEL)
    medians = []
    for call in calls:
        replay = _replay(bench, [call] * 3)
        records.clear()
        for _ in range(runs):
            replay.launch()
        bench.driver.synchronize()
        cupti.activity_flush_all(1)
        medians.append(statistics.median((end - start) / 1e3 for start, end in records) if records else float("nan"))
        replay.close()
    cupti.activity_disable(cupti.ActivityKind.CONCURRENT_KERNEL)
    return medians


def ncu_times() -> list[float]:
    """gpu__time_duration of each size by ncu, µs, the cache as a row of launches leaves it; empty without ncu."""
    found = ncu_durations([sys.executable, __file__, "--profile"], "regex:stream|empty", timeout=120)
    per = len(found) // len(SIZES)
    return [statistics.median(found[(i + 1) * per - per // 2 : (i + 1) * per]) for i in range(len(SIZES)) if per > 1]


def main() -> None:
    """Print the table."""
    bench = Bench()
    calls = [bench.call(nbytes, rounds) for _, nbytes, rounds in SIZES]
    if "--profile" in sys.argv[1:]:
        for call in calls:
            for _ in range(30):
                call()
            bench.driver.synchronize()
        return
    rows = []
    for call in calls:
        for _ in range(20):
            call()
        bench.driver.synchronize()
        rows.append([stream_events(bench, call), graph_events(bench, call), *amortised(bench, call)])
    cupti, ncu = cupti_times(bench, calls), ncu_times()
    titles = ("stream ev", "graph ev", "amortised", "slope", "cupti", "ncu")
    print(f"{'µs':>12} " + " ".join(f"{title:>10}" for title in titles))
    for i, ((label, _, _), row) in enumerate(zip(SIZES, rows, strict=True)):
        extra = [cupti[i] if cupti else float("nan"), ncu[i] if ncu else float("nan")]
        print(f"{label:>12} " + " ".join(f"{value:10.2f}" for value in [*row, *extra]))


if __name__ == "__main__":
    main()
