"""Big graphs of a known number of kernels, for tests and benchmarks.

As a command, `python tests/graphs/generate.py 1000 chain.json` writes `chain_graph(1000)` as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Graph = dict[str, Any]

ROWS, WIDTH = 48, 64
HIDDEN = (128, 320, 192, 512)
BLOCK_KERNELS = 9

CHAIN_SOURCE = """
// Subtracts each row's mean; `sums` has one float a row.
extern "C" __global__ void centre(const float *x, float *centred, float *sums, int rows, int width)
{
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int i = 0; i < width; ++i) sum += x[row * width + i];
    sums[row] = sum;
    for (int i = 0; i < width; ++i) centred[row * width + i] = x[row * width + i] - sum / width;
}

// x / (1 + |x|), by way of `scratch`, which has n floats.
extern "C" __global__ void soften(const float *x, float *softened, float *scratch, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    scratch[i] = 1.0f + fabsf(x[i]);
    softened[i] = x[i] / scratch[i];
}
"""


def chain_graph(kernels: int, *, raw: bool = True) -> Graph:
    """A chain of gated blocks with exactly `kernels` nodes that run (aliases come on top), none of them dead.

    A block is: centre → two branches (MatMul, Relu in place; MatMul, Sigmoid) → Mul → MatMul → residual Add → Reshape
    (an alias) → soften. Every seventh residual comes from six blocks before; every fiftieth block feeds an output.
    The hidden width changes from block to block. `raw` makes centre and soften CUDA C with workspaces; otherwise they
    are operators, and a CPU without a compiler can run the graph.
    """
    tensors: dict[str, Any] = {
        "x": {"role": "input", "dtype": "float32", "shape": [ROWS, WIDTH], "init": {"uniform": [-1, 1], "seed": 0}},
        "flat_shape": {"role": "constant", "dtype": "int64", "value": [ROWS * WIDTH]},
    }
    if not raw:
        tensors["row_shape"] = {"role": "constant", "dtype": "int64", "value": [ROWS, WIDTH]}
    for seed, hidden in enumerate(HIDDEN):
        limit = WIDTH**-0.5
        for name, shape in ((f"expand_{hidden}", [WIDTH, hidden]), (f"shrink_{hidden}", [hidden, WIDTH])):
            init = {"uniform": [-limit, limit], "seed": seed + 1}
            tensors[name] = {"role": "parameter", "dtype": "float32", "shape": shape, "init": init}
    nodes: list[dict[str, Any]] = []
    blocks, rest = divmod(kernels, BLOCK_KERNELS)
    ends, outputs = ["x"], []
    for number in range(blocks):
        residual = ends[max(number - 6, 0)] if number % 7 == 6 else ends[-1]
        _block(tensors, nodes, number, ends[-1], residual, raw)
        ends.append(f"b{number}.end")
        if number % 50 == 49:
            outputs.append(f"b{number}.end")
    last = ends[-1]
    for number in range(rest):
        nodes.append({"name": f"tail{number}", "op": "Relu", "inputs": [last], "outputs": [f"tail{number}.on"]})
        last = f"tail{number}.on"
    if last not in outputs:
        outputs.append(last)
    graph = {"kgrun": 1, "name": f"chain{kernels}", "tensors": tensors, "nodes": nodes, "outputs": outputs}
    if raw:
        graph["kernels"] = {entry: {"source": CHAIN_SOURCE, "entry": entry} for entry in ("centre", "soften")}
    return graph


def _block(tensors: Graph, nodes: list[Graph], number: int, x: str, residual: str, raw: bool) -> None:
    hidden = HIDDEN[number % len(HIDDEN)]
    p = f"b{number}."

    def op(name: str, kind: str, inputs: list[str], output: str, **more: Any) -> None:
        nodes.append({"name": p + name, "op": kind, "inputs": inputs, "outputs": [p + output], **more})

    def launch(kernel: str, source: str, output: str, nbytes: int, sizes: Sequence[int], grid: int, block: int) -> None:
        tensors[p + output] = {"dtype": "float32", "shape": [ROWS, WIDTH]}
        nodes.append(
            {
                "name": p + kernel,
                "kernel": kernel,
                "inputs": [source],
                "outputs": [p + output],
                "workspace": [nbytes],
                "args": [source, p + output, {"workspace": 0}, *({"int32": size} for size in sizes)],
                "grid": [grid],
                "block": [block],
            }
        )

    if raw:
        launch("centre", x, "centred", 4 * ROWS, (ROWS, WIDTH), 1, 64)
    else:
        op("centre", "Softmax", [x], "centred", workspace=[4 * ROWS])
    op("left", "MatMul", [p + "centred", f"expand_{hidden}"], "left")
    op("left_on", "Relu", [p + "left"], "left_on", inplace={p + "left_on": p + "left"})
    op("right", "MatMul", [p + "centred", f"expand_{hidden}"], "right")
    op("gate", "Sigmoid", [p + "right"], "gate")
    op("gated", "Mul", [p + "left_on", p + "gate"], "gated")
    op("back", "MatMul", [p + "gated", f"shrink_{hidden}"], "back")
    op("sum", "Add", [residual, p + "back"], "sum")
    op("flat", "Reshape", [p + "sum", "flat_shape"], "flat")
    if raw:
        launch("soften", p + "flat", "end", 4 * ROWS * WIDTH, (ROWS * WIDTH,), ROWS * WIDTH // 256, 256)
    else:
        op("soften", "Sigmoid", [p + "flat"], "soft", workspace=[4 * ROWS * WIDTH])
        op("rows", "Reshape", [p + "soft", "row_shape"], "end")


def main() -> None:
    """Write a chain: the number of kernels, then the file."""
    Path(sys.argv[2]).write_text(json.dumps(chain_graph(int(sys.argv[1]))), encoding="utf-8")


if __name__ == "__main__":
    main()
