"""What checks cost on the CPU device: each check alone and all together against a run without, on this machine.

    python benchmarks/cpu_checks.py [FOLDER …] [--runs 5] [--out benchmarks/results/cpu_checks.md]

FOLDER holds a graph.json with inputs.npz and constants.npz, such as tvm-bert-tiny. "kernels" is the time of the steps
alone, "whole run" that with what looks at memory between the steps; both are the best of --runs, in turns with runs
without checks. The first run compiles. "corpus" is the time of every correct kernel of the tests, launched one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from harness import Check, Section, head_lines, machine, markdown, run_section

from kgrun.graphs.importers import import_source
from kgrun.graphs.load import load_graph
from kgrun.runtime.session import Session

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the tests' corpus
CHECKS = ("bounds", "race", "init", "barrier", "nan", "readonly", "redzone")
LIMIT = 6.0  # times an unchecked run, for all checks together

SAXPY = """extern "C" __global__ void saxpy(int n, float a, const float* x, const float* y, float* z) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = a * x[i] + y[i];
}"""
MATMUL = """extern "C" __global__ void matmul(const float* x, const float* y, float* z, int n) {
  __shared__ float sx[16][16], sy[16][16];
  int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 + tx;
  float sum = 0;
  for (int m = 0; m < n; m += 16) {
    sx[ty][tx] = x[row * n + m + tx];
    sy[ty][tx] = y[(m + ty) * n + column];
    __syncthreads();
    for (int k = 0; k < 16; k++) sum += sx[ty][k] * sy[k][tx];
    __syncthreads();
  }
  z[row * n + column] = sum;
}"""
REDUCE = """extern "C" __global__ void reduce(const float* x, float* total, int n) {
  __shared__ float part[256];
  int t = threadIdx.x;
  float sum = 0;
  for (int i = blockIdx.x * 256 + t; i < n; i += gridDim.x * 256) sum += x[i];
  part[t] = sum;
  __syncthreads();
  for (int d = 128; d; d /= 2) {
    if (t < d) part[t] += part[t + d];
    __syncthreads();
  }
  if (t == 0) atomicAdd(total, part[0]);
}"""
HISTOGRAM = """extern "C" __global__ void histogram(const unsigned char* x, int* bins, int n) {
  __shared__ int own[256];
  own[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) atomicAdd(&own[x[i]], 1);
  __syncthreads();
  atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}"""


def custom(name: str, source: str, tensors: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """A graph of one kernel; tensors with an `init` are its inputs."""
    inputs = [key for key, tensor in tensors.items() if "init" in tensor]
    outputs = [key for key in tensors if key not in inputs]
    given = {key: {**({"role": "input"} if key in inputs else {}), **tensor} for key, tensor in tensors.items()}
    nodes = [{"name": name, "kernel": name, "inputs": inputs, "outputs": outputs, **node}]
    kernels = {name: {"source": source, "entry": name}}
    return {"kgrun": 1, "name": name, "tensors": given, "kernels": kernels, "nodes": nodes, "outputs": outputs}


def tensor(shape: list[int], init: Any = None, dtype: str = "float32") -> dict[str, Any]:
    """A tensor's row."""
    return {"dtype": dtype, "shape": shape, **({"init": init} if init is not None else {})}


