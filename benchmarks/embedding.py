"""A table larger than the cache on the device: is every lookup right, and what does a step cost?

    python benchmarks/embedding.py                                the CPU: 8 GiB, 2 % cached, 1,000 steps, all checked
    python benchmarks/embedding.py --gib 0.25 --steps 100         the same, small
    python benchmarks/embedding.py --device cuda --time           a GPU: a step against its bound, and every stage of it
    python benchmarks/embedding.py --device cuda --time --layers 2 4 8 16      the same with more to compute

Ids follow Zipf's law over all rows. Each step looks rows up, and adds one to each element of each row for each time its
id stands in the batch; so values are whole numbers, and every lookup must agree exactly with indexing a whole table.
The table is a sparse file, in which only the rows that are used take room.

The bound of a step is the larger of two: its kernels on a cache that has all rows already, and the bytes of the rows it
misses at the speed of the bus. With torch installed, its way of keeping such a table on the host is timed beside:
gather into pinned memory, copy, compute, add to the rows on the host.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from kgrun.graphs.load import load_graph
from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime import Session
from kgrun.runtime.devices import open_device
from kgrun.runtime.devices.base import Device
from kgrun.runtime.hostloops import native
from kgrun.runtime.queues import QueueFeed

Array = np.ndarray[Any, Any]


def zipf_ids(generator: np.random.Generator, vocabulary: int, exponent: float, shape: tuple[int, ...]) -> Array:
    """Ids in [0, vocabulary), the n-th most frequent one n**-exponent as frequent as the first; scattered rows."""
    # Inverse of the continuous law's distribution function, which is close and takes no table.
    power = 1 - exponent
    ranks = ((vocabulary**power - 1) * generator.random(shape) + 1) ** (1 / power) - 1
    order: Array = np.minimum(ranks.astype(np.int64), vocabulary - 1)
    return order * 2_654_435_761 % vocabulary  # neighbours in rank are no neighbours in the file


def make_table(path: Path, vocabulary: int, width: int, used: Array) -> None:
    """A sparse .npy file; rows that are used hold whole numbers made of their ids, all others zeros."""
    table = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(vocabulary, width))
    for start in range(0, len(used), 1 << 16):
        rows = used[start : start + (1 << 16)]
        table[rows] = first_values(rows, width)
    table.flush()


def first_values(rows: Array, width: int) -> Array:
    """What `make_table` writes to some rows."""
    return ((rows[:, None] * 31 + np.arange(width)) % 251).astype(np.float32)


def make_graph(folder: Path, batch: int, vocabulary: int, width: int, rows: int | None, layers: int) -> KernelGraph:
    """`found = table[ids]`, `table[ids] += 1`, and `layers` products with a square matrix that cost time.

    With `rows` None the table is no larger than the cache would be, and is not cached: the kernels' own time.
    """
    table: dict[str, Any] = {"role": "parameter", "dtype": "float32", "shape": [vocabulary, width]}
    table |= {"init": {"fill": 0}} if rows is None else {"data": "table.npy", "cache": {"rows": rows}}
    nodes: list[dict[str, Any]] = [
        {"name": "next", "op": "GetNext", "queue": "ids", "outputs": ["ids"]},
        {"name": "look", "op": "Gather", "inputs": ["table", "ids"], "outputs": ["found"]},
        {"name": "column", "op": "Unsqueeze", "inputs": ["ids", "axes"], "outputs": ["places"]},
        {
            "name": "add", "op": "ScatterND", "inputs": ["table", "places", "ones"], "outputs": ["table_new"],
            "inplace": {"table_new": "table"}, "attributes": {"reduction": "add"}, "after": ["look"],
        },
    ]  # fmt: skip
    last = "found"
    for i in range(layers):
        nodes.append({"name": f"layer{i}", "op": "MatMul", "inputs": [last, f"w{i % 2}"], "outputs": [f"h{i}"]})
        last = f"h{i}"
    nodes.append({"name": "mean", "op": "ReduceMean", "inputs": [last], "outputs": ["y"]})
    wide = 8 * width
    document = {
        "kgrun": 1,
        "queues": {"ids": {"items": ["ids"], "data": "ids.npz", "epochs": 1 if rows is not None else 0, "capacity": 8}},
        "tensors": {
            "ids": {"dtype": "int64", "shape": [batch]},
            "axes": {"role": "constant", "dtype": "int64", "value": [1]},
            "ones": {"role": "parameter", "dtype": "float32", "shape": [batch, width], "init": {"fill": 1}},
            "w0": {"role": "parameter", "dtype": "float32", "shape": [width, wide], "init": {"normal": [0, 0.01]}},
            "w1": {"role": "parameter", "dtype": "float32", "shape": [wide, width], "init": {"normal": [0, 0.01]}},
            "table": table,
        },
        "nodes": nodes,
        "outputs": ["found", "y"],
    }
    path = folder / f"embedding_{'cached' if rows is not None else 'plain'}.json"
    path.write_text(json.dumps(document))
    return load_graph(path)


class Direct:
    """The rows that are used, by direct indexing; `first` is what the table held."""

    def __init__(self, used: Array, width: int) -> None:
        self.used, self.rows = used, first_values(used, width)

    def step(self, ids: Array) -> Array:
        """What a lookup must find; then every id adds one to its row."""
        places = np.searchsorted(self.used, ids)
        found: Array = self.rows[places]
        np.add.at(self.rows, places, np.float32(1))
        return found


def check(device: Device, graph: KernelGraph, ids: Array, used: Array, width: int) -> tuple[int, Any]:
    """Steps whose lookup differed, and the cache's counts of all steps; the table itself is compared at the end."""
    direct, wrong, total = Direct(used, width), 0, None
    with Session(graph, device=device) as session:
        for some in ids:
            report = session.run(iterations=1, warmup=0, per_step=False)
            wrong += not np.array_equal(report.outputs["found"], direct.step(some))
            total = _sum(total, report.embeddings[0])
        table = session.output("table")
        for start in range(0, len(used), 1 << 16):
            part = slice(start, start + (1 << 16))
            wrong += not np.array_equal(table[used[part]], direct.rows[part])
    return wrong, total


