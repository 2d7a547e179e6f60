"""Faults injected into the middle kernel of three, through the command line: exit code, the kernel's name, no abort."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

GOOD = 'extern "C" __global__ void good(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }'
PTX = """.version 7.0
.target sm_80
.address_size 64
.visible .entry bad(.param .u64 x, .param .u64 y)
{
    this is no instruction;
}
"""
DEEP = """__device__ int deep(int n, volatile float* p)
{
    volatile int a[64];
    for (int i = 0; i < 64; i++) a[i] = n + (int)p[i & 31];
    return n < 0 ? a[3] : deep(n - 1, p) + a[n & 63];
}
extern "C" __global__ void bad(float* x, float* y) { y[threadIdx.x] = deep(1 << 20, x); }"""


def bad(body: str) -> str:
    """A kernel `bad` with this body."""
    return f'extern "C" __global__ void bad(float* x, float* y) {{ {body} }}'


@dataclass(frozen=True)
class Fault:
    """A fault and what the command must say of it: `words` in the message, `node` whether it names the node."""

    source: str
    exit: int
    code: str
    words: str = ""
    node: bool = True
    options: tuple[str, ...] = ()
    launch: dict[str, Any] = field(default_factory=dict)
    kernel: dict[str, Any] = field(default_factory=dict)
    dim: int = 32


FAULTS = {
    "far out of bounds": Fault(bad("y[1ull << 38] = 1;"), 6, "KG601", "illegal memory access"),
    "out of bounds below": Fault(bad("y[-(1ll << 38)] = 1;"), 6, "KG601", "illegal memory access"),
    "misaligned": Fault(bad("*(float4*)((char*)y + 4) = make_float4(1, 2, 3, 4);"), 6, "KG601", "misaligned address"),
    "null pointer": Fault(
        bad("y[threadIdx.x] = *(volatile float*)x;"), 6, "KG601", "illegal memory access", launch={"args": [None, "t1"]}
    ),
    "trap": Fault(bad("__trap();"), 6, "KG601"),
    "assert": Fault(bad("assert(x == nullptr);"), 6, "KG601", "assert"),
    "shared memory out of bounds": Fault(
        bad("extern __shared__ float s[]; s[1 << 24] = x[0]; y[0] = s[threadIdx.x];"), 6, "KG601"
    ),
    "stack overflow": Fault(DEEP, 6, "KG601"),
    "endless loop": Fault(
        bad("while (*(volatile float*)x < 10) {} y[0] = 1;"), 9, "KG900", "kernel 'bad' of node 'culprit' was running",
        options=("--timeout", "20"),
    ),
    "endless wait for a flag": Fault(
        bad("__shared__ volatile int go; if (threadIdx.x == 0) go = 0; __syncthreads(); while (go == 0) {}"),
        9, "KG900", "kernel 'bad' of node 'culprit' was running", options=("--timeout", "20"),
    ),
    "out of memory": Fault(bad("y[0] = 1;"), 4, "KG410", "out of memory on GPU 0", node=False, dim=1 << 36),
    "too much shared memory": Fault(bad("y[0] = 1;"), 3, "KG360", "shared", launch={"shared": 300_000}, node=False),
    "damaged PTX": Fault(PTX, 5, "KG503", "bad", node=False, kernel={"language": "ptx"}),
    "missing argument": Fault(bad("y[0] = 1;"), 3, "KG341", "takes 2 arguments", node=False, launch={"args": ["t1"]}),
    "missing entry": Fault(bad("y[0] = 1;"), 5, "KG504", "bda", node=False, kernel={"entry": "bda"}),
    "does not compile": Fault(bad("y[0] = nonsense;"), 5, "KG501", "nonsense", node=False),
}  # fmt: skip


def write(folder: Path, fault: Fault) -> Path:
    """x -> before -> t0 -> culprit -> t1 -> after -> y."""
    small = {"dtype": "float32", "shape": [32]}
    kernels = {
        "good": {"source": GOOD, "entry": "good"},
        "bad": {"source": fault.source, "entry": "bad"} | fault.kernel,
    }
    one = {"grid": [1], "block": [32]}
    nodes = [
        {"name": "before", "kernel": "good", "inputs": ["x"], "outputs": ["t0"], **one},
        {"name": "culprit", "kernel": "bad", "inputs": ["t0"], "outputs": ["t1"], **one, **fault.launch},
        {"name": "after", "kernel": "good", "inputs": ["t1"], "outputs": ["y"], **one},
    ]
    tensors = {
        "x": {"role": "input", **small, "init": {"uniform": [-1, 1]}},
        "t0": small, "t1": {"dtype": "float32", "shape": [fault.dim]}, "y": small,
    }  # fmt: skip
    path = folder / "graph.json"
    graph = {"kgrun": 1, "kernels": kernels, "tensors": tensors, "nodes": nodes, "outputs": ["y"]}
    path.write_text(json.dumps(graph), encoding="utf-8")
    return path


def execute(path: str | Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`kgrun execute`, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "kgrun.cli", "execute", str(path), "--device", "cuda", *options],
        capture_output=True, encoding="utf-8", timeout=200, check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )  # fmt: skip


def noise(text: str) -> list[str]:
    """Lines that are neither the driver's own words on a failed assert nor empty."""
    return [line for line in text.splitlines() if line and "Assertion" not in line]


