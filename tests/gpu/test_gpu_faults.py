"""Faults on a GPU end as documented errors that name the kernel; the process leaves without a word of PyCUDA's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PREPARE = """
import sys
import numpy as np
from kgrun.graphs.errors import KgrunError
from kgrun.runtime.devices.cuda import CudaDevice
from kgrun.runtime.program import KernelCode, Launch, Pointer, Step, Value

GOOD = 'extern "C" __global__ void k(float* y) { y[threadIdx.x] = 1; }'

def step(source, name, **more):
    fields = {"grid": (1, 1, 1), "block": (32, 1, 1)} | more
    code = KernelCode(source, None, "cuda", name + ".cu", "k", kernel=name)
    return Step(0, name, 0, name, "compute", Launch(code, (Pointer(0),), **fields), (), ())

device = CudaDevice()
address = device.allocate(4096)
at = lambda pointer: address + pointer.offset
def launch(source, name, **more):
    device.prepare(step(source, name, **more), at).launch()
def report(error):
    print(error.exit, error.code, error.message)
"""
BAD = {
    "illegal": "y[1ull << 38] = 1;",
    "misaligned": "*(float4*)((char*)y + 4) = make_float4(1, 2, 3, 4);",
    "trap": "__trap();",
    "one thread": 'if (threadIdx.x == 0) asm volatile("trap;");',
    "shared": "extern __shared__ float s[]; s[1 << 24] = 1; y[0] = s[threadIdx.x];",
    "null": "*(volatile float*)nullptr = 1;",
}
EXPECTED = {
    "illegal": "illegal memory access",
    "misaligned": "misaligned address",
    "trap": "",
    "one thread": "",
    "shared": "",
    "null": "",
}


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PREPARE + script],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        timeout=110,
        check=False,
    )


def bad(name: str) -> str:
    return f'extern "C" __global__ void k(float* y) {{ {BAD[name]} }}'


@pytest.mark.parametrize("fault", BAD)
def test_a_fault_names_its_kernel_and_the_process_ends_cleanly(fault: str) -> None:
    done = run(f"""
launch(GOOD, "before")
device.synchronize()
launch({bad(fault)!r}, "culprit")
try:
    device.synchronize()
except KgrunError as error:
    report(error)
device.free(address)
device.close()
""")
    assert done.stdout.startswith("6 KG601 culprit: "), (done.stdout, done.stderr)
    assert EXPECTED[fault] in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fault_with_nothing_caught_leaves_no_context_behind() -> None:
    done = run(f"""
later = device.prepare(step(GOOD, "later"), at)
launch({bad("illegal")!r}, "culprit")
later.launch()
device.synchronize()
""")
    assert done.returncode == 1
    assert "illegal memory access" in done.stderr
    assert "issued since the last wait: culprit, later" in done.stderr
    assert "PyCUDA" not in done.stderr


def test_a_fault_that_shows_while_the_next_kernel_is_loaded_is_not_that_kernels() -> None:
    done = run(f"""
launch({bad("illegal")!r}, "culprit")
import time; time.sleep(0.5)
try:
    launch(GOOD, "later")
    device.synchronize()
except KgrunError as error:
    report(error)
    print(error.details["suspects"][0])
""")
    assert done.stdout.startswith("6 KG601 "), (done.stdout, done.stderr)
    assert "illegal memory access" in done.stdout
    assert done.stdout.splitlines()[-1] == "culprit"
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fault_nobody_waits_for_is_silent_at_exit() -> None:
    done = run(f"launch({bad('illegal')!r}, 'culprit')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_after_a_fault_a_new_device_can_be_opened_or_says_why_not() -> None:
    done = run(f"""
launch({bad("illegal")!r}, "culprit")
device.close()
try:
    again = CudaDevice()
    address = again.allocate(64)
    again.upload(address, np.zeros(16, np.float32))
    again.close()
    print("open")
except KgrunError as error:
    report(error)
""")
    assert done.stdout.split()[0] in ("open", "6", "7"), (done.stdout, done.stderr)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("grid=(1, 1, 65_536)", "3 KG360 big: grid[2]=65536 > 65535 (max_grid_dim_z)"),
        ("block=(32, 33, 1)", "3 KG360 big: block 32×33×1=1056 threads > 1024"),
        ("block=(1, 1, 65)", "3 KG360 big: block[2]=65 > 64"),
    ],
)
def test_impossible_launches_never_reach_the_device(fields: str, words: str) -> None:
    done = run(f"""
try:
    launch(GOOD, "big", {fields})
except KgrunError as error:
    report(error)
launch(GOOD, "fine")
device.synchronize()
""")
    assert words in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


def test_out_of_memory_tells_the_numbers_and_the_device_lives_on() -> None:
    done = run("""
try:
    device.allocate(1 << 45)
except KgrunError as error:
    report(error)
    print(error.details["planned_bytes"], error.details["free_bytes"] > 0)
launch(GOOD, "fine")
device.synchronize()
""")
    assert done.stdout.startswith("4 KG410 out of memory on GPU 0")
    assert "35184372088832 True" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("ending", ["raise SystemExit(3)", "raise ValueError('mine')", "sys.exit(0)", "device = None"])
def test_every_way_out_pops_the_context(ending: str) -> None:
    done = run(ending)
    assert done.returncode in (0, 1, 3)
    assert "PyCUDA" not in done.stderr
