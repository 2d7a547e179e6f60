"""Collectives of kgrun between GPUs beside torch.distributed: bandwidth from 1 KiB to 1 GiB, overlap, replay.

    python benchmarks/gpu_collectives.py [--ranks N] [--name NAME]

Needs two GPUs or more, nccl4py and torch. Starts a process a GPU, which measures both ways in turns. Writes
benchmarks/results/NAME.json.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = [1 << power for power in range(10, 31, 2)]
RUNS, WARM = 20, 5
LAYERS, WIDTH = 12, 4096
RESULTS = Path(__file__).parent / "results"


def allreduce_graph(nbytes: int) -> dict[str, Any]:
    """One AllReduce of `nbytes` of float32."""
    x = {"role": "input", "dtype": "float32", "shape": [nbytes // 4], "init": {"fill": 1}}
    node = {"name": "sum", "op": "AllReduce", "inputs": ["x"], "outputs": ["y"]}
    return {"kgrun": 1, "tensors": {"x": x}, "nodes": [node], "outputs": ["y"]}


def layered_graph(*, compute: bool, communicate: bool) -> dict[str, Any]:
    """A chain of products; beside each, an AllReduce of a tensor that the chain does not wait for."""
    kind = {"dtype": "float16", "shape": [WIDTH, WIDTH]}
    tensors: dict[str, Any] = {"x": {"role": "input", "init": {"fill": 0}, **kind}}
    nodes, outputs, last = [], [], "x"
    for i in range(LAYERS):
        tensors[f"w{i}"] = {"role": "parameter", "init": {"fill": 0}, **kind}
        if compute:
            nodes.append({"name": f"product{i}", "op": "MatMul", "inputs": [last, f"w{i}"], "outputs": [f"h{i}"]})
            last = f"h{i}"
        if communicate:
            nodes.append({"name": f"sum{i}", "op": "AllReduce", "inputs": [f"w{i}"], "outputs": [f"s{i}"]})
            outputs.append(f"s{i}")
    return {"kgrun": 1, "tensors": tensors, "nodes": nodes, "outputs": [*outputs, *([last] if compute else [])]}


def kgrun_us(graph: dict[str, Any], rank: int, size: int, local: int, *, replay: bool = True) -> float:
    """Median of whole runs, in microseconds."""
    from kgrun.graphs.schema.graph import KernelGraph
    from kgrun.runtime.collectives.world import current
    from kgrun.runtime.session import Session

    world, made = current(), KernelGraph.model_validate(graph)
    assert world is not None
    dims = {"rank": rank, "world_size": size}
    with Session(made, device=f"cuda:{local}", dims=dims, graph_replay=replay) as session:
        world.settle()
        report = session.run(iterations=RUNS, warmup=WARM, per_step=False)
    if replay and session.not_replayed is not None:
        raise SystemExit(f"not replayed: {session.not_replayed}")
    assert report.total is not None
    return report.total.median / 1000


def torch_us(call: Callable[[], Any], *, captured: bool = False) -> float:
    """Median of single calls by events, in microseconds; captured by hand as one CUDA graph where asked."""
    import torch

    for _ in range(WARM):
        call()
    torch.cuda.synchronize()
    if captured:
        held = torch.cuda.CUDAGraph()
        with torch.cuda.graph(held):
            call()
        call = held.replay
        call()
    times = []
    for _ in range(RUNS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1000)
    return statistics.median(times)


def bus_gb_s(nbytes: int, us: float, size: int) -> float:
    """Bus bandwidth of an AllReduce in GB/s."""
    return 2 * (size - 1) / size * nbytes / us / 1000


def measure(rank: int, size: int, local: int) -> dict[str, Any]:
    """All sections, by one rank; times are this rank's."""
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(local)
    address = f"tcp://127.0.0.1:{os.environ['TORCH_PORT']}"
    dist.init_process_group("nccl", init_method=address, rank=rank, world_size=size)
    rows = []
    for nbytes in SIZES:
        data = torch.ones(nbytes // 4, device="cuda")
        graph = allreduce_graph(nbytes)
        row: dict[str, Any] = {"nbytes": nbytes}
        row["kgrun_us"] = kgrun_us(graph, rank, size, local)
        row["kgrun_plain_us"] = kgrun_us(graph, rank, size, local, replay=False)
        row["torch_us"] = torch_us(lambda data=data: dist.all_reduce(data))  # type: ignore[misc]
        row["captured_us"] = torch_us(lambda data=data: dist.all_reduce(data), captured=True)  # type: ignore[misc]
        row |= {f"{way}_bus_gb_s": bus_gb_s(nbytes, row[f"{way}_us"], size) for way in ("kgrun", "torch", "captured")}
        rows.append(row)
        del data
    both = kgrun_us(layered_graph(compute=True, communicate=True), rank, size, local)
    compute = kgrun_us(layered_graph(compute=True, communicate=False), rank, size, local)
    alone = kgrun_us(layered_graph(compute=False, communicate=True), rank, size, local)
    hidden = 1 - max(0.0, both - compute) / alone
    dist.destroy_process_group()
    return {
        "allreduce": rows,
        "overlap": {"both_us": both, "compute_us": compute, "communication_us": alone, "hidden": hidden},
    }


def one_rank() -> None:
    """Be a rank: measure, and let rank 0 print what all found."""
    from kgrun.runtime.collectives.ranks import ranks_from_environment
    from kgrun.runtime.collectives.world import enter

    info = ranks_from_environment()
    assert info is not None
    world = enter(info, 540.0)
    world.greet("benchmark", "cuda")
    found = measure(info.rank, info.size, info.local_rank)
    said = world.meeting.gather("found", found, world.everyone, "gathering results")
    world.finish()
    if info.rank == 0:
        print(json.dumps({"ranks": info.size, "by_rank": said}))


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def main() -> None:
    """Start the ranks, write the result, print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--name", default="gpu_collectives")
    options = parser.parse_args()
    shared = {"WORLD_SIZE": str(options.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared |= {"TORCH_PORT": str(free_port()), "KGRUN_RANK_TOKEN": secrets.token_hex(16)}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE if rank == 0 else None,
            text=True,
        )
        for rank in range(options.ranks)
    ]
    text, _ = ranks[0].communicate()
    codes = [process.wait() for process in ranks]
    if any(codes):
        raise SystemExit(f"ranks ended with {codes}")
    found = json.loads(text.strip().splitlines()[-1])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{options.name}.json").write_text(json.dumps(found, indent=1) + "\n")
    first = found["by_rank"][0]
    for row in first["allreduce"]:
        ways = ", ".join(f"{way} {row[f'{way}_us']:.1f} µs" for way in ("kgrun", "torch", "captured"))
        share = row["kgrun_bus_gb_s"] / row["torch_bus_gb_s"]
        print(f"{row['nbytes']:>11,} bytes: {ways}; bus {row['kgrun_bus_gb_s']:.1f} GB/s, {share:.2f} of torch's")
    print(f"hidden: {first['overlap']['hidden']:.1%} of the communication")


if __name__ == "__main__":
    one_rank() if "RANK" in os.environ else main()
