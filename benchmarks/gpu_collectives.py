"""Collectives of kgrun between GPUs beside torch.distributed: 1 KiB to 1 GiB, overlap with compute, replay.

    python benchmarks/gpu_collectives.py [--ranks N] [--share-gpu] [--name NAME] [--largest BYTES]

Starts a process a rank, each on a GPU of its own, which measures all ways in turns. With `--ranks 1` nothing crosses a
link: what is compared then is the cost of issuing, of NCCL's kernels on one GPU, and of a captured graph; this is a
test of the benchmark and of the calls, and says nothing of bandwidth between GPUs. `--share-gpu` puts all ranks on
GPU 0 (NCCL 2.30 and later), which shows that they work, not how fast. Needs nccl4py and torch. Writes
benchmarks/results/NAME.md and .json, and prints the page.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from harness import Check, Section, document, head_lines, machine, markdown, medians_in_turn, write_results

SIZES = [1 << power for power in range(10, 31, 2)]
RUNS, WARM = 21, 5
LAYERS, WIDTH = 12, 4096
RESULTS = Path(__file__).parent / "results"
ROUTINES = {"AllReduce": "all_reduce", "AllGather": "all_gather", "AllToAll": "all_to_all"}
WAYS = ("kgrun", "kgrun_plain", "torch", "captured")
LARGE = 1 << 20  # from here on a difference is the transfer's, not the clock's
Call = Callable[[], Any]


def operators(ranks: int) -> tuple[str, ...]:
    """What is measured: of one rank only what does something there, in torch too, whose AllReduce is in place."""
    return tuple(ROUTINES) if ranks > 1 else ("AllGather", "AllToAll")


def single_graph(op: str, nbytes: int, ranks: int) -> dict[str, Any]:
    """One collective of float32 that works on `nbytes`."""
    rows = nbytes // 4 // (ranks if op == "AllGather" else 1)
    x = {"role": "input", "dtype": "float32", "shape": [rows], "init": {"fill": 1}}
    node = {"name": "move", "op": op, "inputs": ["x"], "outputs": ["y"]}
    return {"kgrun": 1, "tensors": {"x": x}, "nodes": [node], "outputs": ["y"]}


def layered_graph(op: str, *, compute: bool, communicate: bool) -> dict[str, Any]:
    """A chain of products; beside each, a collective of a tensor that the chain does not wait for."""
    kind = {"dtype": "float16", "shape": [WIDTH, WIDTH], "init": {"uniform": [-0.02, 0.02]}}
    tensors: dict[str, Any] = {"x": {"role": "input", **kind}}
    nodes, outputs, last = [], [], "x"
    for i in range(LAYERS):
        if compute:
            tensors[f"w{i}"] = {"role": "parameter", **kind}
            nodes.append({"name": f"product{i}", "op": "MatMul", "inputs": [last, f"w{i}"], "outputs": [f"h{i}"]})
            last = f"h{i}"
        if communicate:
            tensors[f"g{i}"] = {"role": "parameter", **kind}
            nodes.append({"name": f"move{i}", "op": op, "inputs": [f"g{i}"], "outputs": [f"s{i}"]})
            outputs.append(f"s{i}")
    return {"kgrun": 1, "tensors": tensors, "nodes": nodes, "outputs": [*outputs, *([last] if compute else [])]}


class Rank:
    """This process as a rank, with a device of kgrun's and torch's on the same GPU."""

    def __init__(self, rank: int, size: int, gpu: int) -> None:
        import torch
        import torch.distributed as dist

        from kgrun.runtime.devices.cuda import CudaDevice

        torch.cuda.set_device(gpu)
        address = f"tcp://127.0.0.1:{os.environ['TORCH_PORT']}"
        dist.init_process_group("nccl", init_method=address, rank=rank, world_size=size)
        self.torch, self.dist, self.rank, self.size = torch, dist, rank, size
        self.device = CudaDevice(gpu)

    def session(self, graph: dict[str, Any], stack: ExitStack, *, replay: bool = True) -> Any:
        """A session that has run once; its outputs are right where all inputs are ones."""
        from kgrun.graphs.schema.graph import KernelGraph
        from kgrun.runtime.collectives.world import current
        from kgrun.runtime.session import Session

        world = current()
        assert world is not None
        dims = {"rank": self.rank, "world_size": self.size}
        made = KernelGraph.model_validate(graph)
        session = stack.enter_context(Session(made, device=self.device, dims=dims, graph_replay=replay))
        if replay and session.not_replayed is not None:
            raise SystemExit(f"not replayed: {session.not_replayed}")
        world.settle()
        report = session.run(iterations=1, warmup=WARM, per_step=False, poison=True)
        if "y" in report.outputs:
            wanted = self.size if graph["nodes"][0]["op"] == "AllReduce" else 1
            assert (report.outputs["y"] == wanted).all(), "kgrun moved something else"
        return session

    def kgrun_us(self, session: Any) -> Callable[[], float]:
        """Times one run, by events around it."""
        device, issue = self.device, session.runner.issue

        def once() -> float:
            start = device.record()
            issue()
            return device.elapsed_ns(start, device.record()) / 1000

        return once

    def torch_us(self, call: Call, *, captured: bool = False) -> Callable[[], float]:
        """Times one call, by events around it; captured by hand as one CUDA graph where asked."""
        torch = self.torch
        for _ in range(WARM):
            call()
        torch.cuda.synchronize()
        if captured:
            held = torch.cuda.CUDAGraph()
            with torch.cuda.graph(held):
                call()
            call = held.replay
            for _ in range(WARM):
                call()
            torch.cuda.synchronize()

        def once() -> float:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end) * 1000)

        return once

    def torch_call(self, op: str, source: Any, target: Any) -> Call:
        """The collective as torch has it; its AllReduce is in place."""
        match op:
            case "AllReduce":
                return lambda: self.dist.all_reduce(source)
            case "AllGather":
                return lambda: self.dist.all_gather_into_tensor(target, source)
        return lambda: self.dist.all_to_all_single(target, source)

    def single(self, op: str, nbytes: int) -> dict[str, Any]:
        """One row: microseconds by way."""
        torch = self.torch
        with ExitStack() as stack:
            graph = single_graph(op, nbytes, self.size)
            sessions = [self.session(graph, stack, replay=replay) for replay in (True, False)]
            parts = self.size if op == "AllGather" else 1
            source, target = torch.ones(nbytes // 4 // parts, device="cuda"), torch.empty(nbytes // 4, device="cuda")
            call = self.torch_call(op, source, target)
            timers = [*map(self.kgrun_us, sessions), self.torch_us(call), self.torch_us(call, captured=True)]
            return {"op": op, "nbytes": nbytes} | medians_in_turn(RUNS, dict(zip(WAYS, timers, strict=True)))

    def layered(self, op: str) -> dict[str, float]:
        """Microseconds of products, of collectives, of both as one graph, and of both captured by hand with torch."""
        torch, shape = self.torch, (WIDTH, WIDTH)
        with ExitStack() as stack:
            made = {
                "both": layered_graph(op, compute=True, communicate=True),
                "compute": layered_graph(op, compute=True, communicate=False),
                "communication": layered_graph(op, compute=False, communicate=True),
            }
            ways = {name: self.kgrun_us(self.session(graph, stack)) for name, graph in made.items()}
            half = lambda: torch.empty(shape, dtype=torch.float16, device="cuda").uniform_(-0.02, 0.02)  # noqa: E731
            products, sources, targets = ([half() for _ in range(LAYERS)] for _ in range(3))
            weights, x, beside = [half() for _ in range(LAYERS)], half(), torch.cuda.Stream()

            def by_hand() -> None:
                main, last = torch.cuda.current_stream(), x
                beside.wait_stream(main)
                for weight, product, source, target in zip(weights, products, sources, targets, strict=True):
                    torch.mm(last, weight, out=product)
                    last = product
                    with torch.cuda.stream(beside):
                        self.torch_call(op, source, target)()
                main.wait_stream(beside)

            ways["by_hand"] = self.torch_us(by_hand, captured=True)
            found = medians_in_turn(RUNS, ways)
        found["hidden"] = 1 - max(0.0, found["both"] - found["compute"]) / found["communication"]
        return found

    def close(self) -> None:
        """Leave torch's job and kgrun's device."""
        self.torch.cuda.synchronize()
        self.dist.destroy_process_group()
        self.device.close()


def one_rank() -> None:
    """Be a rank: measure, and let rank 0 print what all found."""
    from kgrun.runtime.collectives.ranks import ranks_from_environment
    from kgrun.runtime.collectives.world import enter

    info = ranks_from_environment()
    assert info is not None
    world = enter(info, 560.0)
    world.greet("benchmark", "cuda")
    rank = Rank(info.rank, info.size, 0 if os.environ.get("SHARED_GPU") else info.local_rank)
    sizes = [nbytes for nbytes in SIZES if nbytes <= int(os.environ["LARGEST"])]
    ops = operators(info.size)
    found: dict[str, Any] = {"single": [rank.single(op, nbytes) for op in ops for nbytes in sizes]}
    layered = "AllReduce" if info.size > 1 else "AllToAll"
    found["layered"] = {"op": layered} | rank.layered(layered)
    found["gpu"], found["versions"] = rank.device.info.name, dict(rank.device.info.versions)
    found["torch_nccl"] = ".".join(map(str, rank.torch.cuda.nccl.version()))
    rank.close()
    said = world.meeting.gather("found", found, world.everyone, "gathering results")
    world.finish()
    if info.rank == 0:
        print(json.dumps({"ranks": info.size, "by_rank": said}))


def single_section(rows: Sequence[dict[str, Any]], ranks: int, *, linked: bool) -> Section:
    """Every collective at every size, by rank 0's clock."""
    from kgrun.runtime.collectives.summary import bus_factor

    way_columns = ("kgrun, one graph µs", "kgrun, issued µs", "torch, issued µs", "torch, captured by hand µs")
    section = Section("Single collectives", ("operator", "bytes", *way_columns, "graph ÷ by hand"))
    if linked:
        section.columns = (*section.columns, "kgrun bus GB/s", "torch bus GB/s", "kgrun ÷ torch")
    shares, ratios = [], []
    for row in rows:
        cells = [row["op"], f"{row['nbytes']:,}", *(row[way] for way in WAYS), row["kgrun"] / row["captured"]]
        if row["nbytes"] >= LARGE:
            ratios.append(row["kgrun"] / row["captured"])
        if linked:
            factor = bus_factor(ROUTINES[row["op"]], ranks) * row["nbytes"] / 1000
            best = min(row["torch"], row["captured"])
            cells += [factor / row["kgrun"], factor / best, best / row["kgrun"]]
            shares.append(best / row["kgrun"] if row["op"] == "AllReduce" else 1.0)
        section.rows.append(cells)
    if shares:
        section.checks.append(Check("least bus bandwidth of AllReduce ÷ torch's", min(shares), 0.95, least=True))
    if ratios:
        section.checks.append(Check("most of one graph ÷ captured by hand, from 1 MiB on", max(ratios), 1.03))
    return section


