"""Models with elementwise calls in a row as one kernel (`--fuse`) and apart, on one GPU in turns.

    python benchmarks/fused.py MODEL.onnx[:NAME=SIZE,…] … [--name NAME] [--out benchmarks/results]

Writes NAME.md and NAME.json. Times are of whole runs, an event pair around a replay of the graph.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from harness import (
    Check,
    Section,
    document,
    head_lines,
    machine,
    markdown,
    medians_in_turn,
    run_section,
    sized_models,
    write_results,
)
from models import feeds
from rivals import Times, events_us

from kgrun.graphs.importers.onnx import onnx_graph
from kgrun.runtime import Session

ROUNDS = 7


def compare(device: Any, words: list[str], section: Section) -> None:
    """A row a model; the outputs must agree within 1e-3 of the largest."""
    section.columns = (
        "model",
        "steps",
        "--fuse steps",
        "peak MiB",
        "--fuse peak MiB",
        "µs",
        "--fuse µs",
        "ratio",
        "difference",
    )
    for path, dims in sized_models(words):
        graph = onnx_graph(path, dims=dims)
        given = feeds(path, {name: dims.get(name, 1) for name in onnx_graph(path).dims})
        with (
            Session(graph, device=device, values=given) as apart,
            Session(graph, device=device, values=given, fuse=True) as fused,
        ):
            right, found = (session.run(given, iterations=3, per_step=False) for session in (apart, fused))
            ways: Times = {
                name: partial(events_us, device, session.runner.issue)
                for name, session in (("apart", apart), ("fused", fused))
            }
            took = medians_in_turn(ROUNDS, ways)
            peaks = [session.plan.peak_bytes / 2**20 for session in (apart, fused)]
        worst = max(_difference(found.outputs[name], right.outputs[name]) for name in right.outputs)
        section.rows.append(
            (path.stem, len(right.steps), len(found.steps), *peaks, took["apart"], took["fused"],
             took["fused"] / took["apart"], worst)
        )  # fmt: skip
        section.checks.append(Check(f"{path.stem}: difference", worst, 1e-3))


def _difference(found: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    """The largest, as a part of the largest element."""
    if not right.size:
        return 0.0
    scale = max(float(np.abs(right).max()), 1e-30)
    return float(np.abs(found.astype(np.float64) - right.astype(np.float64)).max()) / scale


def main() -> None:
    """Measure, write results, print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="models with the sizes of their dimensions")
    parser.add_argument("--name", default="gpu_fused", help="of the result files")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder for them")
    given = parser.parse_args()
    from kgrun.runtime.devices.cuda import CudaDevice

    device = CudaDevice()
    facts = machine(f"{device.info.name} ({device.info.arch})") | {"driver": device.info.versions}
    section = run_section("Elementwise calls in a row as one kernel", partial(compare, device, given.models))
    device.close()
    page = markdown(head_lines("Fused and apart", facts), [section])
    write_results(given.out, given.name, page, document(facts, [section]))
    print(page)


if __name__ == "__main__":
    main()