def graphs() -> Iterator[dict[str, Any]]:
    """saxpy of 10 million elements, matmul 512³ in tiles, a reduction and a histogram of 10 million."""
    n, normal = 10_000_000, {"normal": [0, 1], "seed": 0}
    yield custom(
        "saxpy",
        SAXPY,
        {"x": tensor([n], normal), "y": tensor([n], normal), "z": tensor([n])},
        {
            "args": [{"int32": n}, {"float32": 0.5}, "x", "y", "z"],
            "grid": [-(-n // 256)],
            "block": [256],
        },
    )
    square = tensor([512, 512], normal)
    yield custom(
        "matmul",
        MATMUL,
        {"x": square, "y": square, "z": tensor([512, 512])},
        {"args": ["x", "y", "z", {"int32": 512}], "grid": [32, 32], "block": [16, 16]},
    )
    yield custom(
        "reduce",
        REDUCE,
        {"x": tensor([n], normal), "total": tensor([1])},
        {"clear": ["total"], "args": ["x", "total", {"int32": n}], "grid": [512], "block": [256]},
    )
    yield custom(
        "histogram",
        HISTOGRAM,
        {"x": tensor([n], {"integers": [0, 255], "seed": 0}, "uint8"), "bins": tensor([256], dtype="int32")},
        {"clear": ["bins"], "args": ["x", "bins", {"int32": n}], "grid": [512], "block": [256]},
    )


def best(graph: Path, checks: tuple[str, ...], runs: int) -> tuple[list[tuple[float, float]], float]:
    """(seconds of the kernels, of the whole run) without and with checks; seconds until the first checked run's end.

    The least of `runs`, in turns, so that what else the machine does falls on both.
    """
    with ExitStack() as stack:
        plain = stack.enter_context(Session(load_graph(graph), device="cpu"))
        plain.run(iterations=1, warmup=0)
        started = time.perf_counter()
        checked = stack.enter_context(Session(load_graph(graph), device="cpu", checks=checks))
        checked.run(iterations=1, warmup=0)
        first = time.perf_counter() - started
        times: list[list[tuple[float, float]]] = [[], []]
        for _ in range(runs):
            for session, kept in zip((plain, checked), times, strict=True):
                started = time.perf_counter()
                report = session.run(iterations=1, warmup=0, per_step=False)
                kept.append((min(report.total_samples) * 1e-9, time.perf_counter() - started))
    return [(min(each[0] for each in kept), min(each[1] for each in kept)) for kept in times], first


def measure(section: Section, graph: Path, runs: int) -> None:
    """A row for each set of checks."""
    titles = ("kernels, ms", "unchecked", "ratio", "whole run, ms", "unchecked", "ratio", "first run, s")
    section.columns = ("checks", *titles)
    for name in (*CHECKS, "all"):
        ((kernels, whole), (checked, watched)), first = best(graph, (name,), runs)
        row = checked * 1e3, kernels * 1e3, checked / kernels, watched * 1e3, whole * 1e3, watched / whole, first
        section.rows.append((name, *row))
        if name == "all":
            section.checks.append(Check("kernels, all ÷ none", checked / kernels, LIMIT))
            section.checks.append(Check("whole run, all ÷ none", watched / whole, LIMIT))


def corpus(section: Section, runs: int) -> None:
    """The tests' correct kernels, each launched on its own, inputs and comparison not counted."""
    from tests.runtime.compile.ptx.corpus import CASES
    from tests.runtime.compile.ptx.harness import ALL_CHECKS, launch

    section.columns = ("checks", "seconds", "× unchecked")
    totals = []
    for checks in (frozenset[str](), ALL_CHECKS):
        total = 0.0
        for case in CASES:
            times = []
            for _ in range(runs + 1):
                args = case.args()
                how = {"grid": case.grid, "block": case.block, "shared": case.shared, "entry": case.entry}
                started = time.perf_counter()
                result = launch(case.source, args, **how, options=case.options, checks=checks, outputs=case.outputs)
                times.append(time.perf_counter() - started)
                assert not result.faults, case.name
            total += min(times[1:])
        totals.append(total)
        section.rows.append(("all that follow accesses" if checks else "none", total, total / totals[0]))
    section.notes.append(f"{len(CASES)} kernels; launches of a few blocks, so that starting one is most of it")
    section.checks.append(Check("corpus, all ÷ none", totals[1] / totals[0], LIMIT))


def main() -> None:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    sections: list[Section] = []
    with tempfile.TemporaryDirectory() as place:
        paths = []
        for document in graphs():
            paths.append(Path(place) / f"{document['name']}.json")
            paths[-1].write_text(json.dumps(document))
        for folder in chosen.folders:
            paths.append(Path(place) / f"{folder.name}.json")
            import_source(folder, paths[-1])
        work = [(path.stem, partial(measure, graph=path, runs=chosen.runs)) for path in paths]
        for title, fill in (*work, ("corpus", partial(corpus, runs=chosen.runs))):
            sections.append(run_section(title, fill))
            page = markdown(head_lines("What checks cost on the CPU", machine(f"{os.cpu_count()} cores")), sections)
            if chosen.out:  # after each, so that an interrupted run leaves what it has
                chosen.out.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
