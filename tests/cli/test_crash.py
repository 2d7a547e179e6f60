"""A stray pointer in a user's kernel on the CPU: a clean fault that names the kernel, not a dead process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

GRAPH = """
kgrun: 1
tensors:
  x: {role: input, dtype: float32, shape: [64], init: {fill: 1}}
  t: {dtype: float32, shape: [64]}
  y: {dtype: float32, shape: [64]}
kernels:
  good: {source: 'extern "C" __global__ void good(const float* x, float* y) { y[threadIdx.x] = x[0]; }', entry: good}
  bad: {source: 'extern "C" __global__ void bad(const float* x, float* y) { BODY }', entry: bad}
nodes:
  - {name: first, kernel: good, inputs: [x], outputs: [t], grid: [1], block: [64]}
  - {name: wild, kernel: bad, inputs: [t], outputs: [y], grid: [GRID], block: [64]}
outputs: [y]
"""
BODIES = {
    "far write": ("y[1ull << 40] = x[threadIdx.x];", 1, "KG613"),
    "null read": ("y[threadIdx.x] = *(const float*)0;", 1, "KG611"),  # the compiler makes a trap of it
    "grid too large": ("y[(blockIdx.x * 64ull + threadIdx.x) * 4096] = x[threadIdx.x];", 100_000, "KG613"),
}


def run(tmp_path: Path, body: str, grid: int, *words: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "graph.yaml"
    path.write_text(GRAPH.replace("BODY", body).replace("GRID", str(grid)))
    return subprocess.run(
        [sys.executable, "-m", "kgrun.cli", "execute", str(path), "--device", "cpu", *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("words", [(), ("--timeout", "60")], ids=["plain", "timeout"])
@pytest.mark.parametrize("name", BODIES)
def test_ctx_03_a_stray_pointer_ends_with_the_right_kernels_name(
    tmp_path: Path, name: str, words: tuple[str, ...]
) -> None:
    body, grid, code = BODIES[name]
    done = run(tmp_path, body, grid, *words)
    assert done.returncode == 6
    assert done.stdout == ""
    assert done.stderr.count("error[") == 1
    assert f"error[{code}]" in done.stderr
    assert "'wild'" in done.stderr
    assert "first" not in done.stderr


def test_the_json_document_is_whole(tmp_path: Path) -> None:
    done = run(tmp_path, *BODIES["far write"][:2], "--json")
    assert done.returncode == 6
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["exit"], error["details"]["node"]) == ("KG613", 6, "wild")
