"""Machines without a GPU, runs that must not look green, and what a command leaves behind when it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cases.conftest import launch, relu

# A driver that is not there, whatever the machine has: the loader looks for libcuda.so.1 and does not find it.
NO_DRIVER = """
import ctypes, sys
real = ctypes.CDLL.__init__
def deny(self, name, *rest, **more):
    if name is not None and "libcuda" in str(name):
        raise OSError("libcuda.so.1: cannot open shared object file")
    real(self, name, *rest, **more)
ctypes.CDLL.__init__ = deny
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("pycuda"):
            raise ImportError("libcuda.so.1: cannot open shared object file: No such file or directory")
sys.meta_path.insert(0, Finder())
from kgrun.cli.entry import main
code = main(sys.argv[1:])
sys.exit(code)
"""


@pytest.mark.parametrize(
    "words", [["plan-memory", "GRAPH"], ["validate", "GRAPH"], ["--help"], ["schema"], ["doctor"], ["--version"]]
)
def test_env_02_commands_that_need_no_gpu_work_without_a_driver(process: Any, write: Any, words: Any) -> None:
    path = str(write(relu()))
    done = process(*[path if word == "GRAPH" else word for word in words], code=NO_DRIVER)
    assert (done.code, done.err) == (0, "")


def test_env_02_a_gpu_that_is_asked_for_and_cannot_be_used_ends_with_one_reason(process: Any, write: Any) -> None:
    done = process("execute", write(relu()), "--device", "cuda", code=NO_DRIVER)
    assert (done.code, done.out) == (7, "")
    assert done.err.startswith("error[KG7")
    assert "Traceback" not in done.err
    assert len([line for line in done.err.splitlines() if line.startswith("error")]) == 1


def test_env_02_without_a_device_named_the_cpu_is_taken_and_the_reason_told(process: Any, write: Any) -> None:
    done = process("execute", write(relu()), "--json", code=NO_DRIVER)
    assert done.code == 0
    (warning,) = (row for row in json.loads(done.out)["warnings"] if row["code"] == "W-CPU")
    assert "running on the CPU" in warning["message"]


@pytest.mark.parametrize("command", ["execute", "plan-memory", "validate"])
def test_env_04_nothing_to_run_is_no_success(kgrun: Any, write: Any, command: str) -> None:
    path = write(relu(nodes=[], outputs=[]))
    done = kgrun(command, path, "--json")
    assert (done.code, done.json()["error"]["code"]) == (3, "KG346")
    assert "--allow-empty" in done.error
    assert kgrun(command, path, "--allow-empty").code == 0


@pytest.mark.parametrize("change", ["value", "shape", "nan"])
@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_env_04_outputs_that_differ_are_no_success(
    kgrun: Any, write: Any, tmp_path: Path, change: str, kind: str
) -> None:
    from safetensors.numpy import save_file

    np.save(tmp_path / "x.npy", np.array([-1, 2, -3, 4], np.float32))
    right = np.array([1, 0, 3, 0], np.float32)
    wrong = {"value": right + np.float32([0, 0, 0, 1e-3]), "shape": right[:3],
             "nan": np.float32([1, 0, 3, np.nan])}[change]  # fmt: skip

    def run(array: Any) -> Any:
        file = tmp_path / f"expected.{kind}"
        if kind == "npz":
            np.savez(file, y=array)
        else:
            save_file({"y": np.ascontiguousarray(array)}, file)
        return kgrun(
            "execute",
            write(relu()),
            "--device",
            "cpu",
            "--input",
            f"x={tmp_path / 'x.npy'}",
            "--expected",
            file,
            "--json",
        )

    assert run(right).code == 0
    done = run(wrong)
    assert done.code == 8
    assert done.json()["ok"] is False
    assert done.json()["error"]["code"] == "KG801"


def test_env_04_an_expected_file_without_one_of_the_outputs_is_told(kgrun: Any, write: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "expected.npz", z=np.zeros(8, np.float32))
    done = kgrun("execute", write(relu()), "--device", "cpu", "--expected", tmp_path / "expected.npz", "--json")
    assert done.code in (2, 8)
    np.savez(tmp_path / "expected.npz")
    done = kgrun("execute", write(relu()), "--device", "cpu", "--expected", tmp_path / "expected.npz", "--json")
    assert done.code != 0  # nothing was compared


# ctx-01, ctx-03, ctx-07: what a fault leaves behind

GOOD = 'extern "C" __global__ void k(float* y) { y[0] = 1; }'
STRAY = 'extern "C" __global__ void k(float* y) { y[1ull << 40] = 1; }'


def three(second: str) -> dict[str, Any]:
    """Three launches; the second one is at fault."""
    kernels = {name: {"source": text, "entry": "k"} for name, text in (("good", GOOD), ("bad", second))}
    nodes = [
        {
            "name": f"step{i}",
            "kernel": kernel,
            "outputs": [f"y{i}"],
            "grid": [1],
            "block": [1],
            "after": [f"step{i - 1}"] if i else [],
        }
        for i, kernel in enumerate(["good", "bad", "good"])
    ]
    tensors = {f"y{i}": {"dtype": "float32", "shape": [4]} for i in range(3)}
    return {"kgrun": 1, "kernels": kernels, "tensors": tensors, "nodes": nodes, "outputs": [f"y{i}" for i in range(3)]}


@pytest.mark.gpu
@pytest.mark.parametrize("body", ["y[1ull << 40] = 1;", "__trap();", "*(volatile float*)nullptr = 1;"])
def test_ctx_01_a_fault_leaves_one_line_and_no_abort(process: Any, write: Any, body: str) -> None:
    source = f'extern "C" __global__ void k(float* y) {{ {body} }}'
    done = process("execute", write(launch(source)), "--device", "cuda")
    assert (done.code, done.out) == (6, "")
    assert done.err.startswith("error[KG6")
    assert done.err.count("error[") == 1
    for noise in ("PyCUDA", "cuMemFree", "context stack", "Traceback", "terminate called"):
        assert noise not in done.err


@pytest.mark.gpu
def test_ctx_03_the_guilty_kernel_is_named_and_no_other(process: Any, write: Any) -> None:
    done = process("execute", write(three(STRAY)), "--device", "cuda", "--json")
    assert done.code == 6
    error = json.loads(done.out)["error"]
    assert "step1" in error["message"]
    assert "step2" not in error["message"]
    assert done.err == ""


@pytest.mark.parametrize("failing", [["--device", "cuda:9"], ["--iterations", "0"], ["--dim", "n=x"]])
def test_ctx_01_a_refused_command_leaves_one_message(process: Any, write: Any, failing: Any) -> None:
    done = process("execute", write(relu()), *failing)
    assert done.code in (2, 7)
    assert done.err.count("error[") == 1
    assert "Traceback" not in done.err


@pytest.mark.gpu
def test_ctx_07_a_gpu_that_does_not_exist_is_usage_and_the_devices_are_listed(process: Any, write: Any) -> None:
    done = process("execute", write(relu()), "--device", "cuda:99", "--json")
    assert done.code == 2
    error = json.loads(done.out)["error"]
    assert error["code"] == "KG230"
    assert "0" in (error["help"] or "") + error["message"].replace("99", "")


@pytest.mark.gpu
def test_ctx_07_no_visible_gpu_is_exit_7(process: Any, write: Any) -> None:
    done = process("execute", write(relu()), "--device", "cuda", env={"CUDA_VISIBLE_DEVICES": ""})
    assert done.code == 7
    assert done.err.count("error[") == 1
    assert process("execute", write(relu()), env={"CUDA_VISIBLE_DEVICES": ""}).code == 0


@pytest.mark.gpu
def test_ctx_07_only_the_chosen_device_gets_a_context(process: Any, write: Any) -> None:
    code = """
import sys
import pycuda.driver as cuda
cuda.init()
if cuda.Device.count() < 2:
    sys.exit(77)
from kgrun.cli.entry import main
import ctypes
active = ctypes.c_int()
flags = ctypes.c_uint()
code = main([*sys.argv[1:], "--device", "cuda:1", "--quiet"])
lib = ctypes.CDLL("libcuda.so.1")
lib.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active))
print("first device", active.value)
sys.exit(code)
"""
    done = process("execute", write(relu()), code=code)
    if done.code == 77:
        pytest.skip("needs two GPUs")
    assert (done.code, done.out.strip()) == (0, "first device 0")
