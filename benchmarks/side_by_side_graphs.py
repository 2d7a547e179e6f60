"""The graphs that `gpu_side_by_side.py` times: a chain of tiny kernels, one streaming kernel, a diamond."""

from __future__ import annotations

from typing import Any

TINY = 'extern "C" __global__ void tiny(const float* x, float* z) { z[threadIdx.x] = x[threadIdx.x] + 1.0f; }'
STREAM = """
extern "C" __global__ void stream(const float4* x, float4* z, long long n) {
    for (long long i = blockIdx.x * 256LL + threadIdx.x; i < n; i += gridDim.x * 256LL) {
        float4 v = x[i];
        z[i] = make_float4(v.x * 2.f, v.y * 2.f, v.z * 2.f, v.w * 2.f);
    }
}
"""
# One block of 1,024 threads on each of 33 multiprocessors: a quarter of an H200's 132.
QUARTER = """
extern "C" __global__ void quarter(const float* x, float* z, float m) {
    float a = x[threadIdx.x];
    for (int i = 0; i < 12000; ++i) a = fmaf(a, m, m);
    z[blockIdx.x * 1024 + threadIdx.x] = a;
}
"""
JOIN = """
extern "C" __global__ void join(const float* a, const float* b, const float* c, const float* d, float* z) {
    int i = blockIdx.x * 1024 + threadIdx.x;
    z[i] = a[i] + b[i] + c[i] + d[i];
}
"""

COUNT = 1_000


def tiny_graph(count: int = COUNT) -> dict[str, Any]:
    """`count` kernels of one block, each reading what the one before wrote."""
    vector = {"dtype": "float32", "shape": [128]}
    tensors: dict[str, Any] = {"t0": {"role": "input", "init": {"uniform": [0, 1], "seed": 0}, **vector}}
    nodes = []
    for i in range(count):
        tensors[f"t{i + 1}"] = vector
        nodes.append(
            {"name": f"k{i}", "kernel": "tiny", "inputs": [f"t{i}"], "outputs": [f"t{i + 1}"], "grid": [1],
             "block": [128]}
        )  # fmt: skip
    kernels = {"tiny": {"source": TINY, "entry": "tiny"}}
    return {
        "kgrun": 1,
        "name": "tiny",
        "kernels": kernels,
        "tensors": tensors,
        "nodes": nodes,
        "outputs": [f"t{count}"],
    }


def stream_graph(nbytes: int) -> dict[str, Any]:
    """One kernel that reads and writes `nbytes` each."""
    vector = {"dtype": "float32", "shape": [nbytes // 4]}
    grid = min(132 * 8, -(-nbytes // 16 // 256))
    node = {"name": "stream", "kernel": "stream", "inputs": ["x"], "outputs": ["z"], "grid": [grid], "block": [256],
            "args": ["x", "z", {"int64": nbytes // 16}], "bytes": 2 * nbytes}  # fmt: skip
    tensors = {"x": {"role": "input", "init": {"fill": 0}, **vector}, "z": vector}
    kernels = {"stream": {"source": STREAM, "entry": "stream"}}
    return {"kgrun": 1, "name": "stream", "kernels": kernels, "tensors": tensors, "nodes": [node], "outputs": ["z"]}


def diamond_graph() -> dict[str, Any]:
    """Four kernels that need not wait for each other, between one before them and one behind."""
    wide, narrow = {"dtype": "float32", "shape": [33 * 1024]}, {"dtype": "float32", "shape": [1024]}
    tensors: dict[str, Any] = {"x": {"role": "input", "init": {"uniform": [0, 1], "seed": 0}, **narrow}, "h": narrow}
    nodes: list[dict[str, Any]] = [
        {"name": "head", "kernel": "tiny", "inputs": ["x"], "outputs": ["h"], "grid": [1], "block": [1024]}
    ]
    for name in "abcd":
        tensors[name] = wide
        nodes.append(
            {"name": f"branch_{name}", "kernel": "quarter", "inputs": ["h"], "outputs": [name], "grid": [33],
             "block": [1024], "args": ["h", name, {"float32": 0.5}]}
        )  # fmt: skip
    tensors["y"] = wide
    nodes.append(
        {"name": "tail", "kernel": "join", "inputs": list("abcd"), "outputs": ["y"], "grid": [33], "block": [1024]}
    )
    kernels = {name: {"source": text, "entry": name} for name, text in
               (("tiny", TINY), ("quarter", QUARTER), ("join", JOIN))}  # fmt: skip
    return {"kgrun": 1, "name": "diamond", "kernels": kernels, "tensors": tensors, "nodes": nodes, "outputs": ["y"]}
