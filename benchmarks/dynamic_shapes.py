"""One graph at 50 shapes: plans in the second round, and what a run costs over that of a graph bound once.

    python benchmarks/dynamic_shapes.py [--device cpu|cuda] [--shapes 50] [--rounds 20]

Exit 1 unless the second round plans nothing and the median overhead of a run is at most 30 µs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Any

import numpy as np

from kgrun.graphs.schema.graph import KernelGraph
from kgrun.runtime.infer import infer
from kgrun.runtime.session import Session
from kgrun.runtime.shapes import ShapeSession

LIMIT_NS = 30_000
WIDTH = 32


def layers(depth: int = 4) -> KernelGraph:
    """A small perceptron over `n` rows: the host's part of a run is most of it."""
    tensors: dict[str, Any] = {"x": {"role": "input", "dtype": "float32", "shape": ["n", WIDTH]}}
    nodes: list[dict[str, Any]] = []
    last = "x"
    for i in range(depth):
        tensors[f"w{i}"] = {
            "role": "parameter", "dtype": "float32", "shape": [WIDTH, WIDTH], "init": {"uniform": [-1, 1]},
        }  # fmt: skip
        nodes.append({"name": f"m{i}", "op": "MatMul", "inputs": [last, f"w{i}"], "outputs": [f"t{i}"]})
        nodes.append({"name": f"r{i}", "op": "Relu", "inputs": [f"t{i}"], "outputs": [f"v{i}"]})
        last = f"v{i}"
    return KernelGraph.model_validate({"kgrun": 1, "tensors": tensors, "nodes": nodes, "outputs": [last]})


def measure(device: str, shapes: int, rounds: int) -> dict[str, Any]:
    """Both kinds of session at every shape, by turns, so that what else the machine does falls on both."""
    graph, sizes = layers(), range(1, shapes + 1)
    inputs = {n: np.random.default_rng(n).uniform(-1, 1, (n, WIDTH)).astype(np.float32) for n in sizes}
    dynamic_ns: list[int] = []
    overheads: list[int] = []
    with ShapeSession(graph, device=device) as dynamic:
        started = time.perf_counter()
        for x in inputs.values():
            dynamic({"x": x})
        first_s, plans = time.perf_counter() - started, dynamic.statistics.plans
        started = time.perf_counter()
        for x in inputs.values():
            dynamic({"x": x})
        second_s, again = time.perf_counter() - started, dynamic.statistics.plans - plans
        for n, x in inputs.items():
            with Session(graph, device=dynamic.device, values={"x": x}) as static:
                infer(static, {"x": x})
                pairs = []
                for _ in range(rounds):
                    start = time.perf_counter_ns()
                    wanted = infer(static, {"x": x})
                    middle = time.perf_counter_ns()
                    found = dynamic({"x": x})
                    pairs.append((middle - start, time.perf_counter_ns() - middle))
                assert all(np.array_equal(found[name], wanted[name]) for name in wanted), n
            one, other = (statistics.median(column) for column in zip(*pairs, strict=True))
            dynamic_ns.append(int(other))
            overheads.append(int(other - one))
    return {
        "device": device,
        "shapes": shapes,
        "first_round_s": round(first_s, 3),
        "second_round_s": round(second_s, 3),
        "plans_first_round": plans,
        "plans_second_round": again,
        "run_ns_median": int(statistics.median(dynamic_ns)),
        "overhead_ns_median": int(statistics.median(overheads)),
        "overhead_ns_p95": sorted(overheads)[int(0.95 * len(overheads))],
        "limit_ns": LIMIT_NS,
    }


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shapes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    found = measure(options.device, options.shapes, options.rounds)
    print(json.dumps(found, indent=1))
    return 0 if found["plans_second_round"] == 0 and found["overhead_ns_median"] <= LIMIT_NS else 1


if __name__ == "__main__":
    sys.exit(main())