@pytest.mark.timeout(250)
@pytest.mark.parametrize("name", FAULTS)
def test_an_injected_fault_ends_as_documented(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    done = execute(write(tmp_path, fault), "--json", *fault.options)
    assert done.returncode == fault.exit, (done.stdout, done.stderr)
    assert noise(done.stderr) == []
    document = json.loads(done.stdout)
    error = document["error"]
    assert (error["code"], len(document["errors"])) == (fault.code, 1)
    assert fault.words in error["message"]
    assert "after" not in error["message"]
    if fault.node:
        details = error["details"]
        assert (details["kernel"], details["node"], details["step"]) == ("bad", "culprit", 1)
        assert (details["grid"], details["block"]) == ([1, 1, 1], [32, 1, 1])
        assert "nodes[1]" in error["where"]


@pytest.mark.timeout(250)
@pytest.mark.parametrize("how", ["--sync-each", "--no-graph"])
@pytest.mark.parametrize("name", ["far out of bounds", "misaligned", "trap"])
def test_the_same_kernel_is_named_however_it_ran(name: str, how: str, tmp_path: Path) -> None:
    done = execute(write(tmp_path, FAULTS[name]), how)
    assert done.returncode == 6
    assert done.stderr.count("error[") == 1
    assert "kernel 'bad' of node 'culprit' failed" in done.stderr
    assert ("found by a second run" in done.stderr) == (how == "--no-graph")
    assert "PyCUDA" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.timeout(250)
def test_out_of_memory_tells_planned_free_and_contexts(tmp_path: Path) -> None:
    done = execute(write(tmp_path, FAULTS["out of memory"]), "--json")
    details = json.loads(done.stdout)["error"]["details"]
    assert details["planned_bytes"] >= 4 << 36
    assert 0 < details["free_bytes"] < details["total_bytes"]
    assert details["context_bytes"] > 0


@pytest.mark.timeout(250)
def test_a_bundle_fails_the_same_way_and_holds_the_cubin(tmp_path: Path) -> None:
    first = execute(write(tmp_path, FAULTS["misaligned"]), "--json", "--repro", str(tmp_path / "bundle"))
    error = json.loads(first.stdout)["error"]
    assert list((tmp_path / "bundle" / "cubins").glob("bad.sm_*.cubin"))
    line = next(line for line in error["help"].splitlines() if "to run it again: " in line)
    _, _, graph, *options = shlex.split(line.partition("to run it again: ")[2])
    again = execute(graph, *options, "--json")
    assert again.returncode == 6
    assert json.loads(again.stdout)["error"]["message"] == error["message"]


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run whose kernel never ends."""
    path = write(tmp_path, FAULTS["endless loop"])
    words = [sys.executable, "-m", "kgrun.cli", "execute", str(path), "--device", "cuda"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell has it ignored
    ) as running:  # fmt: skip
        yield running
        if running.poll() is None:
            running.kill()


@pytest.mark.timeout(250)
def test_control_c_ends_an_endless_kernel(endless: subprocess.Popen[str]) -> None:
    time.sleep(15)
    endless.send_signal(signal.SIGINT)
    _, err = endless.communicate(timeout=60)
    assert endless.returncode == 130
    assert err.count("error[KG130]") == 1
    assert "PyCUDA" not in err


@pytest.mark.timeout(250)
def test_the_gpu_is_good_after_all_that(tmp_path: Path) -> None:
    good = Fault(GOOD.replace("good", "bad"), 0, "")
    done = execute(write(tmp_path, good), "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