def layered_section(found: dict[str, Any], *, linked: bool) -> Section:
    """What hides, and the whole against one captured by hand."""
    section = Section(
        f"{LAYERS} products of {WIDTH}², beside each an independent {found['op']} of {WIDTH * WIDTH * 2 >> 20} MiB",
        ("products µs", "collectives µs", "both µs", "hidden", "both, captured by hand µs", "graph ÷ by hand"),
    )
    ratio = found["both"] / found["by_hand"]
    times = [found[key] for key in ("compute", "communication", "both")]
    section.rows.append([*times, found["hidden"], found["by_hand"], ratio])
    section.checks.append(Check("one graph ÷ captured by hand", ratio, 1.03))
    if linked:
        section.checks.append(Check("hidden communication", found["hidden"], 0.9, least=True))
    else:
        section.notes.append(
            "one GPU: what NCCL's kernels do here takes its memory and its SMs from the products, so this "
            "shows that both run side by side and not what hides between GPUs"
        )
    return section


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def run_ranks(ranks: int, more: dict[str, str]) -> dict[str, Any]:
    """Start the ranks; what all found."""
    shared = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), **more}
    shared |= {"TORCH_PORT": str(free_port()), "KGRUN_RANK_TOKEN": secrets.token_hex(16)}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE if rank == 0 else None,
            text=True,
        )
        for rank in range(ranks)
    ]
    text, _ = processes[0].communicate()
    codes = [process.wait() for process in processes]
    if any(codes):
        raise SystemExit(f"ranks ended with {codes}")
    found: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return found


