"""How much of the time of a data queue hides behind the runs: steps of fed graphs against max(copy, compute).

    python benchmarks/queues.py                  the CPU: a source that sleeps stands for the copy
    python benchmarks/queues.py --device cuda    a GPU: batches of --mib MiB through pinned memory

Three graphs have the same batches: one computes next to nothing (input-bound), one about as long as a copy takes, one
four times as long (compute-bound). `copy` is what a batch takes where nothing is computed: on a GPU that of the bus
alone, measured with pinned memory. `compute` is the graph with its input in place. A step is the wall time of a run in
a row of them, waits for data included. Of a step, `fill` is what the feeder copies on the host, `wait` what the run
waits for its batch, `room` what the feeder waits for a free slot. With --shuffle the source is shuffled: its arrays are
then not sent from where they lie, but gathered on the host.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.devices import open_device
from kgrun.runtime.devices.base import Device
from kgrun.runtime.queues import QueueFeed

Array = np.ndarray[Any, Any]

SPIN = """
extern "C" __global__ void work(const float* x, float* y, long long n, int rounds) {
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) {
        float v = x[i];
        for (int r = 0; r < rounds; ++r) v = v * 0.999f + 0.5f;
        y[i] = v;
    }
}
"""


def fed(rows: int, columns: int, work: int, cuda: bool, queue: bool) -> KernelGraph:
    """A graph whose one kernel takes longer with `work`."""
    count = rows * columns
    tensors: dict[str, Any] = {"x": {"dtype": "float32", "shape": [rows, columns]}}
    if not queue:
        tensors["x"] |= {"role": "input", "init": {"fill": 1}}
    nodes: list[dict[str, Any]] = []
    if queue:
        nodes.append({"name": "next", "op": "GetNext", "queue": "q", "outputs": ["x"]})
    top: dict[str, Any] = {"queues": {"q": {"items": ["x"], "capacity": 3}}} if queue else {}
    if cuda:
        top["kernels"] = {"work": {"source": SPIN, "entry": "work"}}
        tensors["y"] = {"dtype": "float32", "shape": [rows, columns]}
        node = {"kernel": "work", "grid": [1056], "block": [256], "args": ["x", "y", {"int64": count}, {"int32": work}]}
        nodes.append({"name": "work", "inputs": ["x"], "outputs": ["y"], **node})
        return KernelGraph.model_validate({"kgrun": 1, "tensors": tensors, "nodes": nodes, "outputs": ["y"], **top})
    last = "x"
    tensors["w"] = {"role": "parameter", "dtype": "float32", "shape": [columns, columns], "init": {"fill": 0.001}}
    for i in range(work):
        nodes.append({"name": f"m{i}", "op": "MatMul", "inputs": [last, "w"], "outputs": [f"t{i}"]})
        last = f"t{i}"
    nodes.append({"name": "mean", "op": "ReduceMean", "inputs": [last], "outputs": ["y"]})
    return KernelGraph.model_validate({"kgrun": 1, "tensors": tensors, "nodes": nodes, "outputs": ["y"], **top})


def seconds_a_step(graph: KernelGraph, device: Device, steps: int, source: Any = None) -> tuple[float, Any]:
    """Wall time of a run among many in a row, whole runs alone, and the last report.

    The difference between `steps` and twice as many: what starting, downloading and reporting take is in both.
    """
    took, report = [0.0, 0.0], None
    with Session(graph, device=device, queues={} if source is None else {"q": source}) as session:
        session.run(iterations=max(steps // 10, 3), warmup=0, per_step=False)
        for index in range(2):
            started = time.perf_counter()
            report = session.run(iterations=(index + 1) * steps, warmup=0, per_step=False)
            took[index] = time.perf_counter() - started
    return (took[1] - took[0]) / steps, report


def bus_seconds(device: Device, nbytes: int, steps: int) -> float:
    """A copy of so many bytes from pinned memory, among `steps` in a row."""
    lane = device.copy_lane()
    assert lane is not None
    address, block, mark = device.allocate(nbytes), lane.host_block(nbytes), lane.new_mark()
    lane.upload(address, block, mark, mark)
    lane.wait(mark)
    started = time.perf_counter()
    for _ in range(steps):
        lane.upload(address, block, mark, mark)
    lane.wait(mark)
    took = (time.perf_counter() - started) / steps
    device.free(address)
    return took


def compare(
    device: Device, steps: int, mib: int, sleep: float, shuffle: int | None
) -> list[tuple[str, float, float, float, Any]]:
    """(graph, copy, compute, step) in seconds, and what the queue reports."""
    cuda = device.info.kind == "cuda"
    columns = 4_096 if cuda else 192
    rows = (mib << 20) // 4 // columns if cuda else 256
    held = np.ones((4 * rows, columns), np.float32)

    def sleepy() -> Iterator[Array]:
        while True:
            time.sleep(sleep)
            yield held[:rows]

    source: Any = QueueFeed({"x": held}, epochs=0, shuffle=shuffle) if cuda else QueueFeed(sleepy, epochs=0)
    copy = bus_seconds(device, held[:rows].nbytes, steps) if cuda else _source_seconds(sleepy(), steps)
    unit = _work_for(device, rows, columns, copy, steps)
    found = []
    for name, work in (("input-bound", max(unit // 8, 1)), ("balanced", unit), ("compute-bound", 4 * unit)):
        compute, _ = seconds_a_step(fed(rows, columns, work, cuda, queue=False), device, steps)
        step, report = seconds_a_step(fed(rows, columns, work, cuda, queue=True), device, steps, source)
        found.append((name, copy, compute, step, report.queues[0]))
    return found


def _source_seconds(source: Iterator[Array], steps: int) -> float:
    started = time.perf_counter()
    for _ in range(steps):
        next(source)
    return (time.perf_counter() - started) / steps


def _work_for(device: Device, rows: int, columns: int, wanted: float, steps: int) -> int:
    """Units of work that take about `wanted` seconds."""
    cuda = device.info.kind == "cuda"
    few, many = (8, 256) if cuda else (1, 9)
    short, long = (seconds_a_step(fed(rows, columns, n, cuda, queue=False), device, steps)[0] for n in (few, many))
    return max(round(few + (wanted - short) * (many - few) / max(long - short, 1e-9)), 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--mib", type=int, default=64, help="bytes of a batch on a GPU")
    parser.add_argument("--sleep", type=float, default=0.01, help="seconds that a batch takes on the CPU")
    parser.add_argument("--shuffle", type=int, help="seed; on a GPU")
    given = parser.parse_args()
    device, _ = open_device(given.device)
    print(f"{device.info.name}; {given.steps} steps")
    parts = "".join(f" {name:>8}" for name in ("fill ms", "wait ms", "room ms"))
    print(f"{'graph':<14} {'copy ms':>9} {'compute ms':>11} {'step ms':>9} {'step ÷ max':>11}{parts}")
    try:
        for name, copy, compute, step, queue in compare(device, given.steps, given.mib, given.sleep, given.shuffle):
            ratio = step / max(copy, compute)
            spent = (queue.filled_ns, queue.waited_ns, queue.full_ns)
            parts = "".join(f" {ns / queue.batches / 1e6:>8.3f}" for ns in spent)
            print(f"{name:<14} {copy * 1e3:>9.3f} {compute * 1e3:>11.3f} {step * 1e3:>9.3f} {ratio:>11.3f}{parts}")
    finally:
        device.close()


if __name__ == "__main__":
    main()