def _sum(total: dict[str, int] | None, report: Any) -> dict[str, int]:
    counts = {name: getattr(report, name) for name in report.__dataclass_fields__}
    numbers = {name: number for name, number in counts.items() if isinstance(number, int)}
    kept = ("rows", "vocabulary")
    return numbers if total is None else {n: v if n in kept else total[n] + v for n, v in numbers.items()}


def timed(session: Session, steps: int) -> tuple[float, Any]:
    """Seconds a step by the host's clock, and a report. Two fifths of the steps fill the cache; the median of three."""
    part = max(steps // 5, 1)
    session.run(iterations=2 * part, warmup=0, per_step=False)
    reports = [session.run(iterations=part, warmup=0, per_step=False) for _ in range(3)]
    return sorted(report.wall_ns for report in reports)[1] / 1e9 / part, reports[-1]


def torch_seconds(ids: Array, vocabulary: int, width: int, layers: int, steps: int) -> float | None:
    """Seconds a step of torch with the table in pinned host memory; None without torch and a GPU."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    torch.backends.cuda.matmul.allow_tf32 = False
    table = torch.zeros(vocabulary, width, pin_memory=True)
    block = torch.empty(ids.shape[1], width, pin_memory=True)
    ones = torch.ones(ids.shape[1], width)
    weights = [torch.randn(width, 8 * width, device="cuda") * 0.01, torch.randn(8 * width, width, device="cuda") * 0.01]

    def step(some: Any) -> None:
        torch.index_select(table, 0, some, out=block)
        h = block.to("cuda", non_blocking=True)
        for i in range(layers):
            h = h @ weights[i % 2]
        h.mean()
        table.index_add_(0, some, ones)  # on the host, while the GPU computes
        torch.cuda.synchronize()

    batches = [torch.from_numpy(some) for some in ids[: steps + steps // 10]]
    for some in batches[: steps // 10]:
        step(some)
    started = time.perf_counter()
    for some in batches[steps // 10 :]:
        step(some)
    return (time.perf_counter() - started) / max(len(batches) - steps // 10, 1)


def time_steps(
    device: Device, folder: Path, given: argparse.Namespace, ids: Array, vocabulary: int, rows: int, layers: int
) -> str:
    """Print a step's time, its bound and torch's, and where it goes; returns a line of a table."""
    from embedding_parts import exchange_seconds, parts_of, show_lookups, show_stages
    from queues import bus_seconds

    width, batch, steps = given.width, given.batch, len(ids)
    cached = make_graph(folder, batch, vocabulary, width, rows, layers)
    plain = make_graph(folder, batch, rows + 1, width, None, layers)
    print(f"--- {layers} layers")
    started = time.perf_counter()
    with Session(cached, device=device, queues={"ids": QueueFeed(folder / "ids.npz", epochs=2)}) as session:
        opened = time.perf_counter() - started
        step, report = timed(session, steps)
        replayed = session.not_replayed or "one CUDA graph"
        print("stages of the host with the cache:")
        show_stages(session, device, max(2 * steps // 5, 1))
        moved = exchange_seconds(session, device)
    found = report.embeddings[0]
    with Session(plain, device=device, queues={"ids": {"ids": ids.reshape(-1) % (rows + 1)}}) as session:
        compute, _ = timed(session, steps)
        print("stages of the host where all rows are on the device:")
        show_stages(session, device, max(2 * steps // 5, 1))
    missed = found.loaded_bytes // max(found.batches, 1)
    bus = bus_seconds(device, max(missed, 1), 200) if device.info.kind == "cuda" else 0.0
    bound = max(compute, bus, 1e-9)  # a difference of times may be none
    print(f"step {step * 1e3:.3f} ms ({replayed}), step ÷ bound {step / bound:.3f}")
    print(f"bound: compute {compute * 1e3:.3f} ms, {missed:,} missed bytes on the bus {bus * 1e3:.3f} ms")
    print(f"of a step: {parts_of(report)}")
    if moved is not None:
        print(f"the kernel that moves the rows of one step, again and again: {moved * 1e6:.1f} us on the device")
    device_s, looked_up_s = report.total.median / 1e9 + (moved or 0), found.lookup_ns / max(found.batches, 1) / 1e9
    longest = "the device" if device_s >= looked_up_s else "the thread of the lookups"
    print(
        f"of a step's {step * 1e3:.3f} ms the device is busy for {device_s * 1e3:.3f} ms, lookups take their thread "
        f"{looked_up_s * 1e3:.3f} ms: {longest} is the limit, "
        f"{max(step - max(device_s, looked_up_s), 0) * 1e3:.3f} ms are the host's between runs"
    )
    print(
        f"{found.ahead:,} of {found.batches:,} prepared ahead; {100 * found.hits / found.lookups:.1f} % hits; "
        f"{'the device reaches the tables' if found.direct else 'the host gathers rows'}; opened in {opened:.1f} s; "
        f"{'compiled' if native.available() else 'numpy'} index"
    )
    show_lookups(ids, vocabulary, rows)
    peer = torch_seconds(ids, vocabulary, width, layers, steps)
    theirs = "-" if peer is None else f"{peer * 1e3:.3f}"
    line = (layers, f"{step * 1e3:.3f}", f"{compute * 1e3:.3f}", f"{bus * 1e3:.3f}", f"{step / bound:.3f}", theirs)
    return "| " + " | ".join(map(str, line)) + " |"


def main(words: list[str] | None = None) -> int:
    """Check, and with --time also measure; 1 where a lookup was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gib", type=float, default=8.0, help="size of the table")
    parser.add_argument("--width", type=int, default=128, help="elements of a row")
    parser.add_argument("--batch", type=int, default=4_096)
    parser.add_argument("--cached", type=float, default=0.02, help="share of the rows that the device holds")
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--exponent", type=float, default=1.05, help="of Zipf's law")
    parser.add_argument("--layers", type=int, nargs="+", default=[2], help="products of matrices in a step")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--folder", help="where the table is made; a temporary folder otherwise")
    given = parser.parse_args(words)
    vocabulary = int(given.gib * 2**30) // (4 * given.width)
    rows = max(int(vocabulary * given.cached), 1)
    ids = zipf_ids(np.random.default_rng(0), vocabulary, given.exponent, (given.steps, given.batch))
    used = np.unique(ids)
    device, _ = open_device(given.device)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        make_table(folder / "table.npy", vocabulary, given.width, used)
        np.savez(folder / "ids.npz", ids=ids.reshape(-1))
        print(f"{device.info.name}: {vocabulary:,} rows of {4 * given.width:,} bytes, {rows:,} cached; "
              f"{given.steps:,} steps of {given.batch:,} ids, {len(used):,} different")  # fmt: skip
        try:
            graph = make_graph(folder, given.batch, vocabulary, given.width, rows, given.layers[0])
            wrong, total = check(device, graph, ids, used, given.width)
            print(
                f"wrong: {wrong} of {given.steps:,} steps; {100 * total['hits'] / total['lookups']:.1f} % hits, "
                f"{total['loaded']:,} rows in, {total['evicted']:,} evicted, {total['written']:,} written home"
            )
            if given.time:
                table = [time_steps(device, folder, given, ids, vocabulary, rows, layers) for layers in given.layers]
                print(
                    "| layers | step ms | compute ms | bus ms | step ÷ bound | torch ms |", "| --- " * 6 + "|", sep="\n"
                )
                print(*table, sep="\n")
        finally:
            device.close()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