def main() -> None:
    """Start the ranks, write the results, print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--share-gpu", action="store_true")
    parser.add_argument("--name")
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    options = parser.parse_args()
    more = {"LARGEST": str(options.largest)}
    if options.share_gpu:
        more |= {"SHARED_GPU": "1", "NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    found = run_ranks(options.ranks, more)
    first, ranks = found["by_rank"][0], options.ranks
    linked = ranks > 1 and not options.share_gpu
    where = f"{ranks} rank{'s' * (ranks > 1)} on {'one ' if ranks == 1 or options.share_gpu else ''}{first['gpu']}"
    facts = machine(where)
    head = head_lines("Collectives", facts)
    head += ["", f"NCCL {first['versions']['nccl']} under kgrun, {first['torch_nccl']} under torch. Medians of {RUNS}."]
    if ranks == 1:
        head += ["", "**One rank: nothing crosses a link.** These are costs of issuing and of copies on one GPU."]
    elif options.share_gpu:
        head += ["", "**Ranks that share one GPU: no link is crossed, and they take turns on it.** No bandwidths."]
    sections = [single_section(first["single"], ranks, linked=linked), layered_section(first["layered"], linked=linked)]
    text = markdown(head, sections)
    name = options.name or f"gpu_collectives_{ranks}{'_shared' * options.share_gpu}"
    write_results(RESULTS, name, text, document(facts, sections) | {"by_rank": found["by_rank"]})
    print(text)


if __name__ == "__main__":
    one_rank() if "TORCH_PORT" in os.environ else main()
